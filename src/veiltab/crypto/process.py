"""Keeping keys out of core files and out of swap, where the system lets a process do so.

These change the whole process, so that only programs call them: a library has no right to.
"""

import contextlib
import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4
_MCL_CURRENT = 1
_MCL_ONFAULT = 4


def forbid_core_dumps() -> None:
    """Let no crash write this process's memory to a disk, and no process of its user read it."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # pragma: no branch
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def keep_out_of_swap() -> bool:
    """Lock what the process has in memory now, its keys included; say whether the system did.

    It does where the limit of locked memory is above the size of the process, such as none at all
    (``LimitMEMLOCK=infinity`` of systemd) or for root.  What comes into memory later is not locked:
    tables are large, and are no keys.
    """
    if sys.platform != "linux":  # pragma: no cover - the flag below is Linux's
        return False
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).mlockall(_MCL_CURRENT | _MCL_ONFAULT) == 0)
    return False
