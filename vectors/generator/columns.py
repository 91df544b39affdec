"""Vectors of stream pads and packed columns: sections 6 and 7 of the specification."""

from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB
from numpy.typing import NDArray

from vectors.generator.files import Case, Document, bad, case, document, entropy, filler
from veiltab.core.group import draw_uniform
from veiltab.crypto.pads import StreamPad, WordMap
from veiltab.wire.packing import CHUNK_ROWS, pack, pack_positions

SIZES = (1, 2, 3, 7, 16, 17, 200, 256, 257, 1_000, 65_535)
REFUSED = {13: 2, 200: 2, 65_175: 1}
"""Sizes for which many words are refused: how many shall be among a case's rows."""

REFUSED_ROWS = 48
SEARCHED_WORDS = 2_000_000
REFUSED_TWICE = (13, 241)
"""Sizes of which a word shall be refused together with its first spare."""

FAR = 2**48
"""No column has more rows."""

MALFORMED = "malformed_message"


def pads() -> Document:
    """Section 6: stream pads, at starts, across blocks, far away, and where words are refused."""
    cases = []
    for size in SIZES:
        key = filler(f"pad key for {size}")
        cases.append(_rows(f"k = {size}", key, size, 0, 24))
        cases.append(_rows(f"k = {size}, odd start", key, size, 7, 6))
        cases.append(_rows(f"k = {size}, two chunks", key, size, CHUNK_ROWS - 5, 10))
        cases.append(_rows(f"k = {size}, the last rows", key, size, FAR - 4, 4))
        places = [CHUNK_ROWS, 3, 2 * CHUNK_ROWS + 1, 3, 0, FAR - 1]
        found = StreamPad(key, size).at(np.array(places)).tolist()
        cases.append(
            case(f"k = {size}, positions", found, key=key.hex(), size=size, positions=places)
        )
    for size, few in REFUSED.items():
        key = filler(f"refused words of {size}")
        start = _refused_rows(key, size, few)
        cases.append(_rows(f"k = {size}, refused words", key, size, start, REFUSED_ROWS))
    for size in REFUSED_TWICE:
        key = filler(f"refused spares of {size}")
        start = _refused_twice(key, size)
        cases.append(_rows(f"k = {size}, a refused spare", key, size, start, 16))
    return document(
        "Section 6. The stream pad of the attribute with `size` categories and this pad `key`: of"
        " `count` rows from row `start`, or of the rows at `positions`.",
        cases,
    )


def packing() -> Document:
    """Section 7: packed chunks of codes and positions, and chunks that must be refused."""
    cases = []
    for size in (*SIZES, 4, 5, 24, 100, 255, 6_561, 32_768):
        source = entropy(f"codes below {size}")
        counts = (1, 2, 3, 9, 40, 41, 65) if size > 1 else (1, 50)
        for rows in counts:
            codes = draw_uniform(size, rows, source)
            cases.append(_packed(f"k = {size}, {rows} rows", size, codes))
        largest = np.full(43, size - 1, dtype=np.uint16)
        cases.append(_packed(f"k = {size}, the largest codes", size, largest))
    positions = [0, 1, 65_536, 2**48 - 1, 2**32, 5]
    cases.append(case("positions", pack_positions(np.array(positions)).hex(), positions=positions))
    return document(
        "Section 7. One chunk of `codes` below `size`, or of `positions`, packed; a bad one is"
        " `packed` bytes that are not a chunk of `count` codes below `size`.",
        cases + list(_bad_chunks()),
    )


def _bad_chunks() -> Iterator[Case]:
    def chunk(name: str, size: int, rows: int, packed: bytes) -> Case:
        return bad(name, MALFORMED, size=size, count=rows, packed=packed.hex())

    good = pack(np.zeros(41, dtype=np.uint16), 3)
    yield chunk("chunk_truncated", 3, 41, good[:-1])
    yield chunk("chunk_trailing", 3, 41, good + b"\x00")
    yield chunk("chunk_empty", 3, 41, b"")
    yield chunk("chunk_of_one_category", 1, 41, b"\x00")
    yield chunk("chunk_of_no_rows", 3, 0, b"\x00")
    # 40 digits of base 3 fill a word, and one more takes a byte.
    yield chunk("word_too_large", 3, 40, (3**40).to_bytes(8, "little"))
    yield chunk("word_too_large_at_all", 3, 40, b"\xff" * 8)
    yield chunk("word_too_large_at_the_end", 3, 41, bytes(8) + b"\x03")
    yield chunk("word_too_large_for_one_bit", 2, 1, b"\x02")
    # The planes of 17 have the bases 2 and 9, those of 257 the bases 2 and 129.
    yield chunk("value_too_large", 17, 1, b"\x01\x08")
    yield chunk("value_too_large_in_two_bytes", 257, 1, b"\x01\x80")


def _refused_rows(key: bytes, size: int, few: int) -> int:
    """Return a row after which so many words are refused within a case's rows."""
    refused, elements = _refused(key, size), WordMap(size).elements
    near = refused[few - 1 :] - refused[: refused.size - few + 1]
    first = refused[int(np.flatnonzero(near < REFUSED_ROWS // elements - 2)[0])]
    return int(first) * elements - 3


def _refused_twice(key: bytes, size: int) -> int:
    """Return a row shortly before a word that is refused with its first spare."""
    words, blocks = WordMap(size), Cipher(AES256(key), ECB()).encryptor()  # noqa: S305 - section 6
    refused = _refused(key, size)
    numbers = np.stack([np.ones_like(refused), refused], axis=1).astype(">u8").tobytes()
    spares = np.frombuffer(blocks.update(numbers), words.word)[:: words.words_in_block]
    first = refused[int(words.entries(spares.copy())[1][0])]
    return int(first) * words.elements - 5


def _refused(key: bytes, size: int) -> NDArray[np.int64]:
    """Return the numbers of the refused words among the first millions."""
    words, stream = WordMap(size), Cipher(AES256(key), CTR(bytes(16))).encryptor()
    raw = stream.update(bytes(SEARCHED_WORDS * words.word.itemsize))
    return words.entries(np.frombuffer(raw, words.word).copy())[1]


def _rows(name: str, key: bytes, size: int, start: int, rows: int) -> Case:
    found = StreamPad(key, size).rows(start, rows).tolist()
    return case(name, found, key=key.hex(), size=size, start=start, count=rows)


def _packed(name: str, size: int, codes: NDArray[np.uint16]) -> Case:
    return case(name, pack(codes, size).hex(), size=size, codes=codes.tolist())
