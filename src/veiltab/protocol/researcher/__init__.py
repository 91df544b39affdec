"""The researcher: checks everything, decrypts what was granted, and estimates."""
