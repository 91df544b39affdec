"""The console: web pages for one party, on its own computer, over its own home."""
