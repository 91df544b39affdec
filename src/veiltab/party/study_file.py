"""Study files: what a study is to be, in TOML that people write and read.

A study file becomes a contract when the proposer adds the server, a nonce and the commitment to a
secret.  ``example.toml`` beside this module explains every key.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from veiltab.core.schema import MAX_CATEGORIES, Attribute
from veiltab.errors import InputError, MalformedError, StudyFileError
from veiltab.files.toml import Document, TomlTable, read_bytes
from veiltab.wire.codec import MAX_INTEGER, TEXT, Codec, choice, describe, integer, items, malformed
from veiltab.wire.contract import (
    LINKAGE_MODE,
    NONCE_BYTES,
    PADS,
    POPULATION,
    Contract,
    CuratorTerms,
    Linkage,
    LinkageBy,
    Normalisation,
    PadMode,
    PublicIdentity,
)
from veiltab.wire.mechanism import DELTA, EPSILON, SAMPLE_SIZE, MechanismTerms, PaperTerms

ME = "me"
OPTIMAL = "optimal"

STUDY_KEYS = {
    "title": 'write a text for people, such as title = "Smoking and income"',
    "epsilon": "write the promised privacy, such as epsilon = 1.0",
    "delta": "leave it out for the strictest promise, or write a small number such as 1e-6",
    "population": "write how many respondents there are at least, such as population = 10000",
    "pads": 'write pads = "stream" or pads = "one-time"',
    "sample_size": f'leave it out, or write sample_size = "{OPTIMAL}" or a whole number',
    "linkage": 'write a table with by = "ids" or by = "rows"',
    "curators": "write a [[curators]] table for each curator",
    "researchers": "write a [[researchers]] table for each one; leave all out to let the curators"
    " grant access to whom they like",
}
LINKAGE_KEYS = {
    "by": 'write by = "ids" or by = "rows"',
    "mode": 'write mode = "aligned" if all curators hold the same respondents, else "matched"',
    "columns": "write how many columns make up an id, such as columns = 1",
    "normalisation": 'choose from "nfc", "trim", "lowercase", as in normalisation = ["trim"]',
}
CURATOR_KEYS = {
    "identity": f'write identity = "{ME}", or the path of a file with a public identity',
    "attributes": 'write a list such as [{name = "smoker", categories = ["no", "yes"]}]',
}
ATTRIBUTE_KEYS = {
    "name": 'write the attribute\'s name, such as name = "smoker"',
    "categories": 'write all categories in order, each in quotes: categories = ["no", "yes"]',
}
RESEARCHER_KEYS = {"identity": CURATOR_KEYS["identity"]}
IDENTITY_KEYS = {
    "name": "write the party's name",
    "signing_key": "write the 64 digits of the party's public signing key",
    "sealing_key": "write the 64 digits of the party's public sealing key",
}

_BY: Codec[LinkageBy] = choice("ids", "rows")
_MODE: Codec[LinkageMode] = choice("aligned", "matched")
_NORMALISATION: Codec[tuple[Normalisation, ...]] = items(choice("nfc", "trim", "lowercase"))
_CATEGORIES = items(TEXT, least=1, most=MAX_CATEGORIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDraft:
    """A study as its proposer describes it."""

    title: str
    epsilon: float
    delta: float
    population: int | None
    mechanism: MechanismTerms
    pads: PadMode
    linkage: Linkage
    curators: tuple[CuratorTerms, ...]
    researchers: tuple[PublicIdentity, ...] | None

    def contract(
        self, *, server: PublicIdentity, secret_commitment: bytes, nonce: bytes
    ) -> Contract:
        """Return the contract of a new study; δ decides how its promise is computed."""
        return Contract(
            title=self.title,
            nonce=nonce,
            curators=self.curators,
            researchers=self.researchers,
            server=server,
            epsilon=self.epsilon,
            delta=self.delta,
            accounting=self.mechanism.accounting(self.delta),
            mechanism=self.mechanism,
            population=self.population,
            pads=self.pads,
            linkage=self.linkage,
            secret_commitment=secret_commitment,
            stored=None,
        )


def example_study() -> str:
    """Return a complete study file with an explanation of every key."""
    return (files("veiltab.party") / "example.toml").read_text(encoding="utf-8")


def read_study_file(path: Path, me: PublicIdentity) -> StudyDraft:
    """Read a study file; ``me`` is the proposer, whom it calls ``"me"``.

    Refused is whatever could not become a contract, so that nobody signs in vain.
    """
    document = Document(read_bytes(path, "study file"), str(path))
    table = TomlTable(document, (), document.values, STUDY_KEYS)
    parties = _Parties(path.parent, me)
    draft = StudyDraft(
        title=table.get("title", TEXT.read),
        epsilon=table.get("epsilon", EPSILON.read),
        delta=table.get_or("delta", DELTA.read, 0.0),
        population=table.get_or("population", POPULATION.read, None),
        mechanism=PaperTerms(table.get_or("sample_size", _read_size, None)),
        pads=table.get_or("pads", PADS.read, "stream"),
        linkage=_linkage(table),
        curators=tuple(
            _curator(entry, parties) for entry in table.tables("curators", CURATOR_KEYS)
        ),
        researchers=_researchers(table, parties),
    )
    _check_terms(path, draft, me)
    return draft


def _read_size(value: object, path: str) -> int | None:
    if isinstance(value, str) and value != OPTIMAL:
        raise malformed(path, f'must be "{OPTIMAL}" or a whole number, not {describe(value)}')
    return None if value == OPTIMAL else SAMPLE_SIZE.read(value, path)


def _linkage(study: TomlTable) -> Linkage:
    study.get("linkage", lambda value, _: value)
    table = study.table("linkage", LINKAGE_KEYS)
    mode = table.get_or("mode", LINKAGE_MODE.read, "aligned")
    if table.get("by", _BY.read) == "ids":
        return Linkage.by_ids(
            table.get_or("columns", integer(1, MAX_INTEGER).read, 1),
            table.get_or("normalisation", _NORMALISATION.read, ()),
            mode,
        )
    for key in ("columns", "normalisation"):
        if key in table:
            raise table.error(
                key,
                "goes with linkage by ids only",
                'leave it out: with by = "rows", the first row is matched with the first row',
            )
    return Linkage.by_rows(mode)


def _curator(table: TomlTable, parties: "_Parties") -> CuratorTerms:
    attributes = tuple(_attribute(entry) for entry in table.tables("attributes", ATTRIBUTE_KEYS))
    return CuratorTerms(parties.read(table), attributes)


def _attribute(table: TomlTable) -> Attribute:
    name = table.get("name", TEXT.read)

    def read(value: object, path: str) -> Attribute:
        return Attribute(name, _CATEGORIES.read(value, path))

    return table.get("categories", read)


def _researchers(table: TomlTable, parties: "_Parties") -> tuple[PublicIdentity, ...] | None:
    if "researchers" not in table:
        return None
    return tuple(parties.read(entry) for entry in table.tables("researchers", RESEARCHER_KEYS))


@dataclass(frozen=True, slots=True)
class _Parties:
    """Finds out who is meant by ``identity = …``."""

    folder: Path
    me: PublicIdentity

    def read(self, table: TomlTable) -> PublicIdentity:
        """Return the party of a table."""

        def from_value(value: object, path: str) -> PublicIdentity:
            if isinstance(value, dict):
                keys = table.table("identity", IDENTITY_KEYS)
                for key in IDENTITY_KEYS:
                    keys.get(key, lambda found, _: found)
                return PublicIdentity.from_json(value, path)
            name = TEXT.read(value, path)
            return self.me if name == ME else self._from_file(name, table)

        return table.get("identity", from_value)

    def _from_file(self, name: str, table: TomlTable) -> PublicIdentity:
        path = self.folder / name
        try:
            return PublicIdentity.from_json(json.loads(read_bytes(path, "identity file")))
        except StudyFileError as error:
            raise table.error("identity", error.message, error.hint) from error
        except (ValueError, RecursionError, MalformedError) as error:
            raise table.error(
                "identity",
                f"{path} is not a public identity",
                "ask that party for the file that `veiltab id show --public` writes",
            ) from error


def _check_terms(path: Path, draft: StudyDraft, me: PublicIdentity) -> None:
    """Refuse terms that contradict each other: those of the contract, with any server."""
    nobody = PublicIdentity("server", bytes(32), bytes(32))
    try:
        draft.contract(server=nobody, secret_commitment=bytes(32), nonce=bytes(NONCE_BYTES))
    except (MalformedError, InputError) as error:
        raise StudyFileError(
            f"{path}: {error.message}",
            hint="each party once, each attribute name once; the numbers of categories multiply"
            " to 2 up to 2^48 cells, and a sample is no larger than the population",
        ) from error
    if me.party_id not in {terms.party_id for terms in draft.curators}:
        raise StudyFileError(
            f"{path}: you are not among the curators",
            hint=f'write identity = "{ME}" in your own [[curators]]; only a curator can propose',
        )
