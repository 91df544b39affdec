"""Keeping freed memory, so that arrays of a span's size are not paid for page by page, each time.

The GNU C library gives memory at the end of its heap back to the system as soon as a few hundred
kilobytes are free there, and takes it again with the next array: every page costs a fault then,
which together is as much as all the arithmetic on it.  It raises that limit to twice the largest
block that it has mapped and freed, up to 32 MiB; so one such block, which nobody writes to and
which takes no memory, is mapped and freed.  Other C libraries do not mind.
"""

import numpy as np

_LARGEST_THAT_COUNTS = (1 << 25) - (1 << 16)


def keep_freed_memory() -> None:
    """Raise the limit, once in a process; again does no harm."""
    np.empty(_LARGEST_THAT_COUNTS, dtype=np.uint8)
