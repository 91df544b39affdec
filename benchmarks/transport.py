"""Chunks to and from the service, against a plain file copy of the same bytes over HTTP.

The service is a process of its own, as ``veiltab serve`` starts it, and so is the plain copy.  The
clients are the real ones: what a push and an estimate use.
"""

import hashlib
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks import plain_copy
from benchmarks.timing import Ratio
from veiltab.core.schema import Attribute
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.files.chunks import FolderChunks
from veiltab.hosting import open_server, server_identity
from veiltab.party.remote import ReleasedChunks, RemoteServer
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.verify import sign
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import RESEARCHER
from veiltab.server.directory import DataDirectory
from veiltab.server.stored_study import StoredStudy
from veiltab.wire.contract import Contract, CuratorTerms, Linkage
from veiltab.wire.mechanism import PaperTerms
from veiltab.wire.messages import ColumnChunks, Grant, Release, ReleasedUpload, SignedGrant
from veiltab.wire.packing import CHUNK_ROWS, TOKEN_BYTES, packed_length
from veiltab.wire.states import State

REPEATS = 5
LEAST_RATIO = 0.5
GOAL = "at least half the speed of a plain file copy"
KINDS = {
    "tokens, 1 MiB": TOKEN_BYTES * CHUNK_ROWS,
    "2 categories, 8 KiB": packed_length(2, CHUNK_ROWS),
    "6 categories, 21 KiB": packed_length(6, CHUNK_ROWS),
}
UPLOAD_BYTES = 96 * 2**20
DOWNLOAD_BYTES = 64 * 2**20
LARGEST_SAMPLE = 2**40


def transport_ratios() -> list[Ratio]:
    """Compare chunks of three sizes, up and down; the two sides take turns, five times."""
    with tempfile.TemporaryDirectory() as folder, _stage(Path(folder)) as stage:
        return [ratio for name, size in KINDS.items() for ratio in _compare(stage, name, size)]


@dataclass(frozen=True, eq=False)
class _Stage:
    """Two running servers, and a curator and a researcher of one of them."""

    folder: Path
    context: ServiceContext
    curator: RemoteServer
    researcher: RemoteServer
    plain: httpx.Client

    def propose(self) -> Contract:
        """Open a study of one curator."""
        me = public_identity(self.curator.identity)
        contract = Contract(
            title="transport",
            nonce=secrets.token_bytes(16),
            curators=(CuratorTerms(me, (Attribute("any", ("no", "yes")),)),),
            researchers=None,
            server=self.curator.pinned,
            epsilon=1.0,
            delta=0.0,
            accounting="pure-1",
            mechanism=PaperTerms(None),
            population=None,
            pads="stream",
            linkage=Linkage.by_ids(),
            secret_commitment=bytes(32),
            stored=None,
        )
        self.curator.propose(sign(contract, self.curator.identity.signing))
        return contract

    def release(self, digests: Sequence[bytes], chunks: FolderChunks) -> bytes:
        """Put chunks where those of a release are, with a grant; return the study."""
        contract = self.propose()
        study = contract.study_id
        released = self.context.folders.released(study)
        for digest in digests:
            released.put(chunks.read(digest))
        released.sync()
        me, other = self.curator.identity.party_id, self.researcher.identity.party_id
        release = Release(
            accounting="pure-1",
            cells=2,
            columns=(ColumnChunks("any", tuple(digests)),),
            delta=0.0,
            epsilon=1.0,
            keep_threshold=2**63,
            nonce=bytes(16),
            population=LARGEST_SAMPLE,
            rows=CHUNK_ROWS * len(digests),
            study=study,
            uploads=(ReleasedUpload(me, bytes(32), None),),
        )
        grant = Grant(
            attributes=("any",),
            curator=me,
            expires=2**40,
            grant_id=bytes(16),
            pads="stream",
            researcher=other,
            sealed_digest=bytes(32),
            study=study,
            upload_digest=bytes(32),
        )
        self._keep(study, sign(release, self.context.key).dumps(), grant)
        return study

    def _keep(self, study: bytes, release: bytes, grant: Grant) -> None:
        """Write down that a study is released and granted, as if it had been."""
        signed = SignedGrant(sign(grant, self.curator.identity.signing), None)
        with self.context.database.transaction() as records:
            stored = StoredStudy.find(self.context, records, study)
            records.change_study(study, state=str(State.RELEASED))
            stored.keep(Release.kind, self.context.identity.party_id, bytes(32), release)
            stored.keep(Grant.kind, grant.curator, bytes(32), signed.dumps())
            records.add_member(study, grant.researcher, RESEARCHER)


def _compare(stage: _Stage, name: str, size: int) -> Iterator[Ratio]:
    yield _ratio(f"upload in chunks of {name}", *_uploads(stage, size))
    yield _ratio(f"download in chunks of {name}", *_downloads(stage, size))


def _uploads(stage: _Stage, size: int) -> tuple[Callable[[], None], Callable[[], None]]:
    digests, store, source = _write_chunks(stage.folder, size, UPLOAD_BYTES)
    studies = [stage.propose().study_id for _ in range(REPEATS + 1)]

    def ours() -> None:
        chunks = ((digest, store.read(digest)) for digest in digests)  # as a push does
        stage.curator.send_chunks(studies.pop(), chunks)

    def plain() -> None:
        plain_copy.upload(stage.plain, source, secrets.token_hex(4))

    return ours, plain


def _downloads(stage: _Stage, size: int) -> tuple[Callable[[], None], Callable[[], None]]:
    digests, store, source = _write_chunks(stage.folder, size, DOWNLOAD_BYTES)
    study, sizes = stage.release(digests, store), dict.fromkeys(digests, size)
    plain_copy.upload(stage.plain, source, source.name)

    def ours() -> None:
        with ReleasedChunks(stage.researcher, study, digests, sizes) as released:
            for digest in digests:
                released.get(digest)

    def plain() -> None:
        plain_copy.download(stage.plain, source.name, stage.folder / "down")

    return ours, plain


def _write_chunks(folder: Path, size: int, total: int) -> tuple[list[bytes], FolderChunks, Path]:
    """Write chunks, a file each, and the same bytes as one file."""
    name, digests = secrets.token_hex(4), []
    chunks, whole = folder / name, folder / f"{name}.whole"
    chunks.mkdir()
    with whole.open("wb") as file:
        for _ in range(total // size):
            chunk = secrets.token_bytes(size)
            digests.append(hashlib.sha256(chunk).digest())
            (chunks / digests[-1].hex()).write_bytes(chunk)
            file.write(chunk)
    return digests, FolderChunks(chunks), whole


def _ratio(name: str, ours: Callable[[], None], plain: Callable[[], None]) -> Ratio:
    """Let both take turns, so that whatever else the machine does meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(REPEATS + 1):
        for work, found in zip((ours, plain), times, strict=True):
            start = time.perf_counter()
            work()
            if repeat:  # the first one warms up
                found.append(time.perf_counter() - start)
    seconds, reference = map(statistics.median, times)
    return Ratio(
        name=name,
        seconds=seconds,
        reference="plain file copy over HTTP",
        reference_seconds=reference,
        goal=GOAL,
        met=reference >= LEAST_RATIO * seconds,
    )


@contextmanager
def _stage(folder: Path) -> Iterator[_Stage]:
    data, copies = folder / "data", folder / "copies"
    copies.mkdir()
    no_limits = ("--rate", "1e6", "--burst", "1000000")
    command = [sys.executable, "-m", "veiltab", "serve", "--data", str(data), "--port", "0"]
    plain = [sys.executable, "-m", "benchmarks.plain_copy", str(copies)]
    with ExitStack() as stack:
        url = json.loads(stack.enter_context(_running([*command, "--json", *no_limits])))["url"]
        plain_url = stack.enter_context(_running(plain)).strip()
        folders = DataDirectory(data)
        context = open_server(folders, None, server_identity(folders, None))
        stack.enter_context(context.database)
        parties = [PrivateIdentity.create(name, SystemEntropy()) for name in ("one", "other")]
        with context.database.transaction() as records:
            for party in parties:
                records.add_party(public_identity(party), context.now)
        curator, researcher = (
            stack.enter_context(RemoteServer(url, context.identity, each)) for each in parties
        )
        client = stack.enter_context(httpx.Client(base_url=plain_url, trust_env=False))
        yield _Stage(folder, context, curator, researcher, client)


@contextmanager
def _running(command: Sequence[str]) -> Iterator[str]:
    """Run a server until the block ends; give the line that it prints when it is ready."""
    with subprocess.Popen(  # noqa: S603 - our own commands
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    ) as process:
        try:
            yield process.stdout.readline() if process.stdout else ""
        finally:
            process.terminate()
            process.wait(60)
