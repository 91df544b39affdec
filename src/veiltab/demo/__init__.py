"""``veiltab demo``: a whole study on this machine, with the real commands as real processes."""
