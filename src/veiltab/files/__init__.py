"""Files that survive crashes: private, written whole, and on the disk when a call returns."""
