"""The bytes of a text file as UTF-8, block by block: decompressed, decoded and checked."""

import codecs
import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from veiltab.data.table_format import encoding_words, option
from veiltab.errors import TableError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""The ends of names of compressed files."""

_BOMS = (  # the longer ones first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_KINDS = (
    (b"PK\x03\x04", "a workbook, or another archive", "give it its own ending, .xlsx or .ods"),
    (b"PAR1", "a Parquet file", "give it its own ending, .parquet"),
    (b"\x1f\x8b", "compressed with gzip", "give it its own ending, such as .csv.gz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "give it its own ending, such as .csv.zst"),
    (b"\xd0\xcf\x11\xe0", "an old or protected workbook", "save it as .xlsx, without a password"),
    (b"%PDF", "a PDF document", "export the table itself"),
    (b"SQLite format 3\0", "an SQLite database", "name it as sqlite:///path, with a query"),
)
_NOT_IN_CP1252 = b"\x81\x8d\x8f\x90\x9d"
_MANY_ZEROS, _FEW_ZEROS = 0.4, 0.05


class TextFile:
    """A text file that is read as UTF-8, whatever its encoding and compression."""

    def __init__(self, path: Path, encoding: str | None, head_bytes: int) -> None:
        """Look at the beginning; refuse what is no text, or in no encoding that can be told."""
        self.path = path
        self.compression = COMPRESSIONS.get(path.suffix.lower())
        with _Bytes(path, self.compression) as file:
            head = file.read(head_bytes)
        check_kind(head, path)
        self.note: str | None = None
        self.encoding = encoding or self._find_encoding(head)
        blocks = _Decoder(self.encoding, path).decode(head, last=len(head) < head_bytes)
        self.head = blocks
        self.head_is_all = len(head) < head_bytes

    def blocks(self, size: int) -> Iterator[bytes]:
        """Yield the file as UTF-8, without a byte order mark, from about ``size`` bytes each."""
        decoder = _Decoder(self.encoding, self.path)
        with _Bytes(self.path, self.compression) as file:
            while data := file.read(size):
                yield decoder.decode(data)
        yield decoder.decode(b"", last=True)

    def _find_encoding(self, head: bytes) -> str:
        """Tell the encoding from a mark at the beginning, from zero bytes, or by trying UTF-8."""
        for mark, name in _BOMS:
            if head.startswith(mark):
                return name
        if b"\0" in head:
            return _wide_encoding(head)
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head)
        except UnicodeDecodeError as error:
            return self._one_byte_encoding(head, error)
        return "utf-8"

    def _one_byte_encoding(self, head: bytes, error: UnicodeDecodeError) -> str:
        where = _place(head, error.start)
        decoded = head.decode(errors="replace")
        failures = decoded.count("\ufffd")
        letters = len(decoded) - len(decoded.encode("ascii", "ignore")) - failures
        if letters > failures:
            raise TableError(
                f"most of {self.path.name!r} is UTF-8, and one byte is not: {where}",
                hint="fix that line; or, if the whole file is in another encoding, name it:"
                f" {option('encoding', 'cp1252')}",
            )
        odd_places = [place for byte in _NOT_IN_CP1252 if (place := head.find(byte)) >= 0]
        if odd_places:
            raise TableError(
                f"{self.path.name!r} is in no encoding that can be told: not in UTF-8 ({where}),"
                f" and not in CP1252, which has no 0x{head[min(odd_places)]:02x}",
                hint=f"name its encoding: {option('encoding', 'cp850')}",
            )
        self.note = (
            f"the file is not UTF-8 ({where}), so its letters are read as CP1252; if they look"
            f" wrong, name its encoding: {option('encoding', 'cp850')}"
        )
        return "cp1252"


class _Decoder:
    """Turns the file's bytes into UTF-8, and says where they cannot be."""

    def __init__(self, encoding: str, path: Path) -> None:
        self._encoding, self._path = encoding, path
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._is_utf8 = encoding == "utf-8"
        self._bytes, self._lines, self._started = 0, 1, False

    def decode(self, data: bytes, *, last: bool = False) -> bytes:
        """Return the next bytes as UTF-8; what is cut at their end comes with the next ones."""
        pending = self._decoder.getstate()[0]
        try:
            text = self._decoder.decode(data, last)
        except UnicodeDecodeError as error:
            raise self._error(error, len(pending)) from None
        except UnicodeError:
            raise self._no_mark() from None
        if self._is_utf8:
            kept = len(self._decoder.getstate()[0])
            block = (pending + data)[: len(pending) + len(data) - kept]
        else:
            block = text.encode(errors="surrogatepass")
        if not self._started and block:
            block, self._started = block.removeprefix(codecs.BOM_UTF8), True
        zero = block.find(b"\0")
        if zero >= 0:
            raise self._zero(self._lines + block.count(b"\n", 0, zero))
        self._bytes += len(data)
        self._lines += block.count(b"\n")
        return block

    def _error(self, error: UnicodeDecodeError, pending: int) -> TableError:
        place = self._bytes - pending + error.start
        try:
            line = error.object[: error.start].decode(self._encoding).count("\n") + self._lines
        except UnicodeDecodeError:
            line = self._lines
        name = encoding_words(self._encoding)
        shown = error.object[error.start : error.start + 1].hex()
        other = "cp1252" if self._is_utf8 else "utf-8"
        return TableError(
            f"line {line:,} of {self._path.name!r} is not {name}: byte {place:,} is 0x{shown}",
            hint="fix that line; or, if the whole file is in another encoding, name it:"
            f" {option('encoding', other)}",
        )

    def _no_mark(self) -> TableError:
        name = encoding_words(self._encoding)
        return TableError(
            f"{self._path.name!r} is not {name}, or has no byte order mark to tell its two orders"
            " apart",
            hint="leave the encoding to be found, or name another one:"
            f" {option('encoding', f'{self._encoding}-le')}",
        )

    def _zero(self, line: int) -> TableError:
        return TableError(
            f"line {line:,} of {self._path.name!r} has a zero byte, which no text has",
            hint="check that the file is whole; if it is UTF-16, name that:"
            f" {option('encoding', 'utf-16-le')}",
        )


class _Bytes:
    """A file's bytes, decompressed; its errors are those of tables."""

    def __init__(self, path: Path, compression: str | None) -> None:
        self._path = path
        try:
            self._file, self._errors = _open(path, compression)
        except OSError as error:
            raise self._error(error) from error

    def __enter__(self) -> "_Bytes":  # noqa: PYI034 - nobody derives from it
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Read ``size`` bytes, or up to the end."""
        try:
            return self._file.read(size)
        except self._errors as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> TableError:
        reason = error.strerror if isinstance(error, OSError) else None
        return TableError(
            f"{str(self._path)!r} cannot be read: {reason or error}",
            hint="check that the file is whole, and that you may read it",
        )


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


_Opened = tuple[_Readable, tuple[type[Exception], ...]]
"""A file, and the errors that reading it may raise."""


def _open(path: Path, compression: str | None) -> _Opened:
    if compression == "gzip":
        return gzip.open(path), (OSError, EOFError, zlib.error)
    if compression == "zstd":
        return _open_zstd(path)
    return path.open("rb"), (OSError,)


def _open_zstd(path: Path) -> _Opened:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd  # noqa: PLC0415
        else:
            from backports import zstd  # noqa: PLC0415 - it may not be installed
    except ImportError:
        raise TableError(
            "what reads .zst files is not installed",
            hint="install it with: pip install 'veiltab[zstd]'",
        ) from None
    return zstd.open(path), (OSError, EOFError, zstd.ZstdError)


def marked(text: bytes) -> bytes:
    """Mark UTF-8 as text for polars, which takes what begins like a zlib stream for one.

    Such as a first value ``x^2``.  Every other compressed file begins with what is not UTF-8.
    """
    return codecs.BOM_UTF8 + text if text.startswith(b"x") else text


def check_kind(head: bytes, path: Path) -> None:
    """Refuse a file that is something else than its name says."""
    for mark, kind, hint in _KINDS:
        if head.startswith(mark):
            raise TableError(f"{path.name!r} is {kind}, and not a text file", hint=hint)


def _wide_encoding(head: bytes) -> str:
    """Tell the two orders of UTF-16 apart: of most letters, one of the two bytes is zero."""
    data = np.frombuffer(head, dtype=np.uint8)
    if data.size < 2:  # noqa: PLR2004 - of one byte there are no two
        return "utf-8"
    first, second = float((data[::2] == 0).mean()), float((data[1::2] == 0).mean())
    if second > _MANY_ZEROS and first < _FEW_ZEROS:
        return "utf-16-le"
    return "utf-16-be" if first > _MANY_ZEROS and second < _FEW_ZEROS else "utf-8"


def _place(data: bytes, start: int) -> str:
    return f"byte {start:,} in line {data.count(bytes([10]), 0, start) + 1:,}, 0x{data[start]:02x}"
