"""Reports, pictures and charts: what a release or a plan looks like to readers."""
