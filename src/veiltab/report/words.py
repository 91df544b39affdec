"""The sentences of a report: what intervals promise, what was done to records, how to cite it."""

from importlib.metadata import version

from veiltab.core.plan import PURE
from veiltab.core.released import BEST, Estimator, ReleasedCounts
from veiltab.inference.provenance import Provenance
from veiltab.report.formatting import small
from veiltab.report.view import ReportOptions

METHOD = (
    "Lin, Wang and Rane: On the Benefits of Sampling in Privacy Preserving Statistical Analysis on"
    " Distributed Databases. 2013. arXiv:1304.4613."
)
ESTIMATORS: dict[Estimator, str] = {
    "unbiased": "the unbiased estimate of the paper: correct on average, but it can fall below zero"
    " in cells that hold next to nobody",
    "projected": "the unbiased estimate, projected on the nearest proper distribution: no share is"
    " negative, and the error is smaller",
    "most_likely": "the maximum likelihood estimate: the distribution under which the released"
    " counts are most likely",
}
LIMITS = (
    (
        "The server alone",
        "learns nothing about the values: whatever it stores and perturbs is encrypted",
    ),
    ("A curator alone", "learns nothing about the other curators' values"),
    (
        "The server together with a researcher",
        "could read the sampled records without noise, though without names: they must not collude",
    ),
)
SPLIT = (
    "Sampling error arises because not everybody was sampled: it shrinks as the sample grows, and"
    " would be there without any noise. Privacy error arises because records were replaced by"
    " random ones: it is the price of the promise, and its distribution is known exactly."
)
LINKAGES = {
    "aligned": "all curators hold the same",
    "matched": "those whom all curators hold, matched by the server",
}
PADS = {"stream": "a stream cipher", "one-time": "one-time pads"}


def interval_words(options: ReportOptions) -> str:
    """Say what the intervals of a table promise."""
    level = f"{100 * options.level:g} %"
    if options.simultaneous:
        return (
            f"All intervals of one table hold together with {level} confidence (a simultaneous"
            " band); those of different tables do not. Intervals of shares within groups are"
            " pointwise: each holds by itself."
        )
    misses = f"{100 * (1 - options.level):g}"
    return (
        f"Each interval holds by itself with {level} confidence: of a hundred such intervals about"
        f" {misses} miss the truth. They are not simultaneous."
    )


def interval_name(options: ReportOptions, *, simultaneous: bool | None = None) -> str:
    """Name the intervals in a heading."""
    together = options.simultaneous if simultaneous is None else simultaneous
    return f"{'simultaneous' if together else 'pointwise'} {100 * options.level:g} % interval"


def population_words(released: ReleasedCounts, options: ReportOptions) -> str:
    """Say whom the numbers describe."""
    if options.population == "super":
        return "the larger population that the respondents were drawn from"
    return f"the {released.plan.population_size:,} respondents themselves"


def estimator_words(options: ReportOptions) -> str:
    """Say how the shares were estimated."""
    return ESTIMATORS[BEST if options.estimator == "best" else options.estimator]


def method_words(options: ReportOptions) -> str:
    """Say how the intervals were computed."""
    band = (
        "; the simultaneous band uses the simulated quantile of the largest standardised error"
        if options.simultaneous
        else ""
    )
    return (
        "computed from the unbiased estimate and its plug-in covariance: score intervals for"
        " shares, Fieller's method within groups, and a parametric bootstrap through the noise for"
        f" Cramér's V{band}"
    )


def promise_words(released: ReleasedCounts) -> str:
    """Return the promised ε and δ."""
    plan = released.plan
    return f"ε = {plan.epsilon:g}" + (f", δ = {small(plan.delta)}" if plan.delta else "")


def sample_words(released: ReleasedCounts) -> str:
    """Return how many respondents were sampled."""
    plan = released.plan
    return f"{plan.sample_size:,} of {plan.population_size:,} respondents"


def guarantee_words(released: ReleasedCounts) -> str:
    """Say what differential privacy guarantees to a respondent."""
    delta = ", plus δ" if released.plan.delta else ""
    return (
        "Every respondent was promised differential privacy: replacing their record by any other"
        " one changes the probability of any outcome of the release by at most a factor of e to"
        f" the power of ε{delta}."
    )


def noise_words(released: ReleasedCounts, provenance: Provenance) -> str:
    """Say what was done to every record."""
    plan, ranked = released.plan, released.plan.ranked
    by = provenance.perturbed_by
    who = f"The server, {by}, perturbed" if by else "A server perturbed"
    return (
        f"{who} every sampled record once, while it was encrypted: with probability"
        f" {100 * ranked.keep_probability:.3g} % it kept the record, and otherwise it replaced it"
        f" by a cell drawn uniformly from all {plan.domain_size:,} (γ = {ranked.gamma:.4g})."
    )


def accounting_words(released: ReleasedCounts) -> str:
    """Say what the promise relies on."""
    if released.plan.accounting == PURE:
        return (
            "The promise relies on the secrecy of the sample and on the noise (Theorem 1 of the"
            " paper)."
        )
    return (
        "The promise relies on the noise, on the secrecy of the sample and on the secret order of"
        " the records (shuffling, accounted for by the privacy blanket)."
    )


def software() -> str:
    """Name the program and its version."""
    return f"veiltab {version('veiltab')}"


def citation(released: ReleasedCounts, provenance: Provenance, made: str) -> str:
    """Return a sentence to cite the numbers by."""
    names, holders = released.schema.names, provenance.holders
    curators = ", ".join(dict.fromkeys(holders[name] for name in names if name in holders))
    study = f", study {provenance.study}" if provenance.study else ""
    server = f", perturbed by {provenance.perturbed_by}" if provenance.perturbed_by else ""
    return (
        f"{curators + ': ' if curators else ''}{provenance.title or 'A joint table'}{study}."
        f" Shares of {', '.join(names)}, estimated on {made} with {software()} from"
        f" {sample_words(released)}{server}, under differential privacy with"
        f" {promise_words(released)}."
    )
