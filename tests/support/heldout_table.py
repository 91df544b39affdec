"""Makes tables of what was measured: ``python -m tests.support.heldout_table FILE [FILE ...]``.

The files are those of ``tests.support.heldout_run``.  What was asked a second time counts by its
second answer.  A column is shown once all settings that suit it have been measured; a last table
says where the others have been measured so far, and what is to be asked again.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.heldout import HELD_OUT
from tests.support.heldout_measures import INTERVALS, PAIRS, TESTS
from tests.support.heldout_models import MODELS, PREDICTIONS
from tests.support.heldout_run import AGAIN, in_doubt

Row = dict[str, Any]
Measurements = dict[tuple[str, str], list[Row]]

GROUPS: dict[str, tuple[str, ...]] = {
    "shares": (
        *("cells", "marginals", "difference", "conditional share", "risk difference"),
        *("risk ratio", "odds ratio", "band"),
    ),
    "association": (
        *("Cramér's V", "mutual information", "correlation", "common odds ratio"),
        *("deviations", "linear", "functional", "people", "calibrated conditional"),
    ),
    "means": (
        *("mean", "mean by group", "variance", "difference of means", "median"),
        *("weighted share", "change of a share", "pooled share"),
    ),
    "models": ("logistic", "multinomial", "ordinal", "linear regression", "log-linear"),
    "more of the same": (
        *("quantile", "quantile category", "weighted mean", "difference in a group"),
        *("people by category", "people in common", "change of a mean", "ratio of shares"),
    ),
    "margins and models": (
        *("raked conditional", "small areas", "prediction", "contrast"),
        *("chance of a category", "fitted share"),
    ),
    "tests": (*(test.name for test in TESTS), "change of the table"),
}
"""The tables, each with its columns."""

SEVERAL = {"marginals": ("marginal x", "marginal y", "marginal g")}
"""Columns that show the entry which is farthest from 95%."""

RARELY, DOUBTED = 0.95, 0.5


def read(paths: Iterable[Path]) -> Measurements:
    """Return what was measured, by the question and the setting; a second answer counts alone."""
    rows: Measurements = {}
    for line in (line for path in paths for line in path.read_text("utf-8").splitlines()):
        row = json.loads(line)
        rows.setdefault((row["name"], row["setting"]), []).append(row)
    return {
        key: [row for row in same if row["runs"] == max(each["runs"] for each in same)]
        for key, same in rows.items()
    }


def suited(name: str, setting: str) -> bool:
    """Tell whether a question is asked at a setting."""
    [place] = [each for each in HELD_OUT if each.name == setting]
    asked = [what.suits for what in (*INTERVALS, *PREDICTIONS) if what.name == name]
    asked += [what.suits for what in TESTS if what.name == name]
    asked += [what.suits for what in PAIRS if what.name == name]
    asked += [suits for model, (_, suits) in MODELS.items() if model == name]
    return all(suits(place) for suits in asked)


def entry(rows: Sequence[Row]) -> str:
    """Return a percentage, in how many percent it is given, and a star if most are doubted."""
    row = max(rows, key=lambda each: -1 if each["rate"] is None else abs(each["rate"] - 0.95))
    if row["rate"] is None:
        return "–"
    given = f" ({100 * row['given']:.0f})" if row["given"] < RARELY else ""
    return f"{100 * row['rate']:.1f}{'*' if row['doubted'] > DOUBTED else ''}{given}"


def column(measured: Measurements, name: str) -> list[str] | None:
    """Return the entries of a question at all settings; None if some are missing."""
    entries = []
    for setting in HELD_OUT:
        if not suited(name, setting.name):
            entries.append("")
            continue
        keys = [(part, setting.name) for part in SEVERAL.get(name, (name,))]
        if not all(key in measured for key in keys):
            return None
        entries.append(entry([row for key in keys for row in measured[key]]))
    return entries


def asked(name: str) -> list[str]:
    """Return the settings that suit a question."""
    return [setting.name for setting in HELD_OUT if suited(name, setting.name)]


def unfinished(measured: Measurements) -> Iterator[str]:
    """Yield the lines of a table of all questions that were not measured everywhere, or settled."""
    yield "| question | settings that suit it | measured so far | to be asked again |"
    yield "|---|---|---|---|"
    names = [what.name for what in (*INTERVALS, *PREDICTIONS)] + [what.name for what in TESTS]
    names += [what.name for what in PAIRS] + list(MODELS)
    for name in names:
        places = asked(name)
        found = {place: measured[name, place] for place in places if (name, place) in measured}
        doubted = [place for place, rows in found.items() if unsettled(rows)]
        if len(found) == len(places) and not doubted:
            continue
        so_far = ", ".join(f"{place} {entry(rows)}" for place, rows in found.items())
        yield f"| {name} | {len(places)} | {so_far} | {', '.join(doubted)} |"


def unsettled(rows: Sequence[Row]) -> bool:
    """Tell whether the rule wants a second answer that is not there yet."""
    return any(in_doubt(row) and row["runs"] < AGAIN for row in rows)


def described() -> Iterator[str]:
    """Yield the lines of a table of the settings."""
    yield "| held-out setting | people | cells | mechanism | ε | δ | linkage | published |"
    yield "|---|---|---|---|---|---|---|---|"
    for setting in HELD_OUT:
        plan = setting.plan
        yield (
            f"| {setting.name} | {setting.people:,} | {' × '.join(map(str, setting.sizes))} |"
            f" {plan.mechanism_name} | {plan.epsilon:g} | {plan.delta or ''} | {plan.linkage} |"
            f" {'yes' if setting.published else ''} |"
        )


def markdown(measured: Measurements) -> Iterator[str]:
    """Yield the lines of all tables."""
    yield from described()
    for names in GROUPS.values():
        columns = {name: column(measured, name) for name in names}
        shown = {name: entries for name, entries in columns.items() if entries is not None}
        if shown:
            yield ""
            yield f"| held-out setting | {' | '.join(shown)} |"
            yield "|---" * (1 + len(shown)) + "|"
            for place, setting in enumerate(HELD_OUT):
                yield f"| {setting.name} | " + " | ".join(e[place] for e in shown.values()) + " |"
    yield ""
    yield from unfinished(measured)


if __name__ == "__main__":
    print("\n".join(markdown(read(map(Path, sys.argv[1:])))))  # noqa: T201 - its purpose
