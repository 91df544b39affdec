"""What makes the test vectors: a module for each group of files."""
