"""An estimate at the end of a notebook cell: a table in HTML, without scripts or styles."""

from html import escape

import numpy as np

from veiltab.core.intervals import share_interval
from veiltab.core.released import ReleasedCounts
from veiltab.core.uncertainty import critical_value
from veiltab.errors import TooFewPeopleError
from veiltab.inference.diagnostics import table_warnings
from veiltab.inference.distributions import cell_errors
from veiltab.inference.provenance import Provenance, mechanism_words, status_words
from veiltab.inference.wording import beyond

MOST_ROWS = 60
"""Of a larger table only the largest cells are shown, this many."""

LEVEL = 0.95
COLUMNS = ("share", "standard error", "95% interval per cell", "warning")


def notebook_html(released: ReleasedCounts, provenance: Provenance) -> str:
    """Return the largest cells with their intervals, the promises and the warnings."""
    status = f"<p><strong>{escape(status_words(released))}</strong></p>"
    try:
        released.design()
    except TooFewPeopleError as error:
        return f"<p>{escape(error.message)}</p>{status}" + _listed(_facts(released, provenance))
    caption = escape(_caption(released, provenance))
    heads = "".join(
        f'<th scope="col">{escape(name)}</th>' for name in (*released.schema.names, *COLUMNS)
    )
    rows = "".join(_rows(released))
    notes = [*_facts(released, provenance), *table_warnings(released)]
    return (
        f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table>{status}{_listed(notes)}"
    )


def _listed(notes: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>"


def _caption(released: ReleasedCounts, provenance: Provenance) -> str:
    title = provenance.title or "Estimated shares"
    cells = released.schema.domain_size
    part = f" (the {MOST_ROWS} largest of {cells:,} cells)" if cells > MOST_ROWS else ""
    return f"{title}: {', '.join(released.schema.names)}{part}"


def _rows(released: ReleasedCounts) -> list[str]:
    shares = released.shares()
    shown = np.arange(shares.size)
    if shares.size > MOST_ROWS:
        largest = np.argpartition(-shares, MOST_ROWS)[:MOST_ROWS]
        shown = largest[np.lexsort((largest, -shares[largest]))]
    design = released.design()
    errors, unbiased = cell_errors(released, design)[0][shown], released.unbiased[shown]
    interval = share_interval(unbiased, 1, design, critical_value(LEVEL))
    rows = []
    for position, cell in enumerate(shown.tolist()):
        labels = "".join(
            f'<th scope="row">{escape(label)}</th>' for label in released.schema.labels(cell)
        )
        ends = f"{_percent(interval.low[position])} to {_percent(interval.high[position])}"
        words = "".join(beyond(float(unbiased[position])))
        texts = (_percent(shares[cell]), _percent(errors[position]), ends, words)
        rows.append(f"<tr>{labels}{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>")
    return rows


def _facts(released: ReleasedCounts, provenance: Provenance) -> list[str]:
    facts = [
        mechanism_words(released),
        (
            "shares are the unbiased estimates, shown as zero where noise has taken them below;"
            " intervals are computed from the unbiased estimates themselves"
        ),
    ]
    if provenance.perturbed_by and released.plan.channel is not None:
        facts.append(f"perturbed by {provenance.perturbed_by}")
    return facts + [f"promised: {promise}" for promise in provenance.promises_under(released.plan)]


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
