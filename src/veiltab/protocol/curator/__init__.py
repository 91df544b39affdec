"""The curator: keeps the records, samples and encrypts them, and decides who may learn what."""
