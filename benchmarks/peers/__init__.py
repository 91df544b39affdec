"""Other libraries at the same work, each in its own virtual environment, measured in our run."""
