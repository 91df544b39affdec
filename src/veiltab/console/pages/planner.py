"""The planner: what a promise costs in error, for every mechanism, as a picture of a table."""

import math
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.forms import Form
from veiltab.console.rendering import Failure, render
from veiltab.core.plan import MechanismName, Plan, plan
from veiltab.errors import InputError, ParameterError, VeiltabError

router = APIRouter()

FIELDS = {
    "population": "20000",
    "sizes": "2, 3, 4",
    "epsilon": "1",
    "delta": "0",
    "epsilon_with_curator": "",
    "linkage": "aligned",
    "share": "10",
}
"""The fields of the page, and what stands in them at first."""

WAYS: dict[MechanismName, str] = {
    "decoys": "Decoys: a coin for everybody, and invented records",
    "paper": "The paper's way: a secret sample, and noise by the server",
    "shuffle": "Shuffling: the same, and the secret order counts",
}
NORMAL_95 = 1.959963984540054
MOST_ATTRIBUTES = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to the planner, as the page's fields put it."""

    population: int
    sizes: tuple[int, ...]
    epsilon: float
    delta: float
    epsilon_with_curator: float | None
    linkage: str
    share: float

    @classmethod
    def of(cls, form: Form) -> "Asked":
        """Read the fields; whatever is wrong is said in their words."""
        share = form.number("share", "the share of a cell", 10.0) / 100
        if not 0 <= share <= 1:
            raise ParameterError("the share lies between 0 and 100%", hint="such as 10")
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
            share=share,
        )

    @property
    def cells(self) -> int:
        """The number of joint cells."""
        return math.prod(self.sizes)


@dataclass(frozen=True, slots=True)
class Way:
    """One mechanism on the page: its plan, or why there is none."""

    mechanism: str
    words: str
    plan: Plan | None
    refusal: str
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the width of a cell's 95% interval."""
        return (self.high - self.low) / 2


@router.get("/plan")
def planner(request: Request) -> Response:
    """Show the fields, and the answer to what stands in them."""
    form = Form.of(request)
    typed = FIELDS | {key: value for key, value in form.as_dict().items() if key in FIELDS}
    template = "planner_answer.html" if "hx-request" in request.headers else "planner.html"
    try:
        asked = Asked.of(Form(typed.items()))
        ways = [_way(asked, mechanism) for mechanism in WAYS]
    except VeiltabError as error:
        failure = Failure.of(error)
        return render(request, template, typed=typed, asked=None, ways=[], link="", failure=failure)
    return render(request, template, typed=typed, asked=asked, ways=ways, link=urlencode(typed))


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


def _way(asked: Asked, mechanism: MechanismName) -> Way:
    try:
        chosen = _plan(asked, mechanism)
    except InputError as refused:
        why = f"{refused.message}: {refused.hint}"
        return Way(mechanism, WAYS[mechanism], None, why, 0, 0)
    error = NORMAL_95 * chosen.rmse_per_cell
    low, high = max(0.0, asked.share - error), min(1.0, asked.share + error)
    return Way(mechanism, WAYS[mechanism], chosen, "", low, high)


@lru_cache(maxsize=512)
def _plan(asked: Asked, mechanism: MechanismName) -> Plan:
    matched = asked.linkage == "matched" and mechanism == "decoys"
    return plan(
        population_size=asked.population,
        domain_size=asked.cells,
        epsilon=asked.epsilon,
        delta=0.0 if mechanism == "paper" else asked.delta,
        mechanism=mechanism,
        epsilon_with_curator=asked.epsilon_with_curator,
        linkage="matched" if matched else "aligned",
        curator_cells=asked.sizes if matched else None,
        anyway=True,
    )
