"""Prepare one upload in this process; print its rows and the peak of memory in MB (on Linux)."""

import hashlib
import re
import sys
from dataclasses import replace
from pathlib import Path

from tests.support.studies import attribute, holding
from veiltab.core.schema import Schema
from veiltab.crypto.entropy import CipherEntropy
from veiltab.data.tables import feed, open_table
from veiltab.files.spool import FolderSpool
from veiltab.protocol.curator.agreement import new_secret
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import prepare_table
from veiltab.protocol.stores import MemoryChunks
from veiltab.rehearsal import Rehearsal, Terms


class NoChunks(MemoryChunks):
    """Forgets every chunk at once."""

    def put(self, chunk: bytes) -> bytes:
        """Return the chunk's digest."""
        return hashlib.sha256(chunk).digest()


def main(path: str, scratch: str) -> None:
    """Take in a table with the columns ``id`` and ``v``, and encrypt it in a random order."""
    rehearsal = Rehearsal([holding({"v": 7}, [1])], CipherEntropy.from_seed(1, "memory"))
    secret, commitment, nonce = new_secret(rehearsal.entropy)
    terms = Terms(epsilon=1.0, sample_size=1, sampler="server")
    outcome = rehearsal._open(rehearsal._contract(terms, commitment, nonce))
    contract, (desk,) = outcome.contract.body, outcome.desks
    spools = [FolderSpool(Path(scratch) / name) for name in ("tokens", "order")]
    with Intake(contract, secret, Schema([attribute("v", 7)]), spools[0]) as intake:
        feed(intake, open_table(path), contract.linkage, ["id"])
        desk = replace(desk, outgoing=NoChunks())
        prepared = prepare_table(desk, outcome.contract, intake, spools[1])
    sys.stdout.write(f"{prepared.message.body.rows} {peak_megabytes()}\n")


def peak_megabytes() -> int:
    """Return the peak of this process; what getrusage says includes its parent's, before exec."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


if __name__ == "__main__":
    main(*sys.argv[1:])
