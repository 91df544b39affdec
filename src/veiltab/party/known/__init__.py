"""Whom a home knows, by their keys."""
