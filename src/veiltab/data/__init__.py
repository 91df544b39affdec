"""Tables in: from files, databases and data frames, ids and columns become codes."""
