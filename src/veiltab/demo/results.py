"""The results of a demonstration: plain values for the terminal, for scripts and for the page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from veiltab.core import utility
from veiltab.core.privacy import publication_threshold


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: the true share, and the estimated one with its standard error."""

    categories: tuple[str, ...]
    truth: float
    share: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class StudyResult:
    """One study: the plan, what was promised to whom, and what a researcher has estimated."""

    title: str
    study: str
    plan: Mapping[str, Any]
    coalitions: tuple[Mapping[str, Any], ...]
    names: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def epsilon(self) -> float:
        """The promised ε."""
        return float(self.plan["epsilon"])

    @property
    def delta(self) -> float:
        """The promised δ."""
        return float(self.plan["delta"])

    @property
    def mechanism(self) -> str:
        """How the promise is kept: "paper" or "decoys"."""
        return str(self.plan["mechanism"])

    @property
    def label(self) -> str:
        """The mechanism and δ in short, for a legend: "decoys, δ = 1e-6"."""
        return f"{MECHANISMS[self.mechanism]}, δ = {self.delta_text}"

    @property
    def short(self) -> str:
        """The same for a narrow column of the terminal."""
        return f"{self.mechanism}, δ = {self.delta_text}"

    @property
    def delta_text(self) -> str:
        """The promised δ as people write it."""
        return exponent(self.delta)

    @property
    def l2_error(self) -> float:
        """How far the estimates are from the truth."""
        return l2_error(self.cells)

    @property
    def predicted_rmse(self) -> float:
        """How far they should be: the exact RMSE for these data."""
        return predicted_rmse(self.plan, self.cells)

    def promise_to(self, who: str) -> float | None:
        """Return the ε that holds against somebody; None where nothing bounds what they learn."""
        [epsilon] = [each["epsilon"] for each in self.coalitions if each["who"] == who]
        return None if epsilon is None else float(epsilon)

    def within(self, errors: float) -> int:
        """Count the cells whose estimate is within so many standard errors of the truth."""
        return within(self.cells, errors)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "title": self.title,
            "study": self.study,
            **{key: self.plan[key] for key in PLAN_KEYS},
            "coalitions": [
                {key: each[key] for key in ("who", "epsilon", "delta")} for each in self.coalitions
            ],
            "cells": cells_json(self.names, self.cells),
            "l2_error": self.l2_error,
            "predicted_rmse": self.predicted_rmse,
        }


MECHANISMS = {"paper": "the paper's way", "decoys": "decoys"}
PLAN_KEYS = (
    *("mechanism", "epsilon", "delta", "population_size", "sample_size", "coin_probability"),
    *("expected_rows", "gamma", "epsilon_with_curator", "epsilon_if_order_known"),
    "epsilon_public",
)
"""What of a plan is printed with a study."""


def l2_error(cells: Sequence[Cell]) -> float:
    """Return how far estimates are from the truth."""
    return math.dist([cell.share for cell in cells], [cell.truth for cell in cells])


def within(cells: Sequence[Cell], errors: float) -> int:
    """Count the cells whose estimate is within so many standard errors of the truth."""
    return sum(abs(cell.share - cell.truth) <= errors * cell.standard_error for cell in cells)


def predicted_rmse(
    plan: Mapping[str, Any], cells: Sequence[Cell], published: float | None = None
) -> float:
    """Return the exact RMSE for these data; ``published`` is the ε of a published copy's noise."""
    squares = sum(cell.truth**2 for cell in cells)
    people, size, gamma = plan["population_size"], plan["domain_size"], plan["gamma"]
    decoys, coin = plan["decoys"], plan["coin_probability"]
    if decoys is None:
        return utility.exact_rmse(people, plan["sample_size"], size, gamma, squares)
    noise = 0.0
    if published is not None:
        noise = float(utility.publication_variance(publication_threshold(published)))
    error = utility.decoys_squared_error(
        people,
        size,
        odds_against=(1 - coin) / coin,
        mean=decoys["mean"],
        variance=decoys["variance"],
        gamma=gamma,
        linkage="aligned",
        sum_of_squares=squares,
        published=noise,
    )
    return math.sqrt(error)


@dataclass(frozen=True, slots=True)
class PublishedCopy:
    """What everybody else may read of a study: a copy with noise of its own."""

    title: str
    plan: Mapping[str, Any]
    names: tuple[str, ...]
    digest: str
    cells: tuple[Cell, ...]

    @property
    def epsilon(self) -> float:
        """The promise to those who only read the copy."""
        return float(self.plan["epsilon_public"])

    @property
    def l2_error(self) -> float:
        """How far the copy is from the truth."""
        return l2_error(self.cells)

    @property
    def predicted_rmse(self) -> float:
        """How far it should be."""
        return predicted_rmse(self.plan, self.cells, self.epsilon)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "title": self.title,
            "epsilon": self.epsilon,
            "digest": self.digest,
            "cells": cells_json(self.names, self.cells),
            "l2_error": self.l2_error,
            "predicted_rmse": self.predicted_rmse,
        }


@dataclass(frozen=True, slots=True)
class Reading:
    """What server and researcher read together: all rows of a study, opened and unperturbed."""

    title: str
    mechanism: str
    epsilon: float | None
    names: tuple[str, ...]
    categories: tuple[tuple[str, ...], ...]
    people: tuple[int, ...]
    rows: tuple[int, ...]
    decoys: tuple[float, float]
    """The mean and the standard deviation of the number of decoys in a cell."""

    @property
    def rarest(self) -> list[int]:
        """The cells in the order of how many people they have, the fewest first."""
        return sorted(range(len(self.people)), key=self.people.__getitem__)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        mean, deviation = self.decoys
        return {
            "title": self.title,
            "epsilon": self.epsilon,
            "rows": sum(self.rows),
            "decoys_per_cell": mean,
            "decoys_deviation": deviation,
            "cells": [
                {**dict(zip(self.names, categories, strict=True)), "people": people, "rows": rows}
                for categories, people, rows in zip(
                    self.categories, self.people, self.rows, strict=True
                )
            ],
        }


@dataclass(frozen=True, slots=True)
class Column:
    """How often each category occurs: in the curator's table, and in what the server received."""

    attribute: str
    categories: tuple[str, ...]
    table: tuple[int, ...]
    received: tuple[int, ...]
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """What was found in the server's folder and in its log."""

    received: tuple[int, ...]
    received_later: tuple[int, ...]
    released: tuple[int, ...]
    ids_found: int
    column: Column
    entries: tuple[Mapping[str, Any], ...]
    head: str
    verified_by: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "received_files": len(self.received),
            "received_bytes": sum(self.received),
            "received_files_after_release": len(self.received_later),
            "released_files": len(self.released),
            "released_bytes": sum(self.released),
            "ids_found": self.ids_found,
            "column": asdict(self.column),
            "audit_entries": len(self.entries),
            "audit_head": self.head,
            "verified_by": list(self.verified_by),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondResearcher:
    """What a researcher with one curator's grant gets, and what the researcher is refused."""

    name: str
    granted: tuple[str, ...]
    cells: tuple[Cell, ...]
    asked: tuple[str, ...]
    error: str
    hint: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "name": self.name,
            "granted": list(self.granted),
            "cells": cells_json(self.granted, self.cells),
            "refused": {"attributes": list(self.asked), "error": self.error, "hint": self.hint},
        }


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """A curator's ledger before and after, as ``veiltab ledger --json`` prints it."""

    curator: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"curator": self.curator, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class AgentView:
    """What a curator's agent did in a study, by its log, and for how many rows."""

    curator: str
    rows: int
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A study on stored tables: what was stored and answered, and what a researcher estimated."""

    title: str
    study: str
    plan: Mapping[str, Any]
    rows_stored: int
    agents: tuple[AgentView, ...]
    cells: tuple[Cell, ...]

    @property
    def l2_error(self) -> float:
        """How far the estimates are from the truth."""
        return l2_error(self.cells)

    @property
    def predicted_rmse(self) -> float:
        """How far they should be: the exact RMSE for these data."""
        return predicted_rmse(self.plan, self.cells)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "title": self.title,
            "study": self.study,
            "rows_stored": self.rows_stored,
            "agents": [
                {"curator": agent.curator, "rows": agent.rows, "events": list(agent.events)}
                for agent in self.agents
            ],
            "l2_error": self.l2_error,
            "predicted_rmse": self.predicted_rmse,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResults:
    """All results: the paper's study, the one with decoys, and, if there is one, the one with δ.

    The second was examined closely: its files, its log, its published copy.
    """

    studies: tuple[StudyResult, ...]
    holders: Mapping[str, tuple[str, ...]]
    server: ServerView
    readings: tuple[Reading, ...]
    published: PublishedCopy
    second: SecondResearcher
    stored: StoredResult
    ledgers: tuple[LedgerChange, ...]
    commands: int
    seconds: float

    @property
    def closest(self) -> StudyResult:
        """The study whose log and files were examined."""
        return self.studies[1]

    def as_dict(self, report: str) -> dict[str, Any]:
        """Return it as JSON values: the paper's study, and the others beside it."""
        papers, decoys, *others = self.studies
        return {
            **papers.as_dict(),
            "decoys": decoys.as_dict(),
            "with_delta": others[0].as_dict() if others else None,
            "together": [reading.as_dict() for reading in self.readings],
            "published": self.published.as_dict(),
            "server": self.server.as_dict(),
            "second_researcher": self.second.as_dict(),
            "stored": self.stored.as_dict(),
            "ledgers": [ledger.as_dict() for ledger in self.ledgers],
            "commands": self.commands,
            "report": report,
            "seconds": round(self.seconds, 2),
        }


def exponent(number: float) -> str:
    """Write a small number as people do: 1e-6."""
    return f"{number:g}".replace("e-0", "e-")


def cells_json(names: Sequence[str], cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return cells as JSON values, with their categories under the attributes' names."""
    return [
        {
            **dict(zip(names, cell.categories, strict=True)),
            "truth": cell.truth,
            "share": cell.share,
            "standard_error": cell.standard_error,
        }
        for cell in cells
    ]
