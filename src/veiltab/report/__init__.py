"""Reports and charts: what an estimate or a plan looks like to people."""
