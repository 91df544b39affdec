"""The parties of the demonstration, what each of them holds, and what they agree on."""

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from veiltab.core.plan import MechanismName
from veiltab.core.schema import CountTable, Schema
from veiltab.demo.processes import DemoParty

ID_COLUMN, TABLE = "person", "table.csv"
PAPERS, DECOYS, WITH_DELTA = "Adult by the paper", "Adult with decoys", "Adult with δ and decoys"
SEED = 1994
"""Seeds the order of the rows in the tables; nothing that protects anybody depends on it."""


@dataclass(frozen=True, slots=True)
class DemoCurator:
    """A party with a table of its own."""

    party: DemoParty
    dataset: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DemoParties:
    """The server, two curators and two researchers."""

    server: DemoParty
    registry: DemoCurator
    tax: DemoCurator
    rivera: DemoParty
    okafor: DemoParty

    @property
    def curators(self) -> tuple[DemoCurator, DemoCurator]:
        """The parties that hold data; the first one proposes the studies."""
        return self.registry, self.tax

    @property
    def members(self) -> tuple[DemoParty, ...]:
        """The parties that register with the server."""
        return (self.registry.party, self.tax.party, self.rivera, self.okafor)


@dataclass(frozen=True, slots=True)
class StudyTerms:
    """What one of the studies is called, and what it promises."""

    title: str
    file: str
    mechanism: MechanismName
    epsilon: float
    delta: float


def make_parties(folder: Path) -> DemoParties:
    """Give each party a folder below this one, which only its owner can open."""

    def party(name: str, own: str) -> DemoParty:
        (folder / own).mkdir(mode=0o700)
        return DemoParty(name, folder / own)

    return DemoParties(
        server=party("Statistics server", "server"),
        registry=DemoCurator(
            party("Registry office", "registry-office"), "Register", ("education", "marital")
        ),
        tax=DemoCurator(party("Tax office", "tax-office"), "Tax returns", ("gender", "salary")),
        rivera=party("Dr. Rivera", "dr-rivera"),
        okafor=party("Dr. Okafor", "dr-okafor"),
    )


def make_study_terms(epsilon: float, delta: float) -> tuple[StudyTerms, ...]:
    """Return the paper's study, one with decoys and, if δ is above 0, one that spends it too."""
    terms = [
        StudyTerms(PAPERS, "paper.toml", "paper", epsilon, 0.0),
        StudyTerms(DECOYS, "decoys.toml", "decoys", epsilon, 0.0),
    ]
    if delta:
        terms.append(StudyTerms(WITH_DELTA, "delta.toml", "decoys", epsilon, delta))
    return tuple(terms)


def identity_file(party: DemoParty) -> str:
    """Return the name of the file that holds a party's public identity."""
    return f"{party.folder.name}.json"


def write_tables(parties: DemoParties, table: "CountTable") -> None:
    """Write each curator's table, with the rows in a random order of its own."""
    generator = np.random.default_rng(SEED)
    cells = np.repeat(np.arange(table.schema.domain_size), table.counts)
    numbers = generator.permutation(cells.size)  # so that an id says nothing about its cell
    for curator in parties.curators:
        positions = [table.schema.names.index(name) for name in curator.attributes]
        texts = _texts(table.schema, positions)
        lines = [",".join((ID_COLUMN, *curator.attributes))]
        lines += [
            f"{person_id(int(numbers[row]))},{texts[cells[row]]}"
            for row in generator.permutation(cells.size)
        ]
        path = curator.party.folder / TABLE
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def person_id(number: int) -> str:
    """Return a made-up id, of a form that is easy to search for."""
    return f"person-{number:05}"


def _texts(schema: "Schema", positions: list[int]) -> list[str]:
    """Return for each joint cell what a curator's file has in its columns."""
    combinations = product(*(attribute.categories for attribute in schema.attributes))
    return [",".join(categories[position] for position in positions) for categories in combinations]


def write_study_file(parties: DemoParties, terms: StudyTerms, table: "CountTable") -> None:
    """Write the study file of the first curator, who proposes the study."""
    lines = [
        f"title = {json.dumps(terms.title)}",
        f"epsilon = {terms.epsilon!r}",
        f"delta = {terms.delta!r}",
        f"mechanism = {json.dumps(terms.mechanism)}",
        f"population = {table.population_size}",
        'linkage = {by = "ids"}',
    ]
    lines += [*curator_lines(parties, table), *researcher_lines(parties)]
    path = parties.registry.party.folder / terms.file
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def curator_lines(parties: DemoParties, table: "CountTable") -> list[str]:
    """Return the curators with their attributes, as a study file or vault file names them."""
    lines = []
    for curator in parties.curators:
        me = curator is parties.registry
        identity = "me" if me else identity_file(curator.party)
        lines += ["[[curators]]", f"identity = {json.dumps(identity)}", "attributes = ["]
        lines += [f"  {_attribute(table.schema, name)}," for name in curator.attributes]
        lines += ["]"]
    return lines


def researcher_lines(parties: DemoParties) -> list[str]:
    """Return both researchers, as a study file names them."""
    lines = []
    for researcher in (parties.rivera, parties.okafor):
        lines += ["[[researchers]]", f"identity = {json.dumps(identity_file(researcher))}"]
    return lines


def _attribute(schema: "Schema", name: str) -> str:
    attribute = schema.attributes[schema.names.index(name)]
    return f"{{name = {json.dumps(name)}, categories = {json.dumps(list(attribute.categories))}}}"
