"""What is done to the disk, and in which order."""

import os
import stat
from pathlib import Path

import pytest


def watch_disk(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with each wait for a file or folder, and each move, from now on."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noting_fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("fsync folder" if is_folder else "fsync file")
        fsync(descriptor)

    def noting_replace(self: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(self, target)

    patch.setattr(os, "fsync", noting_fsync)
    patch.setattr(Path, "replace", noting_replace)
    return steps
