"""The ledger: what each data set may spend, what has spent it, and what that means."""

import math

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.forms import Form, Typed
from veiltab.console.pages.actions import act, typed_before
from veiltab.console.rendering import Failure, go, render
from veiltab.errors import VeiltabError
from veiltab.party.known.names import readable
from veiltab.party.ledgers import StoredLedger
from veiltab.protocol.curator.ledger import Entry, Ledger

router = APIRouter()


@router.get("/ledger")
def ledger(request: Request) -> Response:
    """Show every data set."""
    return _page(request, None, typed_before(request))


@router.post("/ledger")
def set_budget(request: Request) -> Response:
    """Give a data set a budget, or change it."""
    form, home = Form.of(request), request.app.state.console.party.home
    try:
        dataset = form.text("dataset")
        home.set_budget(
            dataset,
            form.number("epsilon", "the budget ε"),
            delta=form.number("delta", "δ") if form.text("delta") else None,
            largest_epsilon=form.number("largest_epsilon", "the largest ε of a study")
            if form.text("largest_epsilon")
            else None,
            smallest_population=form.integer("smallest_population", "the smallest population")
            if form.text("smallest_population")
            else None,
        )
    except VeiltabError as error:
        return _page(request, Failure.of(error), Typed("budget", form))
    return go(request, "/ledger", f"The budget of {readable(dataset)} is set.")


@router.post("/ledger/refund")
def refund(request: Request) -> Response:
    """Take back what a study was charged, if nobody could learn anything from it."""

    def work(form: Form) -> str:
        with request.app.state.console.party.session() as session:
            stored = session.study(form.text("study")).refund(form.text("reason"))
        return refunded(stored)

    def page(failure: Failure, typed: Typed) -> Response:
        return _page(request, failure, typed)

    return act(request, "refund", work, back="/ledger", page=page)


def _page(request: Request, failure: Failure | None, typed: Typed) -> Response:
    home = request.app.state.console.party.home
    return render(
        request,
        "ledger.html",
        200 if failure is None else 422,
        ledgers=home.budgets(),
        odds=odds,
        counted=counted,
        typed=typed,
        failure=failure,
    )


def refunded(stored: StoredLedger) -> str:
    """Say what is left after a refund."""
    return (
        f"The charge is taken back: ε = {stored.epsilon_left:g} of"
        f" {stored.ledger.epsilon_limit:g} is left for {readable(stored.ledger.dataset)}."
    )


def counted(ledger: Ledger) -> dict[str, Entry]:
    """Return what still counts, by the study's id."""
    refunds = {refund.study for refund in ledger.refunds if refund.done}
    return {entry.study.hex(): entry for entry in ledger.entries if entry.study not in refunds}


def odds(epsilon: float) -> str:
    """Say what ε means to a person: how far a guess at even odds can move, rounded up."""
    if epsilon <= 0:
        return "nothing can be learnt about anybody"
    if epsilon > math.log(999):
        return "a guess at even odds about one person could become near certainty"
    chance = math.ceil(1000 / (1 + math.exp(-epsilon))) / 10
    return f"a guess at 50% about one person could become {chance:g}% at most"
