"""The results of a demonstration: plain values for the terminal, for scripts and for the page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from veiltab.core import utility


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: the true share, and the estimated one with its standard error."""

    categories: tuple[str, ...]
    truth: float
    share: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class StudyResult:
    """One study: the plan, and what a researcher with all grants has estimated."""

    title: str
    study: str
    plan: Mapping[str, Any]
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
    def promise(self) -> str:
        """The promise in short, such as "ε = 0.5, δ = 1e-6"."""
        return f"ε = {self.epsilon:g}, δ = {self.delta_text}"

    @property
    def delta_text(self) -> str:
        """The promised δ as people write it."""
        return exponent(self.delta)

    @property
    def l2_error(self) -> float:
        """How far the estimates are from the truth."""
        return math.dist([c.share for c in self.cells], [c.truth for c in self.cells])

    @property
    def predicted_rmse(self) -> float:
        """How far they should be: the exact RMSE for these data."""
        return utility.exact_rmse(
            self.plan["population_size"],
            self.plan["sample_size"],
            self.plan["domain_size"],
            self.plan["gamma"],
            sum(cell.truth**2 for cell in self.cells),
        )

    def within(self, errors: float) -> int:
        """Count the cells whose estimate is within so many standard errors of the truth."""
        return sum(abs(c.share - c.truth) <= errors * c.standard_error for c in self.cells)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        keys = ("epsilon", "delta", "population_size", "sample_size", "gamma")
        return {
            "title": self.title,
            "study": self.study,
            **{key: self.plan[key] for key in keys},
            "epsilon_if_order_known": self.plan["epsilon_if_order_known"],
            "cells": cells_json(self.names, self.cells),
            "l2_error": self.l2_error,
            "predicted_rmse": self.predicted_rmse,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResults:
    """All results; the first study is the paper's, the last one was examined closely."""

    studies: tuple[StudyResult, ...]
    holders: Mapping[str, tuple[str, ...]]
    server: ServerView
    second: SecondResearcher
    ledgers: tuple[LedgerChange, ...]
    commands: int
    seconds: float

    @property
    def closest(self) -> StudyResult:
        """The study whose log and files were examined."""
        return self.studies[-1]

    def as_dict(self, report: str) -> dict[str, Any]:
        """Return it as JSON values: the paper's study, and the other one beside it."""
        papers, *others = self.studies
        return {
            **papers.as_dict(),
            "with_delta": others[0].as_dict() if others else None,
            "server": self.server.as_dict(),
            "second_researcher": self.second.as_dict(),
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
