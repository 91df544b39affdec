"""Study files: what a study is to be, in TOML that people write and read.

A study file becomes a contract when the proposer's program has planned its numbers, and adds the
server, a nonce and the commitment to a secret.  ``example.toml`` beside this module explains every
key.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path

from veiltab.core.hashing import SEALING_PUBLIC_BYTES, SIGNING_PUBLIC_BYTES
from veiltab.core.mechanism import LinkageMode
from veiltab.core.plan import plan
from veiltab.core.schema import MAX_CATEGORIES, Attribute
from veiltab.errors import (
    HomeError,
    InputError,
    MalformedError,
    StudyFileError,
    UselessPlanError,
)
from veiltab.files.toml import Document, TomlTable, check_filled_in, read_bytes
from veiltab.party.known.names import look
from veiltab.party.proposal import DecoyWishes, StudyDraft, plan_decoys
from veiltab.remedies import Remedy
from veiltab.wire.codec import TEXT, Codec, choice, describe, integer, items, malformed
from veiltab.wire.contract import (
    LINKAGE_MODE,
    PADS,
    POPULATION,
    CuratorTerms,
    Linkage,
    LinkageBy,
    Normalisation,
    PublicIdentity,
    Vault,
)
from veiltab.wire.mechanism import DELTA, EPSILON, SAMPLE_SIZE, PaperTerms

ME = "me"

OPTIMAL = "optimal"
UNBOUNDED = "unbounded"

STUDY_KEYS = {
    "title": 'write a text for people, such as title = "Smoking and income"',
    "epsilon": "write the promised privacy, such as epsilon = 1.0",
    "delta": "leave it out for the strictest promise, or write a small number such as 1e-6",
    "mechanism": 'leave it out for decoys, or write mechanism = "paper" or mechanism = "shuffle"',
    "epsilon_with_curator": f'leave it out, or write a number such as 3.0, or "{UNBOUNDED}" for no'
    " noise by the server",
    "epsilon_public": "leave it out for the same as epsilon, or write a number such as 1.0",
    "population": "write how many respondents there are, such as population = 10000",
    "expected_population": "write about how many respondents there are, such as 10000",
    "pads": 'write pads = "stream" or pads = "one-time"',
    "sample_size": f'leave it out, or write sample_size = "{OPTIMAL}" or a whole number',
    "vault": 'write a table with name = "…", the title of the vault that the study reads',
    "linkage": 'write a table with by = "ids" or by = "rows"',
    "curators": "write a [[curators]] table for each curator",
    "researchers": "write a [[researchers]] table for each one; leave all out to let the curators"
    " grant access to whom they like",
}
VAULT_KEYS = {"name": "write the vault's exact title, or the first digits of its id"}
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
    "sealing_key": "write the 2,432 digits of the party's public sealing key",
}

_BY: Codec[LinkageBy] = choice("ids", "rows")
MOST_ID_COLUMNS = 100
"""More columns than any id has: whoever signs for more has mistyped, and could never push."""

_MECHANISM: Codec[str] = choice("decoys", "paper", "shuffle")
_NORMALISATION: Codec[tuple[Normalisation, ...]] = items(choice("nfc", "trim", "lowercase"))
_CATEGORIES = items(TEXT, least=1, most=MAX_CATEGORIES)
_ONLY_WITH_DECOYS = ("epsilon_with_curator", "epsilon_public", "expected_population")


def example_study() -> str:
    """Return a complete study file with an explanation of every key."""
    return (files("veiltab.party") / "example.toml").read_text(encoding="utf-8")


FindVault = Callable[[str], Vault]
"""How a vault is found by its title or the first digits of its id."""


def read_study_file(
    path: Path, me: PublicIdentity, find_vault: FindVault | None = None, *, anyway: bool = False
) -> StudyDraft:
    """Read a study file; ``me`` is the proposer, whom it calls ``"me"``.

    Refused is whatever could not become a contract, and unless ``anyway`` a study that would say
    less than a guess, so that nobody signs in vain.  A file with ``[vault]`` is about stored
    tables, which ``find_vault`` knows.
    """
    document = Document(read_bytes(path, "study file"), str(path))
    return read_study(document, path.parent, me, find_vault, anyway=anyway)


def read_study(
    document: Document,
    folder: Path,
    me: PublicIdentity,
    find_vault: FindVault | None = None,
    *,
    anyway: bool = False,
) -> StudyDraft:
    """Read a study file that was opened; paths in it start from ``folder``."""
    check_filled_in(document)
    table = TomlTable(document, (), document.values, STUDY_KEYS)
    parties = Parties(folder, me)
    vault = None if "vault" not in table else _vault(table, find_vault)
    draft = StudyDraft(
        title=table.get("title", TEXT.read),
        epsilon=table.get("epsilon", EPSILON.read),
        delta=table.get_or("delta", DELTA.read, 0.0),
        population=table.get_or("population", POPULATION.read, None),
        mechanism=PaperTerms(table.get_or("sample_size", _read_size, None)),
        pads=table.get_or("pads", PADS.read, "stream"),
        linkage=read_linkage(table) if vault is None else vault.linkage,
        curators=read_curators(table, parties) if vault is None else vault.curators,
        researchers=_researchers(table, parties),
        expected_population=table.get_or("expected_population", POPULATION.read, None),
        vault=vault,
    )
    _check_terms(document.name, draft, me)
    if _mechanism(table, draft) == "decoys":
        return _with_decoys(document.name, draft, table, anyway=anyway)
    _check_without_decoys(draft, table)
    if not anyway:
        _check_useful(draft)
    return draft


def _mechanism(table: TomlTable, draft: StudyDraft) -> str:
    """Return the mechanism that is named, or the default: decoys, but for stored tables."""
    stored = "shuffle" if draft.delta else "paper"
    name = table.get_or("mechanism", _MECHANISM.read, "decoys" if draft.vault is None else stored)
    if name == "decoys" and draft.vault is not None:
        raise table.error(
            "mechanism",
            "stored tables have no decoys: a server that sees rows in many studies could tell"
            " which are decoys",
            f'leave it out, or write mechanism = "{stored}"',
        )
    return name


def _vault(table: TomlTable, find_vault: FindVault | None) -> Vault:
    """Find the vault that a study file names; it states the curators and the linkage."""
    name = table.table("vault", VAULT_KEYS).get("name", TEXT.read)
    for key in ("curators", "linkage"):
        if key in table:
            raise table.error(key, "the vault states this, for all of its studies", "leave it out")
    if find_vault is None:
        hint = "propose it from the home of a curator of the vault"
        raise table.error("vault", "no vault is known here", hint)
    try:
        return find_vault(name)
    except HomeError as error:
        raise table.error("vault", error.message, error.hint) from error


def _read_size(value: object, path: str) -> int | None:
    if isinstance(value, str) and value != OPTIMAL:
        raise malformed(path, f'must be "{OPTIMAL}" or a whole number, not {describe(value)}')
    return None if value == OPTIMAL else SAMPLE_SIZE.read(value, path)


def _check_without_decoys(draft: StudyDraft, table: TomlTable) -> None:
    """Refuse keys that only decoys have, and a δ that does not go with the mechanism."""
    for key in _ONLY_WITH_DECOYS:
        if key in table:
            raise table.error(
                key, 'goes with mechanism = "decoys" only', "leave it out, or use decoys"
            )
    name = _mechanism(table, draft)
    if (name == "shuffle") != (draft.delta > 0):
        raise table.error("mechanism", *_WRONG_DELTA[name])


_WRONG_DELTA = {
    "paper": (
        '"paper" is a promise without delta',
        'leave delta out, or write mechanism = "decoys" or "shuffle", which gain from it',
    ),
    "shuffle": (
        '"shuffle" gains nothing without a delta',
        'write a small delta, such as delta = 1e-6, or mechanism = "decoys" or "paper"',
    ),
}


def _check_useful(draft: StudyDraft) -> None:
    """Refuse a study by rank that would say less than a guess, if its population is stated."""
    terms = draft.mechanism
    if draft.population is None or not isinstance(terms, PaperTerms):
        return
    try:
        plan(
            population_size=draft.population,
            domain_size=math.prod(curator.schema.domain_size for curator in draft.curators),
            epsilon=draft.epsilon,
            delta=draft.delta,
            sample_size=terms.sample_size,
            mechanism="shuffle" if draft.delta else "paper",
        )
    except UselessPlanError:
        raise
    except InputError:  # a contract may state what cannot be planned; then it shows no plan
        return


def _with_decoys(name: str, draft: StudyDraft, table: TomlTable, *, anyway: bool) -> StudyDraft:
    """Plan the decoys' numbers, for the promises that the file states."""
    if "sample_size" in table:
        raise table.error(
            "sample_size",
            'goes with mechanism = "paper" or "shuffle" only: with decoys, a coin decides for each'
            " respondent",
            "leave it out",
        )
    wishes = DecoyWishes(
        epsilon=draft.epsilon,
        delta=draft.delta,
        population=_planned_population(table, draft.linkage),
        epsilon_with_curator=table.get_or("epsilon_with_curator", _read_curator_epsilon, None),
        epsilon_public=table.get_or("epsilon_public", EPSILON.read, None),
    )
    try:
        terms = plan_decoys(wishes, draft.linkage, draft.curators, anyway=anyway)
    except UselessPlanError:  # nothing is wrong with the file
        raise
    except InputError as error:
        raise StudyFileError(
            f"{name}: {error.message}", hint=error.hint, problem=error.message
        ) from error
    return replace(draft, mechanism=terms)


def _planned_population(table: TomlTable, linkage: Linkage) -> int:
    """Return how many respondents the decoys are planned for: the number, or about the number."""
    if "population" in table and "expected_population" in table:
        raise table.error(
            "expected_population", "the population is stated already", "write one of the two"
        )
    if "population" in table and linkage.mode == "matched":
        raise table.error(
            "population",
            "nobody learns how many respondents are in common where the server matches them",
            "write expected_population: about how many you expect to be in common",
        )
    for key in ("population", "expected_population"):
        if key in table:
            return table.get(key, POPULATION.read)
    about = "expected_population = 10000 for about that many; no promise depends on it"
    stated = "population = 10000 if the curators may know how many there are, or "
    raise table.error(
        "expected_population",
        "is missing: decoys are planned for about as many respondents as there are",
        f"write {about if linkage.mode == 'matched' else stated + about}",
        at_table=True,
    )


def _read_curator_epsilon(value: object, path: str) -> float:
    if isinstance(value, str) and value != UNBOUNDED:
        raise malformed(path, f'must be a number or "{UNBOUNDED}", not {describe(value)}')
    return math.inf if value == UNBOUNDED else EPSILON.read(value, path)


def read_linkage(document: TomlTable, default: LinkageMode = "aligned") -> Linkage:
    """Read ``[linkage]``, which must be there."""
    document.get("linkage", lambda value, _: value)
    table = document.table("linkage", LINKAGE_KEYS)
    mode = table.get_or("mode", LINKAGE_MODE.read, default)
    if table.get("by", _BY.read) == "ids":
        return Linkage.by_ids(
            table.get_or("columns", integer(1, MOST_ID_COLUMNS).read, 1),
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


def read_curators(table: TomlTable, parties: "Parties") -> tuple[CuratorTerms, ...]:
    """Read every ``[[curators]]``, at least one."""
    return tuple(_curator(entry, parties) for entry in table.tables("curators", CURATOR_KEYS))


def _curator(table: TomlTable, parties: "Parties") -> CuratorTerms:
    attributes = tuple(_attribute(entry) for entry in table.tables("attributes", ATTRIBUTE_KEYS))
    return CuratorTerms(parties.read(table), attributes)


def _attribute(table: TomlTable) -> Attribute:
    name = table.get("name", TEXT.read)

    def read(value: object, path: str) -> Attribute:
        return Attribute(name, _CATEGORIES.read(value, path))

    attribute = table.get("categories", read)
    twins = look_alikes(attribute.categories)
    if twins is not None:
        raise table.error(
            "categories",
            f"{twins[1]!r} looks like {twins[0]!r}: they differ by case, spaces or letters that"
            " look the same",
            "write one category for both, and map the values to it in a recode file",
        )
    return attribute


def look_alikes(categories: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two categories that people could take for one another, if there are any."""
    seen: dict[str, str] = {}
    for category in categories:
        other = seen.setdefault(look(category), category)
        if other != category:
            return other, category
    return None


def _researchers(table: TomlTable, parties: "Parties") -> tuple[PublicIdentity, ...] | None:
    if "researchers" not in table:
        return None
    return tuple(parties.read(entry) for entry in table.tables("researchers", RESEARCHER_KEYS))


@dataclass(frozen=True, slots=True)
class Parties:
    """Finds out who is meant by ``identity = …``."""

    folder: Path
    me: PublicIdentity
    seen: set[bytes] = field(default_factory=set)

    def read(self, table: TomlTable) -> PublicIdentity:
        """Return the party of a table; each party may stand in one table."""
        party = self._read(table)
        if party.signing_key in self.seen:
            raise table.error(
                "identity",
                f"{party.name!r} is named already",
                "name each party once: a curator cannot be a researcher of the same study",
            )
        self.seen.add(party.signing_key)
        return party

    def _read(self, table: TomlTable) -> PublicIdentity:

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
                f"ask that party for {Remedy.IDENTITY_FILE}",
            ) from error


def any_server() -> PublicIdentity:
    """Return a server in the place of the one that is not known yet, to check everything else."""
    return PublicIdentity("server", bytes(SIGNING_PUBLIC_BYTES), bytes(SEALING_PUBLIC_BYTES))


def _check_terms(name: str, draft: StudyDraft, me: PublicIdentity) -> None:
    """Refuse terms that contradict each other: those of the contract, with any server."""
    try:
        draft.provisional(any_server())
    except (MalformedError, InputError) as error:
        raise StudyFileError(
            f"{name}: {error.message}",
            problem=error.message,
            hint="each party once, each attribute name once; the numbers of categories multiply"
            " to 2 up to 2^48 cells, and a sample is no larger than the population",
        ) from error
    check_proposer(name, draft.curators, me)


def check_proposer(name: str, curators: tuple[CuratorTerms, ...], me: PublicIdentity) -> None:
    """Refuse a proposal by somebody who is not among its curators."""
    if me.party_id not in {terms.party_id for terms in curators}:
        raise StudyFileError(
            f"{name}: you are not among the curators",
            place=("curators",),
            problem="you are not among the curators",
            hint=f'write identity = "{ME}" in your own [[curators]]; only a curator can propose',
        )
