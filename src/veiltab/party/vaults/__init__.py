"""Tables that a server keeps for years, as their curator sees them."""
