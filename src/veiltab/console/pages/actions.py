"""What all forms that change something share: they ask, happen once, and lose nothing typed."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request
from starlette.responses import Response

from veiltab.console.forms import Form, Typed
from veiltab.console.rendering import Failure, go, render
from veiltab.console.tasks import Task
from veiltab.errors import ConsoleLockedError, VeiltabError

UNCONFIRMED = Failure(
    "nothing was done: the box was not ticked",
    "tick it to say that you have read what this does",
    "not_confirmed",
)

STOPPED = Failure(
    "the table was not read to its end: you have stopped that",
    "open it again, or choose another one",
    "stopped",
)

BUSY = "Another table is being read. Stop that first, or wait for its end."

MOMENT = 0.3
"""Seconds to wait for a table before a page shows how far it is: most are read by then."""

Page = Callable[[Failure, Typed], Response]
"""Shows a page again, with what went wrong and what was typed."""


@dataclass(frozen=True, slots=True)
class Done:
    """What to say about what was done, and the page that it led to."""

    message: str
    page: str


def act(
    request: Request, name: str, work: Callable[[Form], str | Done], *, back: str, page: Page
) -> Response:
    """Carry out the form of this name once, if its box is ticked; ``back`` says what was done.

    ``work`` returns what to say, and where if not on ``back``.  If it fails, ``page`` shows the
    form with all that was typed; if the keys are locked, so does the page after they are unlocked.
    """
    state, form = request.app.state.console, Form.of(request)
    typed = Typed(name, form)
    if not form.checked("sure"):
        return page(UNCONFIRMED, typed)
    try:
        done = state.once.run(form.text("once"), lambda: work(form))
    except ConsoleLockedError:
        state.kept.leave(request.scope["veiltab.session"].cookie, typed)
        raise
    except VeiltabError as error:
        return page(Failure.of(error), typed)
    if isinstance(done, Done):
        return go(request, done.page, done.message)
    return go(request, back, done)


def read_table(
    request: Request, name: str, work: Callable[[Task], object], *, page: str
) -> Response:
    """Begin to read the table that a form names, and go to the page that says how far that is."""
    form = Form.of(request)
    task = request.app.state.console.tasks.start(name, "Reading your table", work, form)
    task.wait(MOMENT)
    return go(request, page, None if task.typed is form else BUSY)


def progress_page(
    request: Request, task: Task, *, back: tuple[str, str], **values: object
) -> Response:
    """Show how far a task is; ``back`` is the page that it was begun on, and what it is called."""
    whole = "hx-request" not in request.headers
    return render(
        request,
        "progress.html" if whole else "progress_part.html",
        here=request.url.path,
        back=back,
        task=task,
        failure=None if task.failure is None else Failure.of(task.failure),
        **values,
    )


def why_not_read(task: Task) -> Failure | None:
    """Say why a task that has ended has not read its table."""
    if task.stopped:
        return STOPPED
    return None if task.failure is None else Failure.of(task.failure)


def typed_before(request: Request) -> Typed:
    """Return what was typed when the keys were locked in between, or nothing."""
    waiting = request.app.state.console.kept.take(request.scope["veiltab.session"].cookie)
    return waiting[-1] if waiting else Typed()
