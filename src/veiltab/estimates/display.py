"""An estimate in a notebook: a plain table that a screen reader can read, and nothing loaded."""

from html import escape

import numpy as np

from veiltab.core.intervals import share_interval
from veiltab.core.uncertainty import critical_value
from veiltab.estimates.released import Released

MOST_ROWS = 60
"""Of a larger table the largest cells are shown."""

LEVEL = 0.95


def estimate_html(released: Released, warnings: tuple[str, ...]) -> str:
    """Return the largest cells with their intervals, the promises and the warnings."""
    caption = escape(_caption(released))
    heads = "".join(
        f'<th scope="col">{escape(name)}</th>'
        for name in (*released.schema.names, "share", "standard error", "95% interval per cell")
    )
    rows = "".join(_rows(released))
    notes = "".join(f"<li>{escape(note)}</li>" for note in (*_facts(released), *warnings))
    return (
        f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table><ul>{notes}</ul>"
    )


def _caption(released: Released) -> str:
    title = released.provenance.title or "Estimated shares"
    cells = released.schema.domain_size
    part = f" (the {MOST_ROWS} largest of {cells:,} cells)" if cells > MOST_ROWS else ""
    return f"{title}: {', '.join(released.schema.names)}{part}"


def _rows(released: Released) -> list[str]:
    shares = released.plausible
    shown = np.arange(shares.size)
    if shares.size > MOST_ROWS:
        largest = np.argpartition(-shares, MOST_ROWS)[:MOST_ROWS]
        shown = largest[np.lexsort((largest, -shares[largest]))]
    uncertainty = released.uncertainty()
    errors = np.sqrt(np.maximum(uncertainty.cells().total[shown], 0))
    unbiased = released.unbiased[shown]
    interval = share_interval(unbiased, 1, uncertainty.design, critical_value(LEVEL))
    rows = []
    for position, cell in enumerate(shown.tolist()):
        labels = "".join(
            f'<th scope="row">{escape(label)}</th>' for label in released.schema.labels(cell)
        )
        ends = f"{_percent(interval.low[position])} to {_percent(interval.high[position])}"
        numbers = (_percent(shares[cell]), _percent(errors[position]), ends)
        rows.append(f"<tr>{labels}{''.join(f'<td>{number}</td>' for number in numbers)}</tr>")
    return rows


def _facts(released: Released) -> list[str]:
    plan = released.plan
    facts = [
        (
            f"{plan.sample_size:,} of {plan.population_size:,} respondents were sampled;"
            f" each record was kept with probability {plan.keep_probability:.4g}, else a random"
            " one took its place"
        ),
        (
            "shares are the unbiased estimate, projected on the proper distributions; intervals"
            " come from the unbiased estimate itself"
        ),
    ]
    if released.provenance.perturbed_by:
        facts.append(f"perturbed by {released.provenance.perturbed_by}")
    return facts + [f"promised: {promise}" for promise in released.promises]


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
