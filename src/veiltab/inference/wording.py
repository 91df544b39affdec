"""What quantities and tables say about their numbers: one sentence for one matter, everywhere."""

from math import inf

from veiltab.core.released import ReleasedCounts

DOUBT = "the denominator is itself uncertain: the interval is wide and rough"
NOTHING_EXCLUDED = "the release excludes no value at all"

_NAMES = {-1.0: "−1", 0.0: "zero", 1.0: "one"}


def described(released: ReleasedCounts) -> str:
    """Name the attributes of a table, and how many cells it has."""
    names = " × ".join(released.schema.names)
    cells = released.schema.domain_size
    return f"{names}, {cells:,} cell{'' if cells == 1 else 's'}"


def beyond(estimate: float, least: float = 0.0, most: float = 1.0) -> tuple[str, ...]:
    """Say if the noise has taken an unbiased estimate beyond what is possible."""
    if least <= estimate <= most:
        return ()
    side, limit = ("below", least) if estimate < least else ("above", most)
    unbiased = f"the unbiased estimate is {_apart(estimate, limit)}, {side} {_name(limit)}"
    return (f"{unbiased} because of the noise; it is shown as {_name(limit)}",)


def beyond_scores(estimate: float, least: float, most: float) -> tuple[str, ...]:
    """Say if the noise has taken a mean or a variance beyond what the scores allow."""
    if least <= estimate <= most:
        return ()
    side, shown = ("below", least) if estimate < least else ("above", most)
    unbiased = f"the unbiased estimate is {estimate:.4g}, {side} what is possible"
    return (f"{unbiased} because of the noise; it is shown as {shown:.4g}",)


def near_zero(vague: str) -> str:
    """Say that a denominator, the share of a condition, may be zero."""
    what = f"the denominator, the share of {vague}," if vague else "the denominator"
    return f"{what} cannot be distinguished from zero"


def nothing_known(vague: str, *, clear: bool) -> str:
    """Say why nothing can be said about a quotient."""
    return NOTHING_EXCLUDED if clear else near_zero(vague)


def about_quotient(
    clear: tuple[bool, bool],
    ends: tuple[float, float],
    limits: tuple[float, float],
    vague: str,
) -> tuple[str, ...]:
    """Say which end of a quotient's interval is missing, and why, or that it is doubtful.

    ``clear`` tells whether the denominator can be told from zero, and whether clearly.  ``limits``
    are the least and the greatest value that a quotient can have, and ``vague`` names the
    conditions whose shares may be zero.
    """
    if ends[1] == inf:
        return (f"there is no upper limit, because {near_zero(vague)}",)
    if clear[0] or limits[1] == inf:
        return () if clear[1] else (DOUBT,)
    if ends[1] >= limits[1]:
        below = _name(limits[1])
        return (f"there is no upper limit below {below}, because {near_zero(vague)}",)
    if ends[0] <= limits[0]:
        return (f"there is no lower limit above {_name(limits[0])}, because {near_zero(vague)}",)
    return (DOUBT,)


def _apart(estimate: float, limit: float) -> str:
    """Write a number with four digits, or with so many that it differs from the limit."""
    texts = (f"{estimate:.{digits}g}" for digits in (4, 6, 9, 12))
    return next((text for text in texts if float(text) != limit), f"{estimate!r}")


def _name(limit: float) -> str:
    return _NAMES.get(limit, f"{limit:,.0f}")
