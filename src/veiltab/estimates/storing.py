"""An estimate as a file: canonical JSON with a format version, and the counts packed."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from veiltab.core.channel import MAX_ESTIMATED_CELLS
from veiltab.core.mechanism import LinkageMode, Mechanism, Rank
from veiltab.core.parameters import MAX_DOMAIN_SIZE, MAX_POPULATION_SIZE
from veiltab.core.plan import Plan
from veiltab.core.publication import PublicationNoise
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
    choice,
    input_errors_at,
    integer,
    items,
    join,
    malformed,
    message,
    nested,
    number,
    optional,
    part,
    wired,
)
from veiltab.wire.contract import LINKAGE_MODE, MAX_CURATORS, PADS, PadMode
from veiltab.wire.mechanism import (
    ACCOUNTING,
    DELTA,
    EPSILON,
    SAMPLE_SIZE,
    THRESHOLD,
    Accounting,
    DecoyTerms,
    accounting_id,
    accounting_name,
)

FORMAT, VERSION = "veiltab estimate", 2
WIDTHS = (1, 2, 4, 8)
"""Bytes per count: the fewest that hold all counts, little-endian, then deflated.

Counts of a published copy are signed.
"""

_HINT = "give the file that an estimate was saved to"


def save(released: ReleasedCounts, origin: Provenance, path: Path) -> None:
    """Write counts, plan and provenance to a new file, as a whole or not at all."""
    check_new(path)
    write_output(path, dumps(released, origin), FILE_MODE)


def dumps(released: ReleasedCounts, origin: Provenance) -> bytes:
    """Return the content of such a file."""
    plan, noise = released.plan, released.publication
    stored = _Stored(
        accounting=accounting_id(plan.accounting, plan.accounting_version),
        attributes=tuple(
            _Attribute(name=a.name, categories=a.categories) for a in released.schema.attributes
        ),
        counts=_pack(released.counts, signed=noise is not None),
        curator_cells=plan.curator_cells,
        delta=plan.delta,
        domain_size=plan.domain_size,
        epsilon=plan.epsilon,
        format=FORMAT,
        linkage=plan.linkage,
        mechanism=_terms(plan),
        parties=_parties(origin, released.schema.names),
        perturbed_by=origin.perturbed_by,
        population_size=plan.population_size,
        promises=tuple(
            _Promise(against=p.against, delta=p.delta, epsilon=p.epsilon) for p in origin.promises
        ),
        published=None if noise is None else _Noise(noise.cells, noise.epsilon, noise.threshold),
        study=origin.study,
        title=origin.title,
        version=VERSION,
    )
    return codec.dump(stored.to_json())


def load(path: Path) -> tuple[ReleasedCounts, Provenance]:
    """Read a file that :func:`save` wrote, and refuse everything else."""
    try:
        with path.open("rb") as file:
            data = file.read(codec.MAX_MESSAGE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="check the path") from error
    return loads(data, str(path))


def loads(data: bytes, name: str) -> tuple[ReleasedCounts, Provenance]:
    """Read what :func:`dumps` wrote; ``name`` is how errors call it."""
    try:
        fields = codec.load(data)
        _check_kind(fields, name)
        stored = _Stored.from_json(fields)
        return _released(stored), _provenance(stored)
    except MalformedError as error:
        raise MalformedError(
            f"{name} is not a saved estimate: {error.message}", hint=_HINT
        ) from error


def _check_kind(fields: dict[str, object], name: str) -> None:
    if fields.get("format") != FORMAT:
        raise MalformedError("it does not say that it is one", hint=_HINT)
    if fields.get("version") != VERSION:
        raise VersionError(
            f"{name} has version {fields.get('version')!r} of the format, not {VERSION}",
            hint="read it with the version of veiltab that wrote it",
        )


def _terms(plan: Plan) -> "_RankTerms | DecoyTerms":
    coin, law = plan.mechanism.coin, plan.mechanism.decoys
    if coin is None or law is None:
        ranked = plan.ranked
        return _RankTerms(plan.epsilon_public, ranked.keep_threshold, ranked.sample_size)
    return DecoyTerms(coin.threshold, law, plan.epsilon_public, plan.keep_threshold)


def _parties(origin: Provenance, names: Sequence[str]) -> "_Parties":
    return _Parties(
        holders=tuple(
            _Holder(attribute=attribute, curator=curator)
            for attribute, curator in sorted(origin.holders.items())
            if attribute in names  # a marginal says nothing of the attributes that it leaves out
        ),
        linkage=origin.linkage,
        pads=origin.pads,
        researcher=origin.researcher,
    )


def _released(stored: "_Stored") -> ReleasedCounts:
    with input_errors_at("attributes"):
        schema = Schema(Attribute(a.name, a.categories) for a in stored.attributes)
    if schema.domain_size > MAX_ESTIMATED_CELLS:
        raise malformed("attributes", f"have more than {MAX_ESTIMATED_CELLS:,} joint cells")
    with input_errors_at("the plan"):
        plan = Plan(
            population_size=stored.population_size,
            domain_size=stored.domain_size,
            epsilon=float(stored.epsilon),
            delta=float(stored.delta),
            mechanism=stored.mechanism.mechanism,
            accounting=accounting_name(stored.accounting),
            linkage=stored.linkage,
            epsilon_public=float(stored.mechanism.epsilon_public),
            curator_cells=stored.curator_cells,
        )
    noise = None
    if stored.published is not None:
        with input_errors_at("published"):
            part = stored.published
            noise = PublicationNoise(float(part.epsilon), part.threshold, part.cells)
    counts = _unpack(stored.counts, schema.domain_size, signed=noise is not None)
    with input_errors_at("counts"):
        return ReleasedCounts(schema, counts, plan, noise)


def _provenance(stored: "_Stored") -> Provenance:
    parties = stored.parties
    promises = (
        Promise(p.against, None if p.epsilon is None else float(p.epsilon), float(p.delta))
        for p in stored.promises
    )
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


def _pack(counts: NDArray[np.int64], *, signed: bool) -> "_Packed":
    width = next(w for w in WIDTHS if _fits(counts, w, signed=signed))
    packed = counts.astype(_number_type(width, signed=signed))
    return _Packed(data=zlib.compress(packed.tobytes()), width=width)


def _fits(counts: NDArray[np.int64], width: int, *, signed: bool) -> bool:
    limits = np.iinfo(_number_type(width, signed=signed))
    return limits.min <= int(counts.min()) and int(counts.max()) <= limits.max


def _number_type(width: int, *, signed: bool) -> np.dtype[Any]:
    return np.dtype(f"<{'i' if signed else 'u'}{width}")


def _unpack(packed: "_Packed", cells: int, *, signed: bool) -> NDArray[np.int64]:
    expected = cells * packed.width
    inflater = zlib.decompressobj()
    try:  # bounded, because a few bytes could inflate to gigabytes
        raw = inflater.decompress(packed.data, expected + 1)
    except zlib.error as error:
        raise malformed("counts.data", "is not deflated data") from error
    if len(raw) != expected or not inflater.eof or inflater.unused_data:
        raise malformed("counts.data", f"must hold {cells:,} counts of {packed.width} bytes")
    counts = np.frombuffer(raw, dtype=_number_type(packed.width, signed=signed))
    if max(int(counts.max()), -int(counts.min())) > codec.MAX_INTEGER:
        raise malformed("counts.data", "has a count of 2^53 or more")
    return counts.astype(np.int64)


def _check_loss(value: float) -> None:
    if not value >= 0:
        raise InputError(f"a privacy loss is not negative, but this one is {value}", hint=_HINT)


def _check_width(value: object, path: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value in WIDTHS:
        return value
    raise malformed(path, f"must be one of {', '.join(map(str, WIDTHS))}")


_WIDTH = Codec(_check_width, _check_width)
_LOSS = number(_check_loss)
_CELLS = integer(1, MAX_DOMAIN_SIZE)


@part
class _RankTerms(Part):
    """A sample by rank and a channel."""

    name: ClassVar[str] = "paper"

    epsilon_public: float = wired(EPSILON)
    keep_threshold: int = wired(THRESHOLD)
    sample_size: int = wired(SAMPLE_SIZE)

    @property
    def mechanism(self) -> Mechanism:
        """The same as data for the mathematics."""
        return Mechanism(Rank(self.sample_size), None, self.keep_threshold)


def _read_terms(value: object, path: str) -> _RankTerms | DecoyTerms:
    fields = dict(value) if isinstance(value, dict) else {}
    name = choice("paper", "decoys").read(fields.pop("name", None), join(path, "name"))
    terms: type[_RankTerms | DecoyTerms] = _RankTerms if name == "paper" else DecoyTerms
    return terms.from_json(fields, path)


def _write_terms(terms: _RankTerms | DecoyTerms, path: str) -> dict[str, Any]:
    return {"name": terms.name, **terms.to_json(path)}


@message
class _Attribute(Part):
    name: str = wired(TEXT)
    categories: tuple[str, ...] = wired(items(TEXT, least=1, most=MAX_CATEGORIES))


@message
class _Packed(Part):
    data: bytes = wired(BASE64)
    width: int = wired(_WIDTH)


@part
class _Noise(Part):
    cells: int = wired(_CELLS)
    epsilon: float = wired(EPSILON)
    threshold: int = wired(THRESHOLD)


@message
class _Promise(Part):
    against: str = wired(TEXT)
    delta: float = wired(_LOSS)
    epsilon: float | None = wired(optional(_LOSS))


@message
class _Holder(Part):
    attribute: str = wired(TEXT)
    curator: str = wired(TEXT)


@message
class _Parties(Part):
    holders: tuple[_Holder, ...] = wired(items(nested(_Holder)))
    linkage: LinkageMode | None = wired(optional(LINKAGE_MODE))
    pads: PadMode | None = wired(optional(PADS))
    researcher: str | None = wired(optional(TEXT))


@message
class _Stored(Part):
    accounting: Accounting = wired(ACCOUNTING)
    attributes: tuple[_Attribute, ...] = wired(items(nested(_Attribute), least=1))
    counts: _Packed = wired(nested(_Packed))
    curator_cells: tuple[int, ...] | None = wired(
        optional(items(_CELLS, least=1, most=MAX_CURATORS))
    )
    delta: float = wired(DELTA)
    domain_size: int = wired(_CELLS)
    epsilon: float = wired(EPSILON)
    format: str = wired(TEXT)
    linkage: LinkageMode = wired(LINKAGE_MODE)
    mechanism: _RankTerms | DecoyTerms = wired(Codec(_read_terms, _write_terms))
    parties: _Parties = wired(nested(_Parties))
    perturbed_by: str | None = wired(optional(TEXT))
    population_size: int | None = wired(optional(integer(1, MAX_POPULATION_SIZE)))
    promises: tuple[_Promise, ...] = wired(items(nested(_Promise)))
    published: _Noise | None = wired(optional(nested(_Noise)))
    study: str | None = wired(optional(TEXT))
    title: str | None = wired(optional(TEXT))
    version: int = wired(integer(1, codec.MAX_INTEGER))
