"""Counting the work of a kernel instead of its seconds.

While :func:`count` runs something, the package's modules see a NumPy whose arrays write down what
is done with them, ciphers and digests that write down how many bytes they are given, and every line
of the package that Python goes through is counted.  The real parts do all the work.
"""

import hashlib
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeVar

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from numpy.typing import NDArray

import veiltab
from tests.support.counted_arrays import Tally, counting_numpy
from veiltab.crypto import linkage

Number = TypeVar("Number", bound=np.generic)
PACKAGE = str(Path(veiltab.__file__).parent)


@dataclass(frozen=True, slots=True)
class Work:
    """What was done: for a whole run, or (bytes and elements for a record) in a table of limits."""

    moved: float = 0
    """Bytes that NumPy reads and writes, copies and conversions included."""
    gathered: float = 0
    """Elements that are read or written one by one, by their places."""
    sorted: float = 0
    """Elements of sorted arrays of words."""
    slow: float = 0
    """Elements that are put in order by anything else, divided one by one, or made floats."""
    fresh: float = 0
    """Bytes of new arrays."""
    encrypted: float = 0
    """Bytes that a cipher is given."""
    hashed: float = 0
    """Bytes that SHA-256 is given."""
    encryptions: float = 0
    """Calls of ciphers; in a table of limits: for a span."""
    calls: float = 0
    """NumPy's loops over arrays; in a table of limits: for a span."""
    steps: float = 0
    """Lines of the package that Python goes through; in a table of limits: for a span."""

    def __sub__(self, other: "Work") -> "Work":
        """Return what was done on top of something else."""
        return Work(*(getattr(self, n) - getattr(other, n) for n in NAMES))

    def each(self, records: int, spans: float) -> "Work":
        """Return what was done for a record, and the calls and steps for a span."""
        parts = (spans if n in PER_SPAN else records for n in NAMES)
        return Work(*(getattr(self, n) / part for n, part in zip(NAMES, parts, strict=True)))

    def __repr__(self) -> str:
        """Write what is not zero, as it stands in a table of limits."""
        shown = ((name, round(getattr(self, name), 3)) for name in NAMES)
        return f"Work({', '.join(f'{name}={value:g}' for name, value in shown if value)})"


NAMES = tuple(each.name for each in fields(Work))


def count(run: Callable[[], object]) -> Work:
    """Run something, and return all that was done."""
    tally = Tally()
    with pytest.MonkeyPatch.context() as patch, _lines(tally):
        patch.setenv("VEILTAB_THREADS", "1")  # lines of other threads are not seen
        for module in [m for name, m in sys.modules.items() if name.startswith("veiltab.")]:
            for name, stand_in in _stand_ins(tally).items():
                if getattr(module, name, None) is stand_in.original:
                    patch.setattr(module, name, stand_in.made)
        run()
    return Work(**{name: getattr(tally, name) for name in NAMES})


@dataclass(frozen=True, slots=True)
class _StandIn:
    original: Any
    made: Any


def _stand_ins(tally: Tally) -> dict[str, _StandIn]:
    numpy, proxy = counting_numpy(tally)
    return {
        "np": _StandIn(numpy, proxy),
        "Cipher": _StandIn(Cipher, lambda *args: _CountedCipher(tally, Cipher(*args))),
        "hashlib": _StandIn(hashlib, _CountedDigests(tally)),
    }


class _CountedCipher:
    """A cipher that counts what its encryptors are given."""

    def __init__(self, tally: Tally, cipher: Any) -> None:  # noqa: ANN401
        self._tally, self._cipher = tally, cipher

    def encryptor(self) -> "_CountedEncryptor":
        """Return a real encryptor, watched."""
        return _CountedEncryptor(self._tally, self._cipher.encryptor())


class _CountedEncryptor:
    def __init__(self, tally: Tally, encryptor: Any) -> None:  # noqa: ANN401
        self._tally, self._encryptor = tally, encryptor
        self.reset_nonce = encryptor.reset_nonce

    def update_into(self, data: Any, out: Any) -> int:  # noqa: ANN401
        """Encrypt and count; every other way to encrypt fails, and wants to be counted here."""
        self._tally.encrypted += memoryview(data).nbytes
        self._tally.encryptions += 1
        found: int = self._encryptor.update_into(data, out)
        return found


class _CountedDigests(ModuleType):
    """The module of digests, with a SHA-256 that counts."""

    def __init__(self, tally: Tally) -> None:
        super().__init__("hashlib")
        self._tally = tally

    def sha256(self, data: bytes = b"") -> Any:  # noqa: ANN401
        """Return the digest of some bytes."""
        self._tally.hashed += memoryview(data).nbytes
        return hashlib.sha256(data)


@contextmanager
def _lines(tally: Tally) -> Iterator[None]:
    """Count the package's lines; whatever traced before goes on afterwards."""

    def line(_frame: FrameType, event: str, _arg: object) -> Any:  # noqa: ANN401
        tally.steps += event == "line"
        return line

    def entered(frame: FrameType, _event: str, _arg: object) -> Any:  # noqa: ANN401
        return line if frame.f_code.co_filename.startswith(PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(before)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Something that goes through any number of rows.

    ``span`` are the rows that it is to work on at once, ``spans`` how many of them are tried, and
    ``prepare`` makes what is not to be counted.
    """

    run: Callable[[int], object]
    span: int
    spans: tuple[int, int, int] = (2, 4, 12)
    prepare: Callable[[int], object] = int
    margin: float = 1.01
    """How far above its limit it may come: what is refused, drawn again or left over varies."""

    def work(self, rows: int) -> Work:
        """Return what is done for so many rows."""
        self.prepare(rows)
        return count(lambda: self.run(rows))


PER_SPAN = ("encryptions", "calls", "steps")
MARGIN_PER_SPAN = 1.5
"""The same for calls and lines: versions of Python differ, and shorter spans take twice as many."""

STALE = 0.9
"""Below this part of its limit a kernel has improved, and its limit must follow."""

FIXED = 64
"""Calls and lines that the rows of half a span may add: pieces of 16,384 rows, and none smaller."""


def check_work(kernel: Kernel, limit: Work) -> None:
    """Refuse more work for a record than the limit, and less, which makes the limit too loose."""
    kernel.work(kernel.span)  # whatever is made once in a process
    few, some, many = (kernel.work(number * kernel.span) for number in kernel.spans)
    first = between(kernel, few, some, 0)
    last = between(kernel, some, many, 1)
    assert _grown(last, first, kernel.margin) == [], (
        f"work grows faster than the rows: {first}, then {last}"
    )
    assert _grown(first, last, kernel.margin) == [], (
        f"work grows slower than the rows: {first}, then {last}"
    )
    assert _grown(last, limit, kernel.margin) == [], f"more work than {limit}: {last}"
    own = [name for name in NAMES if name not in PER_SPAN]
    tight = [n for n in own if getattr(last, n) < STALE * getattr(limit, n) - 0.01]
    assert tight == [], f"less work: write down the new limit {last} for {limit}"


def check_span(kernel: Kernel) -> None:
    """Refuse loops in Python over the rows of a span."""
    kernel.work(kernel.span)
    half, whole = kernel.work(kernel.span // 2), kernel.work(kernel.span)
    assert whole.steps <= half.steps + FIXED
    assert whole.calls <= half.calls + FIXED


def between(kernel: Kernel, less: Work, more: Work, first: int) -> Work:
    """Return what a record, and a span, took of what lies between two numbers of spans."""
    spans = kernel.spans[first + 1] - kernel.spans[first]
    return (more - less).each(spans * kernel.span, spans)


def _grown(found: Work, limit: Work, margin: float) -> list[str]:
    """Return what is more than the limit, and by more than a byte in a hundred records."""
    most = {name: margin * getattr(limit, name) + 0.01 for name in NAMES}
    most |= {name: MARGIN_PER_SPAN * getattr(limit, name) + 5 for name in PER_SPAN}
    return [name for name in NAMES if getattr(found, name) > most[name]]


def peak(run: Callable[[], object]) -> int:
    """Return the most memory that is held at a time while something runs."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def exhaust(items: Iterable[object]) -> None:
    """Go through an iterator, and keep nothing."""
    for _ in items:
        pass


def wrapped(array: NDArray[Number]) -> NDArray[Number]:
    """Return an array that is counted, while something is counted: an input from outside."""
    made: NDArray[Number] = vars(linkage)["np"].asarray(array)
    return made
