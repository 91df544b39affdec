"""Experiments: what a release would look like, over and over, on data that is known."""
