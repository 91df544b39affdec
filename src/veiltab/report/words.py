"""The sentences of a report: what intervals promise, what was done to records, how to cite it."""

from importlib.metadata import version

from veiltab.core.plan import PURE, SHUFFLE
from veiltab.core.released import Estimator, ReleasedCounts
from veiltab.inference.provenance import Provenance
from veiltab.report.formatting import small
from veiltab.report.view import ReportOptions

METHOD = (
    "Lin, Wang and Rane: On the Benefits of Sampling in Privacy Preserving Statistical Analysis on"
    " Distributed Databases. 2013. arXiv:1304.4613."
)
DECOYS_METHOD = (
    "Decoys, that is, a coin for each respondent and invented records that only the curators can"
    " tell from real ones, are derived in veiltab's documentation."
)
ESTIMATORS: dict[Estimator, str] = {
    "clipped": "the unbiased estimate of each share, shown as 0 or 1 where the noise has taken it"
    " beyond: one question has one answer, whichever table it is asked of",
    "unbiased": "the unbiased estimate: correct on average, but it can fall below zero in cells"
    " that hold next to nobody",
    "projected": "the unbiased estimate, projected on the nearest proper distribution: no share is"
    " negative, and all shares sum to one",
    "most_likely": "the maximum likelihood estimate: the distribution under which the released"
    " counts are most likely",
}
QUASI = "the maximum quasi-likelihood estimate, in which cells count by the inverse of their noise"
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
DECOY_LIMITS = (
    ("The server alone", "learns nothing about the values: all that it stores is encrypted"),
    ("A curator alone", "learns nothing about the other curators' values"),
    (
        "A researcher whom a curator helps",
        "is told which rows are decoys: only the server's noise is left, if it adds any",
    ),
    (
        "A curator who leaves decoys out on purpose, and lies about it",
        "takes the promise from everybody: the curators rely on each other",
    ),
)
SPLIT = (
    "Sampling error arises because not everybody was sampled: it shrinks as the sample grows, and"
    " would be there without any noise. Privacy error arises because records were replaced by"
    " random ones: it is the price of the promise, and its distribution is known exactly."
)
DECOY_SPLIT = (
    "Sampling error arises because not everybody took part: it shrinks as more people do, and"
    " would be there without any decoys. Privacy error arises because of decoys and noise: it is"
    " the price of the promise, and its distribution is known exactly."
)
EVERYBODY_SPLIT = (
    "Everybody took part: there is sampling error only if the numbers describe a larger population"
    " than the respondents. Privacy error arises because of decoys and noise: it is the price of"
    " the promise, and its distribution is known exactly."
)
LINKAGES = {
    "aligned": "all curators hold the same",
    "matched": "those whom all curators hold, matched by the server",
}
PADS = {"stream": "a stream cipher", "one-time": "one-time pads"}


def interval_words(options: ReportOptions) -> str:
    """Say what the intervals of a table promise."""
    level = f"{100 * options.level:g}%"
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
    return f"{'simultaneous' if together else 'pointwise'} {100 * options.level:g}% interval"


def population_words(released: ReleasedCounts, options: ReportOptions) -> str:
    """Say whom the numbers describe."""
    if options.population == "super":
        return "the larger population that the respondents were drawn from"
    if not released.size_known:
        return "the people whom all curators hold"
    return f"the {released.plan.population_size:,} respondents themselves"


def estimator_words(released: ReleasedCounts, options: ReportOptions) -> str:
    """Say how the shares were estimated."""
    if options.estimator == "most_likely" and has_decoys(released):
        return QUASI
    return ESTIMATORS[options.estimator]


def has_decoys(released: ReleasedCounts) -> bool:
    """Tell whether invented records were mixed in."""
    return released.plan.mechanism.decoys is not None


def method_words(options: ReportOptions) -> str:
    """Say how the intervals were computed."""
    band = (
        "; the simultaneous band uses the law of the largest error, drawn for small tables and"
        " taken from the cells' tails for large or sparse ones"
        if options.simultaneous
        else ""
    )
    return (
        "computed from the unbiased estimate and its plug-in covariance: score intervals for"
        " shares, Fieller's method within groups, and the law of the estimate to second order for"
        f" Cramér's V{band}; the colours of heat maps use the standard error under independence"
    )


def promise_words(released: ReleasedCounts) -> str:
    """Return the promised ε and δ."""
    plan = released.plan
    return f"ε = {plan.epsilon:g}" + (f", δ = {small(plan.delta)}" if plan.delta else "")


def sample_words(released: ReleasedCounts) -> str:
    """Return how respondents came to take part."""
    plan, coin = released.plan, released.plan.coin_probability
    if coin is None:
        return f"{plan.sample_size:,} of {plan.population_size:,} respondents"
    known = released.size_known
    people = f"{plan.population_size:,} respondents" if known else "the people in common"
    chance = "" if coin == 1 else f", each with probability {100 * coin:.3g}%,"
    whole = "all " if coin == 1 else ""
    return f"{whole}{people}{chance} among about {plan.expected_decoys:,.0f} decoys"


def error_words(released: ReleasedCounts) -> str:
    """Say where the two kinds of error come from."""
    if not has_decoys(released):
        return SPLIT
    return EVERYBODY_SPLIT if released.plan.coin_probability == 1 else DECOY_SPLIT


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
    if has_decoys(released):
        return f"{_decoy_words(released)} {_channel_words(released, provenance, 'row')}"
    return _channel_words(released, provenance, "record")


def _decoy_words(released: ReleasedCounts) -> str:
    plan = released.plan
    coin = plan.coin_probability
    everybody = (
        "Every respondent took part."
        if coin in (None, 1)
        else f"Every respondent took part with probability {100 * (coin or 0):.3g}%, decided by a"
        " secret number that only the curators can compute."
    )
    return (
        f"{everybody} The curators mixed in decoys, invented records for each of the"
        f" {plan.domain_size:,} cells, about {plan.expected_decoys:,.0f} in all; how many there are"
        " is as secret as who took part."
    )


def _channel_words(released: ReleasedCounts, provenance: Provenance, row: str) -> str:
    plan, by = released.plan, provenance.perturbed_by
    if plan.keep_probability is None or plan.gamma is None:
        return "The server added no noise of its own."
    who = f"The server, {by}, perturbed" if by else "A server perturbed"
    return (
        f"{who} every {row} once, while it was encrypted: with probability"
        f" {100 * plan.keep_probability:.3g}% it kept the {row}, and otherwise it"
        f" replaced it by a cell drawn uniformly from all {plan.domain_size:,}"
        f" (γ = {plan.gamma:.4g})."
    )


def accounting_words(released: ReleasedCounts) -> str:
    """Say what the promise relies on."""
    if released.plan.accounting == PURE:
        return (
            "The promise relies on the secrecy of the sample and on the noise (Theorem 1 of the"
            " paper)."
        )
    if released.plan.accounting == SHUFFLE:
        return (
            "The promise relies on the noise, on the secrecy of the sample and on the secret order"
            " of the records (shuffling, accounted for by the privacy blanket)."
        )
    return (
        "The promise relies on the decoys and on a secret that all curators share, and holds"
        " against the researcher and the server together. It is computational: coins, decoys and"
        " order come from a cipher under that secret."
    )


def publication_words(released: ReleasedCounts) -> str:
    """Say what was done to make this copy, or why it is not to be passed on."""
    noise = released.publication
    if noise is None:
        return (
            "These are the researcher's own numbers. Somebody who knows more than the researcher,"
            " as a curator does, could learn more from them than from a published copy"
            " (veiltab publish, or estimate.publish())."
        )
    return (
        f"Each of the {noise.cells:,} counts got noise of its own before publication, with a"
        f" standard deviation of {float(noise.variance) ** 0.5:.3g}, drawn once and for all. All"
        " intervals and tests count this noise as well. Whoever only reads published copies learns"
        f" at most ε = {noise.epsilon:g} about a respondent, whatever else they know."
    )


def software() -> str:
    """Name the program and its version."""
    return f"veiltab {version('veiltab')}"


def citation(released: ReleasedCounts, provenance: Provenance, made: str) -> str:
    """Return a sentence to cite the numbers by."""
    names, holders = released.schema.names, provenance.holders
    curators = ", ".join(dict.fromkeys(holders[name] for name in names if name in holders))
    study = f", study {provenance.study}" if provenance.study else ""
    noisy = provenance.perturbed_by and released.plan.channel is not None
    server = f", perturbed by {provenance.perturbed_by}" if noisy else ""
    copy = " Published copy." if released.publication is not None else ""
    return (
        f"{curators + ': ' if curators else ''}{provenance.title or 'A joint table'}{study}."
        f" Shares of {', '.join(names)}, estimated on {made} with {software()} from"
        f" {sample_words(released)}{server}, under differential privacy with"
        f" {promise_words(released)}.{copy}"
    )
