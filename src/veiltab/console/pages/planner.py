"""The planner: what a promise costs in error, for every mechanism, as a picture of a table."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from threading import Thread
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.forms import Form
from veiltab.console.pages.ledger import odds
from veiltab.console.proposing import PROMISE
from veiltab.console.rendering import Failure, render
from veiltab.core.plan import MechanismName, Plan, plan
from veiltab.core.planner import Question
from veiltab.errors import InputError, ParameterError, VeiltabError

router = APIRouter()

FIELDS = PROMISE | {"population": "20000", "sizes": "2, 3, 4", "shares": "30, 10, 2"}
"""The fields of the page, and what stands in them at first."""

WAYS: dict[MechanismName, str] = {
    "decoys": "Decoys",
    "paper": "The paper's way",
    "shuffle": "Shuffling",
}
MEANS = {
    "decoys": "a coin for everybody, and invented records",
    "paper": "a secret sample, and noise by the server",
    "shuffle": "the same, and the secret order counts",
    "trusted": "not on offer: one party that everybody trusts with all records",
}
AGAINST = {
    "decoys": "the researcher, and the researcher with the server",
    "paper": "the researcher alone",
    "shuffle": "the researcher alone, if the order stays secret",
    "trusted": "the researcher alone",
}
"""Whom the promise is kept against."""

NORMAL_95 = 1.959963984540054
MOST_ATTRIBUTES, MOST_SHARES = 64, 8
ROOM = 1.05
MOST_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to the planner, as the page's fields put it."""

    population: int
    sizes: tuple[int, ...]
    epsilon: float
    delta: float
    epsilon_with_curator: float | None
    linkage: str

    @classmethod
    def of(cls, form: Form) -> "Asked":
        """Read the fields; whatever is wrong is said in their words."""
        with_curator = form.text("epsilon_with_curator")
        return cls(
            population=form.integer("population", "the number of respondents", 20_000),
            sizes=_sizes(form.text("sizes", FIELDS["sizes"])),
            epsilon=form.number("epsilon", "ε", 1.0),
            delta=form.number("delta", "δ", 0.0),
            epsilon_with_curator=form.number("epsilon_with_curator", "ε with a curator")
            if with_curator
            else None,
            linkage=form.choice("linkage", ("aligned", "matched"), "aligned"),
        )

    @property
    def cells(self) -> int:
        """The number of joint cells."""
        return math.prod(self.sizes)


@dataclass(frozen=True, slots=True)
class Bar:
    """A cell of a table: its true share, and where its estimate will lie in 19 of 20 studies."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Way:
    """One mechanism on the page: its error, or why there is none."""

    mechanism: str
    words: str
    refusal: str = ""
    per_cell: float = 0.0
    bars: tuple[Bar, ...] = ()
    link: str = ""

    @property
    def means(self) -> str:
        """What is done."""
        return MEANS[self.mechanism]

    @property
    def against(self) -> str:
        """Whom the promise is kept against."""
        return AGAINST[self.mechanism]

    @property
    def half(self) -> float:
        """Half the width of a cell's 95% interval, in percentage points."""
        return 100 * NORMAL_95 * self.per_cell

    def percent(self, share: float) -> str:
        """Write an end of an interval, with as many decimals as its width has a use for."""
        decimals = 1 - math.floor(math.log10(self.half)) if self.half > 0 else 0
        return f"{100 * share:.{min(max(decimals, 0), MOST_DECIMALS)}f}%"


@router.get("/plan")
def planner(request: Request) -> Response:
    """Show the fields, and the answer to what stands in them."""
    _load_the_rest()
    form = Form.of(request)
    typed = FIELDS | {key: value for key, value in form.as_dict().items() if key in FIELDS}
    template = "planner_answer.html" if "hx-request" in request.headers else "planner.html"
    try:
        fields = Form(typed.items())
        asked, shares = Asked.of(fields), _shares(fields.text("shares", FIELDS["shares"]))
        ways = [_drawn(way, typed, shares) for way in _ways(asked)]
        chosen = _decoys(asked)
    except VeiltabError as error:
        failure = Failure.of(error)
        return render(
            request, template, typed=typed, asked=None, ways=[], plan=None, failure=failure
        )
    ends = [bar.high for way in ways for bar in way.bars] or [1.0]
    return render(
        request,
        template,
        typed=typed,
        asked=asked,
        ways=ways,
        plan=chosen if isinstance(chosen, Plan) else None,
        shares=shares,
        odds=odds,
        end=min(1.0, ROOM * max(ends)),
    )


@lru_cache(maxsize=1)
def _load_the_rest() -> None:
    """Load SciPy while somebody looks at the page: shuffling needs it as soon as there is a δ."""
    Thread(target=import_module, args=("veiltab.core.accounting",), daemon=True).start()


def _sizes(text: str) -> tuple[int, ...]:
    """Read how many categories each attribute has."""
    parts = text.replace("×", ",").replace("x", ",").replace(";", ",").split(",")
    try:
        sizes = tuple(int(part) for part in parts if part.strip())
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1 or len(sizes) > MOST_ATTRIBUTES:
        raise ParameterError(
            "write how many categories each attribute has, separated by commas",
            hint="such as 2, 3, 4 for a table of 24 cells",
        )
    return sizes


def _shares(text: str) -> tuple[float, ...]:
    """Read the true shares of some cells, in percent."""
    parts = text.replace("%", " ").replace(";", " ").replace(",", " ").split()
    try:
        shares = tuple(float(part) / 100 for part in parts)
    except ValueError:
        shares = ()
    within = all(0 <= share <= 1 for share in shares) and sum(shares) <= 1 + 1e-9
    if not shares or not within or len(shares) > MOST_SHARES:
        raise ParameterError(
            f"write the shares of up to {MOST_SHARES} cells of your table in percent, separated by"
            " commas; together at most 100",
            hint="such as 30, 10, 2",
        )
    return shares


def _drawn(way: Way, typed: dict[str, str], shares: tuple[float, ...]) -> Way:
    """Add the bars of a table, and the link that takes the promise to a new study."""
    if way.refusal:
        return way
    half = NORMAL_95 * way.per_cell
    bars = tuple(Bar(share, max(0.0, share - half), min(1.0, share + half)) for share in shares)
    carried = typed | {"mechanism": way.mechanism}
    del carried["shares"]
    if way.mechanism != "decoys":  # these are promises of decoys
        carried["epsilon_with_curator"] = ""
    if way.mechanism == "paper":
        carried["delta"] = "0"
    return replace(way, bars=bars, link=urlencode(carried))


@lru_cache(maxsize=512)
def _ways(asked: Asked) -> tuple[Way, ...]:
    """Return every mechanism for a question; the shares that are drawn do not matter."""
    return tuple(_way(asked, mechanism) for mechanism in WAYS) + _trusted(asked)


def _way(asked: Asked, mechanism: MechanismName) -> Way:
    try:
        rmse = _rmse(asked, mechanism)
    except InputError as refused:
        why = f"{refused.message}: {refused.hint}"
        return Way(mechanism, WAYS[mechanism], why)
    return Way(mechanism, WAYS[mechanism], per_cell=rmse / math.sqrt(asked.cells))


def _rmse(asked: Asked, mechanism: MechanismName) -> float:
    if mechanism == "decoys":
        found = _decoys(asked)
        if isinstance(found, InputError):
            raise found
        return found.rmse
    question = Question(
        population_size=asked.population,
        domain_size=asked.cells,
        delta=0.0 if mechanism == "paper" else asked.delta,
        mechanism=mechanism,
        epsilon_with_curator=asked.epsilon_with_curator,
    )
    if mechanism == "shuffle":  # the exact search takes seconds, and changes a few percent
        return question.shuffled_rmse_at_most(asked.epsilon)
    return question.plan_for_epsilon(asked.epsilon).rmse


def _trusted(asked: Asked) -> tuple[Way, ...]:
    found = _decoys(asked)
    if isinstance(found, InputError):
        return ()
    per_cell = found.trusted_party_rmse / math.sqrt(asked.cells)
    return (Way("trusted", "A trusted party", per_cell=per_cell),)


@lru_cache(maxsize=512)
def _decoys(asked: Asked) -> Plan | InputError:
    """Return the plan with decoys, or why there is none."""
    matched = asked.linkage == "matched"
    try:
        return plan(
            population_size=asked.population,
            domain_size=asked.cells,
            epsilon=asked.epsilon,
            delta=asked.delta,
            mechanism="decoys",
            epsilon_with_curator=asked.epsilon_with_curator,
            linkage="matched" if matched else "aligned",
            curator_cells=asked.sizes if matched else None,
            anyway=True,
        )
    except InputError as refused:
        return refused
