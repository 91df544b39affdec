"""The paper's experiments, run again: simulated releases, its figures, and its claims."""
