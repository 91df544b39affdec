"""Who takes part in the demonstration, what each of them holds, and what they agree on."""

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from veiltab.core.schema import CountTable, Schema
from veiltab.demo.processes import Party

ID_COLUMN, TABLE = "person", "table.csv"
PAPERS, SHUFFLED = "Adult by the paper", "Adult in secret order"
SEED = 1994
"""Of the order of the rows, which is for show; all that protects anybody is drawn elsewhere."""


@dataclass(frozen=True, slots=True)
class Curator:
    """A party with a table of its own."""

    party: Party
    dataset: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """Everybody."""

    server: Party
    registry: Curator
    tax: Curator
    rivera: Party
    okafor: Party

    @property
    def curators(self) -> tuple[Curator, Curator]:
        """Those who hold data; the first proposes."""
        return self.registry, self.tax

    @property
    def members(self) -> tuple[Party, ...]:
        """All who register with the server."""
        return (self.registry.party, self.tax.party, self.rivera, self.okafor)


@dataclass(frozen=True, slots=True)
class Terms:
    """One of the studies: what it is called, and what it promises."""

    title: str
    file: str
    epsilon: float
    delta: float


def make_cast(parties: Path) -> Cast:
    """Give everybody a folder that only its owner can open."""

    def party(name: str, folder: str) -> Party:
        (parties / folder).mkdir(mode=0o700)
        return Party(name, parties / folder)

    return Cast(
        server=party("Statistics server", "server"),
        registry=Curator(
            party("Registry office", "registry-office"), "Register", ("education", "marital")
        ),
        tax=Curator(party("Tax office", "tax-office"), "Tax returns", ("gender", "salary")),
        rivera=party("Dr. Rivera", "dr-rivera"),
        okafor=party("Dr. Okafor", "dr-okafor"),
    )


def make_terms(epsilon: float, delta: float) -> tuple[Terms, ...]:
    """Return the paper's study and, if δ is above 0, one that counts on the secret order too."""
    papers = Terms(PAPERS, "paper.toml", epsilon, 0.0)
    return (papers, Terms(SHUFFLED, "shuffled.toml", epsilon, delta)) if delta else (papers,)


def identity_file(party: Party) -> str:
    """Return the name of the file with a party's public identity, wherever it is handed to."""
    return f"{party.folder.name}.json"


def write_tables(cast: Cast, table: "CountTable") -> None:
    """Write each curator's columns, record by record, in an order that no other curator has."""
    generator = np.random.default_rng(SEED)
    cells = np.repeat(np.arange(table.schema.domain_size), table.counts)
    numbers = generator.permutation(cells.size)  # so that an id says nothing of its cell
    for curator in cast.curators:
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
    """Return, for each joint cell, a curator's columns as they stand in its file."""
    every = product(*(attribute.categories for attribute in schema.attributes))
    return [",".join(categories[position] for position in positions) for categories in every]


def write_study_file(cast: Cast, terms: Terms, table: "CountTable") -> None:
    """Write what the first curator proposes, into its own folder."""
    lines = [
        f"title = {json.dumps(terms.title)}",
        f"epsilon = {terms.epsilon!r}",
        f"delta = {terms.delta!r}",
        f"population = {table.population_size}",
        'linkage = {by = "ids"}',
    ]
    for curator in cast.curators:
        me = curator is cast.registry
        identity = "me" if me else identity_file(curator.party)
        lines += ["[[curators]]", f"identity = {json.dumps(identity)}", "attributes = ["]
        lines += [f"  {_attribute(table.schema, name)}," for name in curator.attributes]
        lines += ["]"]
    for researcher in (cast.rivera, cast.okafor):
        lines += ["[[researchers]]", f"identity = {json.dumps(identity_file(researcher))}"]
    path = cast.registry.party.folder / terms.file
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _attribute(schema: "Schema", name: str) -> str:
    attribute = schema.attributes[schema.names.index(name)]
    return f"{{name = {json.dumps(name)}, categories = {json.dumps(list(attribute.categories))}}}"
