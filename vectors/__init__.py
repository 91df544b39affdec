"""Test vectors of the protocol; ``python -m vectors.generate`` makes them (see README.md)."""
