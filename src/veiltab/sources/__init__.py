"""Reading tables and turning their columns into codes."""
