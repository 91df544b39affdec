"""What curators sign before anything is uploaded (spec 2, 4, 5 and 12.1).

Public identities, the terms that every agreement has, the contract of a study, and the vault under
which tables are stored for many studies.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

from veiltab.core import hashing
from veiltab.core.mechanism import LinkageMode
from veiltab.core.overlap import OverlapPlan
from veiltab.core.parameters import (
    MAX_DOMAIN_SIZE,
    check_domain_size,
    check_sample_size,
)
from veiltab.core.plan import DECOYS, Plan
from veiltab.core.schema import MAX_CATEGORIES, Attribute, Schema, table_schema
from veiltab.errors import MismatchError
from veiltab.wire.codec import (
    MAX_INTEGER,
    TEXT,
    Codec,
    Part,
    choice,
    describe,
    exact_fields,
    hexadecimal,
    input_errors_at,
    integer,
    items,
    join,
    malformed,
    message,
    nested,
    optional,
    part,
    wired,
)
from veiltab.wire.mechanism import (
    ACCOUNTING,
    DELTA,
    EPSILON,
    MAX_ROWS,
    MECHANISM,
    Accounting,
    CoinTerms,
    DecoyTerms,
    MechanismTerms,
    OverlapTerms,
    PaperTerms,
)
from veiltab.wire.signed import KEY_BYTES, SignedMessage

PadMode = Literal["stream", "one-time"]
LinkageBy = Literal["ids", "rows"]
Normalisation = Literal["nfc", "trim", "lowercase"]

MAX_CURATORS = 100
MAX_RESEARCHERS = 100
MAX_ATTRIBUTES = 1_000
"""Attributes of one curator."""

NONCE_BYTES = 16

PARTY_ID = hexadecimal(32)
"""The codec of a party id."""

DIGEST = hexadecimal(32)
"""The codec of a digest, a commitment, a study id or a vault id."""

PADS: Codec[PadMode] = choice("stream", "one-time")
ROWS = integer(0, MAX_ROWS)
"""Rows of an upload or a release; with decoys there may be none at all."""

POPULATION = integer(1, MAX_INTEGER)
LINKAGE_MODE: Codec[LinkageMode] = choice("aligned", "matched")
_CATEGORIES = items(TEXT, least=1, most=MAX_CATEGORIES)
_BY: Codec[LinkageBy] = choice("ids", "rows")
_COLUMNS = integer(1, MAX_INTEGER)
_NORMALISATION: Codec[tuple[Normalisation, ...]] = items(choice("nfc", "trim", "lowercase"))


def _read_attribute(value: object, path: str) -> Attribute:
    members = exact_fields(value, ("categories", "name"), path)
    name = TEXT.read(members["name"], join(path, "name"))
    categories = _CATEGORIES.read(members["categories"], join(path, "categories"))
    with input_errors_at(path):
        return Attribute(name, categories)


def _write_attribute(attribute: Attribute, path: str) -> dict[str, Any]:
    return {
        "name": TEXT.write(attribute.name, join(path, "name")),
        "categories": _CATEGORIES.write(attribute.categories, join(path, "categories")),
    }


_ATTRIBUTES = items(Codec(_read_attribute, _write_attribute), most=MAX_ATTRIBUTES)


@part
class PublicIdentity(Part):
    """A party's name and its two public keys; the name is for people and proves nothing."""

    name: str = wired(TEXT)
    signing_key: bytes = wired(hexadecimal(KEY_BYTES))
    sealing_key: bytes = wired(hexadecimal(hashing.SEALING_PUBLIC_BYTES))

    @property
    def party_id(self) -> bytes:
        """The hash of both keys, by which messages refer to the party (spec 2)."""
        return hashing.party_id(self.signing_key, self.sealing_key)


@part
class CuratorTerms(Part):
    """A curator and the attributes that it contributes, in order (spec 4).

    In JSON the attributes stand beside the fields of the identity.
    """

    identity: PublicIdentity
    attributes: tuple[Attribute, ...]

    @property
    def party_id(self) -> bytes:
        """The curator's party id."""
        return self.identity.party_id

    @property
    def schema(self) -> Schema:
        """The curator's part of the joint table; in an overlap count it has none."""
        return table_schema(self.attributes)

    def to_json(self, path: str = "") -> dict[str, Any]:
        """Return the terms as JSON values."""
        attributes = _ATTRIBUTES.write(self.attributes, join(path, "attributes"))
        return {"attributes": attributes, **self.identity.to_json(path)}

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """Read the terms from JSON values."""
        if not isinstance(value, dict):
            raise malformed(path, f"must be an object, not {describe(value)}")
        if "attributes" not in value:
            raise malformed(join(path, "attributes"), "is missing")
        others = {key: item for key, item in value.items() if key != "attributes"}
        identity = PublicIdentity.from_json(others, path)
        return cls(identity, _ATTRIBUTES.read(value["attributes"], join(path, "attributes")))


@part
class Linkage(Part):
    """How the curators' rows belong together: by ids, or row by row (spec 5).

    "aligned": all curators hold the same respondents, and compare digests of them; "matched": the
    server matches the respondents whom all curators hold, by tokens.
    """

    by: LinkageBy
    columns: int | None
    normalisation: tuple[Normalisation, ...]
    mode: LinkageMode = "aligned"

    @classmethod
    def by_ids(
        cls,
        columns: int = 1,
        normalisation: Iterable[Normalisation] = (),
        mode: LinkageMode = "aligned",
    ) -> Self:
        """Match rows with the same ids: ``columns`` texts, normalised by rules in this order."""
        return cls("ids", columns, tuple(normalisation), mode)

    @classmethod
    def by_rows(cls, mode: LinkageMode = "aligned") -> Self:
        """Match the first row with the first row, and so on."""
        return cls("rows", None, (), mode)

    def to_json(self, path: str = "") -> dict[str, Any]:
        """Return the linkage as JSON values."""
        by = _BY.write(self.by, join(path, "by"))
        mode = LINKAGE_MODE.write(self.mode, join(path, "mode"))
        if self.columns is None and by == "rows" and not self.normalisation:
            return {"by": by, "mode": mode}
        if self.columns is None or by == "rows":
            raise malformed(join(path, "columns"), "go with linkage by ids alone")
        return {
            "by": by,
            "columns": _COLUMNS.write(self.columns, join(path, "columns")),
            "mode": mode,
            "normalisation": _NORMALISATION.write(self.normalisation, join(path, "normalisation")),
        }

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """Read either form from JSON values."""
        # "by" first: it decides which other fields there are.
        by = _BY.read(value.get("by"), join(path, "by")) if isinstance(value, dict) else "ids"
        others = () if by == "rows" else ("columns", "normalisation")
        members = exact_fields(value, ("by", "mode", *others), path)
        mode = LINKAGE_MODE.read(members["mode"], join(path, "mode"))
        if by == "rows":
            return cls.by_rows(mode)
        return cls.by_ids(
            _COLUMNS.read(members["columns"], join(path, "columns")),
            _NORMALISATION.read(members["normalisation"], join(path, "normalisation")),
            mode,
        )


@message
class Agreement(SignedMessage):
    """The fields, checks and look-ups that a contract and a vault share (spec 4 and 12.1)."""

    cosigned: ClassVar[bool] = True
    label: ClassVar[str]

    title: str = wired(TEXT)
    nonce: bytes = wired(hexadecimal(NONCE_BYTES))
    curators: tuple[CuratorTerms, ...] = wired(
        items(nested(CuratorTerms), least=1, most=MAX_CURATORS)
    )
    server: PublicIdentity = wired(nested(PublicIdentity))
    linkage: Linkage = wired(nested(Linkage))
    secret_commitment: bytes = wired(DIGEST)

    @property
    def scope(self) -> bytes:
        """The study id or the vault id, to which keys and uploads are bound (spec 1)."""
        return hashing.labelled_hash(self.label, self.canonical())

    @property
    def schema(self) -> Schema:
        """The joint table's schema: the attributes of all curators, in order (spec 4)."""
        return table_schema([a for terms in self.curators for a in terms.attributes])

    @property
    def matched(self) -> bool:
        """Whether the server matches the respondents, instead of the curators holding the same."""
        return self.linkage.mode == "matched"

    def parties(self) -> Iterator[tuple[str, PublicIdentity]]:
        """Yield everybody whom the document names, with the place where it does."""
        for position, terms in enumerate(self.curators):
            yield f"curators[{position}]", terms.identity
        yield "server", self.server

    def curator(self, party_id: bytes) -> CuratorTerms:
        """Return the terms of one curator; refuse anybody else."""
        for terms in self.curators:
            if terms.party_id == party_id:
                return terms
        raise MismatchError(
            f"{party_id.hex()} is not a curator of {self.title!r}",
            hint="compare the party id with the signed document's curators",
        )

    def schema_of(self, party_id: bytes) -> Schema:
        """Return the attributes of one curator, in the order of its uploads."""
        return self.curator(party_id).schema

    def check(self) -> None:
        """Refuse equal parties, equal attribute names, and N outside 2 to 2⁴⁸ (spec 4)."""
        self._check_parties()
        self._check_attributes()

    def _check_parties(self) -> None:
        seen: dict[bytes, str] = {}
        for path, party in self.parties():
            # By the signing key: with one key for two parties, one signature would be both's.
            first = seen.setdefault(party.signing_key, path)
            if first != path:
                raise malformed(path, f"is the same party as {first}")

    def _check_attributes(self) -> None:
        cells = 1
        for position, terms in enumerate(self.curators):
            if not terms.attributes:
                raise malformed(f"curators[{position}].attributes", "must have at least 1 item")
            for attribute in terms.attributes:
                cells *= attribute.size
                if cells > MAX_DOMAIN_SIZE:  # at once: the product of a million sizes takes long
                    raise malformed("curators", "their attributes have more than 2^48 joint cells")
        with input_errors_at("curators"):
            check_domain_size(cells)
            self.schema  # noqa: B018 - refuses equal attribute names


@part
class Stored(Part):
    """The vault and the uploads, in the order of the curators, that a study reads (spec 12)."""

    vault: bytes = wired(DIGEST)
    uploads: tuple[bytes, ...] = wired(items(DIGEST))


@message
class Contract(Agreement):
    """The terms of one study."""

    kind: ClassVar[str] = "contract"
    label: ClassVar[str] = "study"

    researchers: tuple[PublicIdentity, ...] | None = wired(
        optional(items(nested(PublicIdentity), most=MAX_RESEARCHERS))
    )
    epsilon: float = wired(EPSILON)
    delta: float = wired(DELTA)
    accounting: Accounting = wired(ACCOUNTING)
    mechanism: MechanismTerms = wired(MECHANISM)
    population: int | None = wired(optional(POPULATION))
    pads: PadMode = wired(PADS)
    stored: Stored | None = wired(optional(nested(Stored)))

    @property
    def study_id(self) -> bytes:
        """The id to which everything in the study is bound (spec 4)."""
        return self.scope

    def parties(self) -> Iterator[tuple[str, PublicIdentity]]:
        """Yield everybody whom the contract names, with the place where it does."""
        yield from Agreement.parties(self)
        for position, researcher in enumerate(self.researchers or ()):
            yield f"researchers[{position}]", researcher

    def check(self) -> None:
        """Refuse terms that contradict each other, and a promise that is not kept (spec 4)."""
        self._check_parties()
        if self.overlap is None:
            self._check_attributes()
        expected = self.mechanism.accounting(self.delta)
        if self.accounting != expected:
            raise malformed(
                "accounting",
                f"must be {expected!r} for the mechanism {self.mechanism.name!r} and a delta of"
                f" {self.delta:g}",
            )
        if isinstance(self.mechanism, PaperTerms):
            self._check_sample_size(self.mechanism.sample_size)
        elif self.overlap is not None:
            self._check_overlap()
        else:
            with input_errors_at("mechanism"):
                self.decoy_plan  # noqa: B018 - cannot be built if it breaks its promise
        if self.stored is not None:
            self._check_stored(self.stored)

    @property
    def decoys(self) -> DecoyTerms | None:
        """The terms of a study of values with decoys, or None for any other mechanism."""
        return self.mechanism if isinstance(self.mechanism, DecoyTerms) else None

    @property
    def overlap(self) -> OverlapTerms | None:
        """The terms of an overlap count, which is about nobody's values; else None."""
        return self.mechanism if isinstance(self.mechanism, OverlapTerms) else None

    @property
    def coin_terms(self) -> CoinTerms | None:
        """The terms of whatever has a coin for each respondent and decoys; None by rank."""
        return self.decoys or self.overlap

    @property
    def overlap_plan(self) -> OverlapPlan:
        """The plan of an overlap count: all its numbers are fixed by the contract alone."""
        if self.overlap is None:
            raise MismatchError(
                "the study is no overlap count", hint="ask for its plan, or for its release"
            )
        return self.overlap.plan(self.epsilon, len(self.curators))

    @property
    def decoy_plan(self) -> Plan:
        """The plan of a study with decoys: all its numbers are fixed by the contract alone."""
        if self.decoys is None:
            raise MismatchError(
                "the study has no decoys", hint="its plan depends on the number of respondents"
            )
        return _decoy_plan(
            self.decoys,
            self.epsilon,
            self.delta,
            self.population,
            self.linkage.mode,
            tuple(terms.schema.domain_size for terms in self.curators),
        )

    def _check_overlap(self) -> None:
        """Refuse an overlap count that has values, or that could tell more than one number."""
        if not self.matched or self.linkage.by != "ids":
            raise malformed("linkage", "must be matched, by ids, for an overlap count")
        for position, terms in enumerate(self.curators):
            if terms.attributes:
                raise malformed(
                    f"curators[{position}].attributes", "must be empty for an overlap count"
                )
        if self.researchers != ():
            raise malformed("researchers", "must be an empty list: curators alone are told")
        if self.delta != 0:
            raise malformed("delta", "must be 0 for an overlap count")
        if self.population is not None or self.stored is not None or self.pads != "stream":
            raise malformed(
                "population, stored, pads", 'must be null, null and "stream" for an overlap count'
            )
        with input_errors_at("mechanism"):
            self.overlap_plan  # noqa: B018 - cannot be built if it breaks its promise

    def _check_sample_size(self, size: int | None) -> None:
        if size is not None and self.population is not None:
            with input_errors_at("mechanism.sample_size"):
                check_sample_size(size, self.population)

    def _check_stored(self, stored: Stored) -> None:
        if not self.matched:
            raise malformed("linkage.mode", "must be 'matched' for a study on stored tables")
        if self.decoys is not None:
            raise malformed(
                "mechanism",
                "stored tables have no decoys: a server that sees rows in many studies could tell"
                " which are decoys",
                hint="upload the tables for this study alone, or use the paper's mechanism",
            )
        if len(stored.uploads) != len(self.curators):
            raise malformed(
                "stored.uploads", f"must have one item per curator, {len(self.curators)}"
            )


@lru_cache(maxsize=64)
def _decoy_plan(  # noqa: PLR0917 - a cached function is called by position
    terms: DecoyTerms,
    epsilon: float,
    delta: float,
    population: int | None,
    mode: LinkageMode,
    curator_cells: tuple[int, ...],
) -> Plan:
    """Build the plan, which checks its promise exactly; that takes a while, so it is kept."""
    cells = 1
    for size in curator_cells:
        cells *= size
    return Plan(
        population_size=population,
        domain_size=cells,
        epsilon=epsilon,
        delta=delta,
        mechanism=terms.mechanism,
        accounting=DECOYS,
        linkage=mode,
        epsilon_public=terms.epsilon_public,
        curator_cells=curator_cells,
    )


@message
class Vault(Agreement):
    """The parties, attributes and linkage of stored tables, for no study in particular."""

    kind: ClassVar[str] = "vault"
    label: ClassVar[str] = "vault"

    def check(self) -> None:
        """Refuse what every agreement refuses, and tables that are not matched."""
        Agreement.check(self)
        if not self.matched:
            raise malformed("linkage.mode", "must be 'matched': stored tables are matched")

    @property
    def vault_id(self) -> bytes:
        """The id that takes the place of a study id in the stored uploads (spec 12.1)."""
        return self.scope
