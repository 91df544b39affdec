"""The server's database, SQLite or PostgreSQL: what it remembers, and how that is kept."""
