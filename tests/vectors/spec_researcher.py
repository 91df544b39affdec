"""What a researcher does, from messages to an estimate: written from the specification alone."""

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.vectors.spec_bytes import (
    canonical,
    chunk_sizes,
    labelled,
    packed_length,
    party_id,
    require,
    stream_pads,
    unpack,
    unpack_positions,
    unseal,
)
from tests.vectors.spec_messages import (
    MAX_ROWS,
    check_signers,
    different,
    read_contract,
    read_grant,
    read_release,
)
from tests.vectors.spec_plan import (
    check_promise,
    check_shuffled_promise,
    is_plausible,
    moments,
)

BLINDING = 16
MAX_MATCHED_ROWS = 2**33
Pads = Callable[[Sequence[int]], list[int]]
"""Returns the pads of rows of an upload."""


@dataclass
class Study:
    """A contract and a release that belong together."""

    contract: dict[str, Any]
    release: dict[str, Any]
    chunks: dict[str, bytes]

    @property
    def study_id(self) -> str:
        """The id that everything is bound to."""
        return labelled("study", canonical(self.contract).encode()).hex()

    @property
    def sizes(self) -> dict[str, int]:
        """How many categories each attribute has."""
        return {
            attribute["name"]: len(attribute["categories"])
            for curator in self.contract["curators"]
            for attribute in curator["attributes"]
        }

    def chunk(self, digest: str) -> bytes:
        """Return a chunk."""
        require(digest in self.chunks, "a chunk is missing")
        return self.chunks[digest]

    def released(self, digest: str) -> bytes:
        """Return a chunk of the release without its blinding (section 7.1)."""
        chunk = self.chunk(digest)
        require(len(chunk) >= BLINDING, "a released chunk has no blinding")
        return chunk[BLINDING:]

    def positions(self, curator: str) -> list[int]:
        """Return which row of a curator's upload each released row is."""
        upload = next(each for each in self.release["uploads"] if each["curator"] == curator)
        rows = self.release["rows"]
        if upload["positions"] is None:
            return list(range(rows))
        pairs = zip(upload["positions"], chunk_sizes(rows), strict=True)
        rows = [row for d, count in pairs for row in unpack_positions(self.released(d), count)]
        require(len(set(rows)) == len(rows), "a row was drawn twice")
        require(max(rows, default=0) < MAX_MATCHED_ROWS, "a row is beyond any table")
        return rows

    def column(self, name: str) -> list[int]:
        """Return a column of the release, still encrypted."""
        column = next(each for each in self.release["columns"] if each["attribute"] == name)
        pairs = zip(column["chunks"], chunk_sizes(self.release["rows"]), strict=True)
        return [code for d, n in pairs for code in unpack(self.released(d), self.sizes[name], n)]


def check_study(contract: str, release: str, chunks: Sequence[str]) -> Study:
    """Verify the contract and the release (section 11)."""
    agreed, made = read_contract(contract), read_release(release)
    check_signers(agreed, [each["signing_key"] for each in agreed["body"]["curators"]])
    check_signers(made, [agreed["body"]["server"]["signing_key"]])
    raw = [bytes.fromhex(chunk) for chunk in chunks]
    by_digest = {hashlib.sha256(chunk).hexdigest(): chunk for chunk in raw}
    study = Study(agreed["body"], made["body"], by_digest)
    terms, found = study.contract, study.release
    require(found["study"] == study.study_id, "the release is of another study")
    require(found["cells"] == math.prod(study.sizes.values()), "the cells do not agree")
    names = [column["attribute"] for column in found["columns"]]
    require(names == list(study.sizes), "the columns do not agree")
    curators = [upload["curator"] for upload in found["uploads"]]
    require(curators == [party_id(each) for each in terms["curators"]], "other curators")
    fresh = terms["linkage"]["mode"] == "matched" and terms["stored"] is None
    require((found["uploads"][0]["positions"] is not None) == fresh, "positions do not agree")
    agreed_numbers = (terms["epsilon"], terms["delta"])
    require((found["epsilon"], found["delta"]) == agreed_numbers, "another promise")
    if terms["mechanism"]["name"] == "decoys":
        check_decoyed(terms, found)
    else:
        check_ranked(terms, found)
    return study


def check_decoyed(terms: dict[str, Any], found: dict[str, Any]) -> None:
    """Check the numbers of a release with decoys; the contract has kept its promise."""
    agreed, population = terms["mechanism"], found["population"]
    require(found["accounting"] == "decoys-1", "another accounting")
    require(found["keep_threshold"] == agreed["keep_threshold"], "another noise")
    matched = terms["linkage"]["mode"] == "matched"
    require((population is None) == matched, "the population is told, or is not")
    require(matched or terms["population"] in {None, population}, "another population")
    plausible = is_plausible(agreed, population, found["cells"], found["rows"])
    require(plausible, "no coins and decoys give so many rows")


def check_ranked(terms: dict[str, Any], found: dict[str, Any]) -> None:
    """Check the numbers of a release by the paper's mechanism."""
    require(terms["mechanism"]["sample_size"] in {None, found["rows"]}, "another sample size")
    require(terms["population"] in {None, found["population"]}, "another population")
    require(found["accounting"] in {"pure-1", terms["accounting"]}, "another accounting")
    numbers = (found["population"], found["rows"], found["cells"])
    t = int(found["keep_threshold"])
    if found["accounting"] == "pure-1":
        check_promise(*numbers, t, found["epsilon"])
    else:
        check_shuffled_promise(*numbers, t, (found["epsilon"], found["delta"]))


def open_grant(study: Study, grant: str, researcher: str, key: bytes, now: int) -> dict[str, Pads]:
    """Verify a grant, and return the pads of its attributes (section 11)."""
    found = read_grant(grant)
    body, sealed = found["body"], found["sealed"]
    require(body["study"] == study.study_id, "a grant of another study")
    curators = {party_id(each): each for each in study.contract["curators"]}
    require(body["curator"] in curators, "a grant of no curator")
    curator = curators[body["curator"]]
    check_signers(found, [curator["signing_key"]])
    require(body["researcher"] == researcher, "a grant for another researcher")
    require(now < body["expires"], "the grant has expired")
    uploads = {each["curator"]: each["digest"] for each in study.release["uploads"]}
    require(body["upload"] == uploads[body["curator"]], "a grant of another upload")
    require(body["pads"] == study.contract["pads"], "a grant of other pads")
    own = [each["name"] for each in curator["attributes"] if each["name"] in body["attributes"]]
    require(body["attributes"] == own, "a grant of other attributes")
    require(sealed is not None, "a grant without its pads")
    data = base64.b64decode(sealed)
    require(hashlib.sha256(data).hexdigest() == body["sealed_digest"], "another sealed part")
    context = bytes.fromhex(body["study"] + body["curator"] + body["researcher"] + body["grant"])
    material = unseal(key, data, "grant", context)
    sizes = {name: study.sizes[name] for name in own}
    return (_stream if body["pads"] == "stream" else _one_time)(sizes, material)


def _stream(sizes: dict[str, int], material: bytes) -> dict[str, Pads]:
    require(len(material) == 32 * len(sizes), "another number of pad keys")

    def pads(key: bytes, size: int) -> Pads:
        return lambda rows: stream_pads(key, size, rows)

    keys = [material[start : start + 32] for start in range(0, len(material), 32)]
    return {name: pads(key, size) for (name, size), key in zip(sizes.items(), keys, strict=True)}


def _one_time(sizes: dict[str, int], material: bytes) -> dict[str, Pads]:
    count = int.from_bytes(material[:8], "big")
    require(len(material) >= 8 and count <= MAX_ROWS, "no such number of rows")
    whole, rest = divmod(count, 65_536)
    lengths = {k: whole * packed_length(k, 65_536) + packed_length(k, rest) for k in sizes.values()}
    require(len(material) == 8 + sum(lengths[k] for k in sizes.values()), "other pads")

    def pads(data: bytes, size: int) -> Pads:
        codes: list[int] = []
        for rows in chunk_sizes(count) if size > 1 else []:
            start = len(codes) // 65_536 * packed_length(size, 65_536)
            codes += unpack(data[start : start + packed_length(size, rows)], size, rows)

        def find(rows: Sequence[int]) -> list[int]:
            require(max(rows) < count, "pads are missing")
            return [codes[row] if size > 1 else 0 for row in rows]

        return find

    found, start = {}, 8
    for name, size in sizes.items():
        found[name] = pads(material[start : start + lengths[size]], size)
        start += lengths[size]
    return found


def research(
    party: dict[str, str],
    *,
    contract: str,
    release: str,
    chunks: Sequence[str],
    grants: Sequence[str],
    now: int,
    attributes: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Check, decrypt, count and estimate; ``party`` has the researcher's keys (section 11)."""
    study = check_study(contract, release, chunks)
    researcher = party_id(party)
    named = study.contract["researchers"]
    require(named is None or researcher in map(party_id, named), "no researcher of the study")
    pads: dict[str, Pads] = {}
    for grant in grants:
        key = bytes.fromhex(party["sealing_secret"])
        opened = open_grant(study, grant, researcher, key, now)
        different([*pads, *opened])
        pads |= opened
    wanted = [name for name in study.sizes if name in pads] if attributes is None else attributes
    require(bool(wanted) and all(name in pads for name in wanted), "nothing is granted")
    codes = {name: _decrypt(study, name, pads[name]) for name in wanted}
    counts = _count([study.sizes[name] for name in wanted], list(codes.values()))
    estimate = _estimate(study, counts)
    return {"codes": codes, "counts": counts, "estimate": estimate}


def _decrypt(study: Study, name: str, pads: Pads) -> list[int]:
    owner = next(
        curator
        for curator in study.contract["curators"]
        if name in [attribute["name"] for attribute in curator["attributes"]]
    )
    size, rows = study.sizes[name], study.positions(party_id(owner))
    return [(c - p) % size for c, p in zip(study.column(name), pads(rows), strict=True)]


def _count(sizes: Sequence[int], columns: Sequence[Sequence[int]]) -> list[int]:
    """Count joint cells: mixed radix, the first attribute most significant (section 9)."""
    found: Counter[int] = Counter()
    for row in zip(*columns, strict=True):
        cell = 0
        for size, code in zip(sizes, row, strict=True):
            cell = cell * size + code
        found[cell] += 1
    return [found[cell] for cell in range(math.prod(sizes))]


def _estimate(study: Study, counts: Sequence[int]) -> list[Fraction]:
    """Estimate shares, or with decoys how many respondents are in each cell (section 11)."""
    keep, rows, cells = study.release["keep_threshold"], sum(counts), len(counts)
    p = Fraction(1) if keep is None else Fraction(int(keep), 2**64)
    kept = [(count - (1 - p) * Fraction(rows, cells)) / p for count in counts]
    agreed = study.contract["mechanism"]
    if agreed["name"] == "paper":
        return [number / rows for number in kept]
    decoys = moments(agreed["decoys"])[0] * Fraction(study.release["cells"], cells)
    coin = Fraction(int(agreed["coin_threshold"]), 2**64)
    return [(number - decoys) / coin for number in kept]
