"""What curators sign before anything is uploaded (spec 2, 4, 5 and 12.1).

Public identities, the terms that every agreement has, the contract of a study, and the vault under
which tables are stored for many studies.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, ClassVar, Final, Literal, Self

from veiltab.core import hashing
from veiltab.core.parameters import (
    MAX_DOMAIN_SIZE,
    check_delta,
    check_domain_size,
    check_epsilon,
    check_sample_size,
)
from veiltab.core.schema import MAX_CATEGORIES, Attribute, Schema
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
    number,
    optional,
    part,
    wired,
)
from veiltab.wire.signed import KEY_BYTES, SignedMessage

Sampler = Literal["curators", "server"]
PadMode = Literal["stream", "one-time"]
Accounting = Literal["pure-1", "shuffle-1"]
LinkageBy = Literal["ids", "rows"]
Normalisation = Literal["nfc", "trim", "lowercase"]

MAX_CURATORS = 1_000
MAX_ATTRIBUTES = 1_000
"""Attributes of one curator."""

MAX_ROWS = 2**48
"""Rows of an upload (spec 8)."""

NONCE_BYTES = 16

PARTY_ID = hexadecimal(32)
"""The codec of a party id."""

DIGEST = hexadecimal(32)
"""The codec of a digest, a commitment, a study id or a vault id."""

PADS: Codec[PadMode] = choice("stream", "one-time")
ROWS = integer(1, MAX_ROWS)
POPULATION = integer(1, MAX_INTEGER)
EPSILON = number(check_epsilon)
DELTA = number(check_delta)
PURE_1: Final = "pure-1"
"""A promise by Theorem 1 alone, for δ = 0."""

SHUFFLE_1: Final = "shuffle-1"
"""A promise by the privacy blanket, which counts on δ and on the secret order."""

ACCOUNTING: Codec[Accounting] = choice(PURE_1, SHUFFLE_1)
"""How a promise is computed: the name that plans have for it, and its version."""

SAMPLER: Codec[Sampler] = choice("curators", "server")
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


_ATTRIBUTES = items(Codec(_read_attribute, _write_attribute), least=1, most=MAX_ATTRIBUTES)


@part
class PublicIdentity(Part):
    """A party's name and its two public keys; the name is for people and proves nothing."""

    name: str = wired(TEXT)
    signing_key: bytes = wired(hexadecimal(KEY_BYTES))
    sealing_key: bytes = wired(hexadecimal(KEY_BYTES))

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
        """The curator's part of the joint table."""
        return Schema(self.attributes)

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
    """How the curators' rows are matched: by ids, or row by row (spec 5)."""

    by: LinkageBy
    columns: int | None
    normalisation: tuple[Normalisation, ...]

    @classmethod
    def by_ids(cls, columns: int = 1, normalisation: Iterable[Normalisation] = ()) -> Self:
        """Match rows with the same ids: ``columns`` texts, normalised by rules in this order."""
        return cls("ids", columns, tuple(normalisation))

    @classmethod
    def by_rows(cls) -> Self:
        """Match the first row with the first row, and so on."""
        return cls("rows", None, ())

    def to_json(self, path: str = "") -> dict[str, Any]:
        """Return the linkage as JSON values."""
        by = _BY.write(self.by, join(path, "by"))
        if self.columns is None and by == "rows" and not self.normalisation:
            return {"by": by}
        if self.columns is None or by == "rows":
            raise malformed(join(path, "columns"), "go with linkage by ids alone")
        return {
            "by": by,
            "columns": _COLUMNS.write(self.columns, join(path, "columns")),
            "normalisation": _NORMALISATION.write(self.normalisation, join(path, "normalisation")),
        }

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """Read either form from JSON values."""
        # "by" first: it decides which other fields there are.
        by = _BY.read(value.get("by"), join(path, "by")) if isinstance(value, dict) else "ids"
        others = () if by == "rows" else ("columns", "normalisation")
        members = exact_fields(value, ("by", *others), path)
        if by == "rows":
            return cls.by_rows()
        return cls.by_ids(
            _COLUMNS.read(members["columns"], join(path, "columns")),
            _NORMALISATION.read(members["normalisation"], join(path, "normalisation")),
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
        return Schema(chain.from_iterable(terms.attributes for terms in self.curators))

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
        seen: dict[bytes, str] = {}
        for path, party in self.parties():
            # By the signing key: with one key for two parties, one signature would be both's.
            first = seen.setdefault(party.signing_key, path)
            if first != path:
                raise malformed(path, f"is the same party as {first}")
        cells = 1
        for terms in self.curators:
            for attribute in terms.attributes:
                cells *= attribute.size
                if cells > MAX_DOMAIN_SIZE:  # at once: the product of a million sizes takes long
                    raise malformed("curators", "their attributes have more than 2^48 joint cells")
        with input_errors_at("curators"):
            check_domain_size(cells)
            self.schema  # noqa: B018 - refuses equal attribute names


def accounting_for(delta: float) -> Accounting:
    """Return the accounting that a contract with this δ states (spec 4)."""
    return PURE_1 if delta == 0 else SHUFFLE_1


def accounting_id(name: str, version: int) -> Accounting:
    """Return how messages write the accounting of a plan and its version (spec 4.1)."""
    return ACCOUNTING.read(f"{name}-{version}", "accounting")


def accounting_name(accounting: Accounting) -> str:
    """Return the name that plans have for the accounting that a message states."""
    return accounting.partition("-")[0]


@part
class Sampling(Part):
    """Who samples, and how many; no size stands for the best one (spec 4)."""

    by: Sampler = wired(SAMPLER)
    size: int | None = wired(optional(ROWS))


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

    researchers: tuple[PublicIdentity, ...] | None = wired(optional(items(nested(PublicIdentity))))
    epsilon: float = wired(EPSILON)
    delta: float = wired(DELTA)
    accounting: Accounting = wired(ACCOUNTING)
    sampling: Sampling = wired(nested(Sampling))
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
        """Refuse terms that contradict each other (spec 4)."""
        Agreement.check(self)
        expected = accounting_for(self.delta)
        if self.accounting != expected:
            raise malformed("accounting", f"must be {expected!r} for a delta of {self.delta:g}")
        if self.sampling.size is not None and self.population is not None:
            with input_errors_at("sampling.size"):
                check_sample_size(self.sampling.size, self.population)
        if self.stored is None:
            return
        if self.sampling.by != "server":
            raise malformed("sampling.by", "must be 'server' for a study on stored tables")
        if len(self.stored.uploads) != len(self.curators):
            raise malformed(
                "stored.uploads", f"must have one item per curator, {len(self.curators)}"
            )


@message
class Vault(Agreement):
    """The parties, attributes and linkage of stored tables, for no study in particular."""

    kind: ClassVar[str] = "vault"
    label: ClassVar[str] = "vault"

    @property
    def vault_id(self) -> bytes:
        """The id that takes the place of a study id in the stored uploads (spec 12.1)."""
        return self.scope
