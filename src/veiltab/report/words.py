"""What a report says in words and numbers: intervals, promises, errors, how to cite it."""

import math
from collections.abc import Iterable
from importlib.metadata import version
from statistics import median

from veiltab.core.plan import PURE
from veiltab.errors import ParameterError
from veiltab.estimates import Estimate
from veiltab.estimates.released import BEST, Estimator
from veiltab.report.view import Asked, Background

FEWEST, MOST = 2, 6
"""Decimals of a number in per cent."""

EXACT = 1e-8
"""A standard error below it, in per cent, is none: a release without noise is exact."""


def decimals(errors: Iterable[float | None]) -> int:
    """Return how many decimals show two digits of a typical one of these standard errors."""
    known = [100 * error for error in errors if error is not None and 100 * error > EXACT]
    if not known:
        return FEWEST
    return min(MOST, max(FEWEST, 1 - math.floor(math.log10(median(known)))))


def points(share: float, digits: int = FEWEST) -> str:
    """Return a share in per cent without the sign, or a difference in percentage points."""
    if not math.isfinite(share):
        raise ParameterError(
            f"{share} is no number to print", hint="this is a mistake in veiltab; report it"
        )
    return f"{round(100 * share, digits) + 0.0:.{digits}f}"  # without the sign of a zero


def percent(share: float, digits: int = FEWEST) -> str:
    """Return a share in per cent."""
    return f"{points(share, digits)} %"


def between(low: float, high: float, digits: int = FEWEST) -> str:
    """Return an interval of shares, in per cent without the sign."""
    return f"{points(low, digits)}–{points(high, digits)}"


def significance(p_value: float, replicates: int) -> str:
    """Return a p-value; the smallest that so many draws can show is given as a bound."""
    if least(p_value, replicates):
        return f"< {next((b for b in (0.001, 0.005, 0.01, 0.05) if p_value < b), 1):g}"
    return f"{p_value:.3f}"


def least(p_value: float, replicates: int) -> bool:
    """Tell whether a p-value is the smallest that so many draws can show."""
    return round(p_value * (1 + replicates)) == 1


def small(number: float) -> str:
    """Return a small number as people write it: 10⁻⁶."""
    digits, _, power = f"{number:.3g}".partition("e")
    if not power:
        return digits
    raised = str(int(power)).translate(_RAISED)
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


METHOD = (
    "Lin, Wang and Rane: On the Benefits of Sampling in Privacy Preserving Statistical Analysis on"
    " Distributed Databases. 2013. arXiv:1304.4613."
)
ESTIMATORS: dict[Estimator, str] = {
    "unbiased": "unbiased, as in the paper: right on average, and below zero where next to nobody"
    " is",
    "projected": "the unbiased estimate, moved to the nearest proper distribution: nothing below"
    " zero, and less error",
    "most_likely": "the distribution under which the released counts are the most likely",
}
LIMITS = (
    (
        "The server alone",
        "learns nothing about the values: what it stores is encrypted, and what it perturbs too",
    ),
    ("A curator alone", "learns nothing about the other curators' values"),
    (
        "The server with a researcher",
        "could together read the sampled records, without noise and without names; keep them apart",
    ),
)
SPLIT = (
    "Sampling error is there because not everybody was sampled: it shrinks as the sample grows, and"
    " would be there without any noise. Privacy error is there because records were replaced by"
    " random ones: it is the price of the promise, and its law is known exactly."
)


def interval_words(asked: Asked) -> str:
    """Say what the intervals of a table promise."""
    level = f"{100 * asked.level:g} %"
    if asked.simultaneous:
        return (
            f"All intervals of one table hold together with {level} confidence (a simultaneous"
            " band); those of different tables do not. Shares within groups have intervals that"
            " hold one by one."
        )
    misses = f"{100 * (1 - asked.level):g}"
    return (
        f"Each interval holds by itself with {level} confidence: of a hundred such intervals about"
        f" {misses} miss the truth. They are not simultaneous."
    )


def interval_name(asked: Asked, *, simultaneous: bool | None = None) -> str:
    """Name the intervals in a heading."""
    together = asked.simultaneous if simultaneous is None else simultaneous
    held = "all of the table together" if together else "each by itself"
    return f"{100 * asked.level:g} % interval ({held})"


def population_words(estimate: Estimate, asked: Asked) -> str:
    """Say whom the numbers describe."""
    if asked.population == "super":
        return "the larger population that the respondents were drawn from"
    return f"the {estimate.plan.population_size:,} respondents themselves"


def estimator_words(asked: Asked) -> str:
    """Say how the shares were estimated."""
    best: Estimator = BEST
    return ESTIMATORS[best if asked.estimator == "best" else asked.estimator]


def method_words(asked: Asked) -> str:
    """Say where the intervals come from."""
    band = "; bands by the quantile of the largest error, drawn" if asked.simultaneous else ""
    return (
        "from the unbiased estimate and its exact covariance: score intervals for shares,"
        f" Fieller's within groups, a bootstrap through the noise for Cramér's V{band}"
    )


def promise_words(estimate: Estimate) -> str:
    """Return the promised numbers, in signs."""
    plan = estimate.plan
    return f"ε = {plan.epsilon:g}" + (f", δ = {small(plan.delta)}" if plan.delta else "")


def sample_words(estimate: Estimate) -> str:
    """Return how many were sampled."""
    plan = estimate.plan
    return f"{plan.sample_size:,} of {plan.population_size:,} respondents"


def noise_words(estimate: Estimate) -> str:
    """Say what was done to every record."""
    plan = estimate.plan
    by = estimate.provenance.perturbed_by
    who = f"The server, {by}, perturbed" if by else "A server perturbed"
    return (
        f"{who} every sampled record once, encrypted as it was: with probability"
        f" {100 * plan.keep_probability:.3g} % a record stayed as it is, and else a random cell of"
        f" {plan.domain_size:,} took its place (γ = {plan.gamma:.4g})."
    )


def accounting_words(estimate: Estimate) -> str:
    """Say what the promise counts on."""
    plan = estimate.plan
    if plan.accounting == PURE:
        return "It counts on the secret sample and on the noise (Theorem 1 of the paper)."
    return (
        "It counts on the noise, on the secret sample and on the secret order of the records"
        " (shuffling, by the privacy blanket)."
    )


def software() -> str:
    """Name the program and its version."""
    return f"veiltab {version('veiltab')}"


def citation(estimate: Estimate, background: Background) -> str:
    """Return a sentence to cite the numbers by."""
    origin, names = estimate.provenance, estimate.schema.names
    curators = dict.fromkeys(background.holders[n] for n in names if n in background.holders)
    who = ", ".join(each for each in curators if each)
    study = f", study {origin.study}" if origin.study else ""
    server = f", perturbed by {origin.perturbed_by}" if origin.perturbed_by else ""
    return (
        f"{who + ': ' if who else ''}{origin.title or 'A joint table'}{study}. Shares of"
        f" {', '.join(names)}, estimated on {background.made} with {software()} from"
        f" {sample_words(estimate)}{server}, under {promise_words(estimate)} of differential"
        " privacy."
    )
