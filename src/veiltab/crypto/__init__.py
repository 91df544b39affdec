"""Thin wrappers over the vetted primitives of ``cryptography``; nothing home-made."""
