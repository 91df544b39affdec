"""An estimate as a file: canonical JSON with a format version, and the counts packed."""

import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veiltab.core.channel import MAX_ESTIMATED_CELLS
from veiltab.core.mechanism import LinkageMode
from veiltab.core.parameters import MAX_DOMAIN_SIZE, MAX_POPULATION_SIZE
from veiltab.core.plan import Plan
from veiltab.core.released import ReleasedCounts
from veiltab.core.schema import MAX_CATEGORIES, Attribute, Schema
from veiltab.errors import InputError, MalformedError, VersionError
from veiltab.files.disk import FILE_MODE, check_new, write_output
from veiltab.inference.provenance import Promise, Provenance
from veiltab.wire import codec
from veiltab.wire.codec import (
    BASE64,
    TEXT,
    Codec,
    Part,
    input_errors_at,
    integer,
    items,
    malformed,
    message,
    nested,
    number,
    optional,
    wired,
)
from veiltab.wire.contract import LINKAGE_MODE, PADS, PadMode
from veiltab.wire.mechanism import (
    ACCOUNTING,
    DELTA,
    EPSILON,
    Accounting,
    accounting_id,
    accounting_name,
)

FORMAT, VERSION = "veiltab estimate", 1
WIDTHS = (1, 2, 4, 8)
"""Bytes per count: the fewest that hold the largest count, little-endian, then deflated."""

OPTIONAL = "parties"
"""The one field that a file may lack: files without it were written before it was added."""

_DIGITS = re.compile("[1-9][0-9]{0,19}")
"""A whole number below 10²⁰, which holds any keep threshold."""

_HINT = "give a file that Estimate.save wrote"


def save(released: ReleasedCounts, origin: Provenance, path: Path) -> None:
    """Write counts, plan and provenance to a new file, as a whole or not at all."""
    check_new(path)
    plan = released.plan
    stored = _Stored(
        accounting=accounting_id(plan.accounting, plan.accounting_version),
        attributes=tuple(
            _Attribute(name=a.name, categories=a.categories) for a in released.schema.attributes
        ),
        counts=_pack(released.counts),
        delta=plan.delta,
        domain_size=plan.domain_size,
        epsilon=plan.epsilon,
        format=FORMAT,
        keep_threshold=str(plan.keep_threshold),
        parties=_parties(origin, released.schema.names),
        perturbed_by=origin.perturbed_by,
        population_size=plan.ranked.population_size,
        promises=tuple(
            _Promise(against=p.against, delta=p.delta, epsilon=p.epsilon) for p in origin.promises
        ),
        sample_size=plan.ranked.sample_size,
        study=origin.study,
        title=origin.title,
        version=VERSION,
    )
    fields = stored.to_json()
    if stored.parties is None:
        del fields[OPTIONAL]
    write_output(path, codec.dump(fields), FILE_MODE)


def load(path: Path) -> tuple[ReleasedCounts, Provenance]:
    """Read a file that :func:`save` wrote, and refuse everything else."""
    try:
        with path.open("rb") as file:
            data = file.read(codec.MAX_MESSAGE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="check the path") from error
    try:
        fields = codec.load(data)
        _check_kind(fields, path)
        stored = _Stored.from_json({OPTIONAL: None} | fields)
        return _released(stored), _provenance(stored)
    except MalformedError as error:
        raise MalformedError(
            f"{path} is not a saved estimate: {error.message}", hint=_HINT
        ) from error


def _check_kind(fields: dict[str, object], path: Path) -> None:
    if fields.get("format") != FORMAT:
        raise MalformedError("it does not say that it is one", hint=_HINT)
    if fields.get("version") != VERSION:
        raise VersionError(
            f"{path} has version {fields.get('version')!r} of the format, not {VERSION}",
            hint="read it with the version of veiltab that wrote it, or a newer one",
        )


def _parties(origin: Provenance, names: Sequence[str]) -> "_Parties | None":
    """Return who took part, or None if nothing is known."""
    parties = _Parties(
        holders=tuple(
            _Holder(attribute=attribute, curator=curator)
            for attribute, curator in sorted(origin.holders.items())
            if attribute in names  # a marginal says nothing of the attributes that it leaves out
        ),
        pads=origin.pads,
        researcher=origin.researcher,
        linkage=origin.linkage,
    )
    return None if parties == _NOBODY else parties


def _released(stored: "_Stored") -> ReleasedCounts:
    with input_errors_at("attributes"):
        schema = Schema(Attribute(a.name, a.categories) for a in stored.attributes)
    if schema.domain_size > MAX_ESTIMATED_CELLS:
        raise malformed("attributes", f"have more than {MAX_ESTIMATED_CELLS:,} joint cells")
    with input_errors_at("the plan"):
        plan = Plan.by_rank(
            population_size=stored.population_size,
            domain_size=stored.domain_size,
            epsilon=float(stored.epsilon),
            delta=float(stored.delta),
            sample_size=stored.sample_size,
            keep_threshold=int(stored.keep_threshold),
            accounting=accounting_name(stored.accounting),
        )
    counts = _unpack(stored.counts, schema.domain_size)
    with input_errors_at("counts"):
        return ReleasedCounts(schema, counts, plan)


def _provenance(stored: "_Stored") -> Provenance:
    parties = stored.parties or _NOBODY
    promises = (Promise(p.against, float(p.epsilon), float(p.delta)) for p in stored.promises)
    return Provenance(
        study=stored.study,
        title=stored.title,
        perturbed_by=stored.perturbed_by,
        promises=tuple(promises),
        researcher=parties.researcher,
        holders={holder.attribute: holder.curator for holder in parties.holders},
        linkage=parties.linkage,
        pads=parties.pads,
    )


def _pack(counts: NDArray[np.int64]) -> "_Packed":
    largest = int(counts.max())
    width = next(width for width in WIDTHS if largest < 1 << (8 * width))
    return _Packed(data=zlib.compress(counts.astype(f"<u{width}").tobytes()), width=width)


def _unpack(packed: "_Packed", cells: int) -> NDArray[np.int64]:
    expected = cells * packed.width
    inflater = zlib.decompressobj()
    try:  # bounded, because a few bytes could inflate to gigabytes
        raw = inflater.decompress(packed.data, expected + 1)
    except zlib.error as error:
        raise malformed("counts.data", "is not deflated data") from error
    if len(raw) != expected or not inflater.eof or inflater.unused_data:
        raise malformed("counts.data", f"must hold {cells:,} counts of {packed.width} bytes")
    counts = np.frombuffer(raw, dtype=f"<u{packed.width}")
    if int(counts.max()) > codec.MAX_INTEGER:
        raise malformed("counts.data", "has a count of 2^53 or more")
    return counts.astype(np.int64)


def _check_loss(value: float) -> None:
    if not value >= 0:
        raise InputError(f"a privacy loss is not negative, but this one is {value}", hint=_HINT)


def _digits(value: object, path: str) -> str:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return value
    raise malformed(path, "must be a whole number, written as text")


def _check_width(value: object, path: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value in WIDTHS:
        return value
    raise malformed(path, f"must be one of {', '.join(map(str, WIDTHS))}")


_WIDTH = Codec(_check_width, _check_width)
_LOSS = number(_check_loss)
_THRESHOLD = Codec(_digits, _digits)


@message
class _Attribute(Part):
    name: str = wired(TEXT)
    categories: tuple[str, ...] = wired(items(TEXT, least=1, most=MAX_CATEGORIES))


@message
class _Packed(Part):
    data: bytes = wired(BASE64)
    width: int = wired(_WIDTH)


@message
class _Promise(Part):
    against: str = wired(TEXT)
    delta: float = wired(_LOSS)
    epsilon: float = wired(_LOSS)


@message
class _Holder(Part):
    attribute: str = wired(TEXT)
    curator: str = wired(TEXT)


@message
class _Parties(Part):
    holders: tuple[_Holder, ...] = wired(items(nested(_Holder)))
    pads: PadMode | None = wired(optional(PADS))
    researcher: str | None = wired(optional(TEXT))
    linkage: LinkageMode | None = wired(optional(LINKAGE_MODE))


_NOBODY = _Parties(holders=(), pads=None, researcher=None, linkage=None)


@message
class _Stored(Part):
    accounting: Accounting = wired(ACCOUNTING)
    attributes: tuple[_Attribute, ...] = wired(items(nested(_Attribute), least=1))
    counts: _Packed = wired(nested(_Packed))
    delta: float = wired(DELTA)
    domain_size: int = wired(integer(1, MAX_DOMAIN_SIZE))
    epsilon: float = wired(EPSILON)
    format: str = wired(TEXT)
    keep_threshold: str = wired(_THRESHOLD)
    parties: _Parties | None = wired(optional(nested(_Parties)))
    perturbed_by: str | None = wired(optional(TEXT))
    population_size: int = wired(integer(1, MAX_POPULATION_SIZE))
    promises: tuple[_Promise, ...] = wired(items(nested(_Promise)))
    sample_size: int = wired(integer(1, MAX_POPULATION_SIZE))
    study: str | None = wired(optional(TEXT))
    title: str | None = wired(optional(TEXT))
    version: int = wired(integer(1, codec.MAX_INTEGER))
