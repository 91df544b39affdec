"""The messages that parties exchange, and their bytes: ``docs/spec/protocol-v1.md``."""
