"""A curator's process that answers what its owner has signed, within a policy."""
