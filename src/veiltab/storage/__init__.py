"""What lasts: tables in SQLite or PostgreSQL, and chunks in folders, safe against crashes."""
