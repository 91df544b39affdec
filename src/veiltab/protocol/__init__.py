"""What each party does, on bytes and arrays, without network or disk."""
