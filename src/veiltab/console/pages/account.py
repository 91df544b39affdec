"""Keys: making them, unlocking and locking them."""

from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.forms import Form, Typed
from veiltab.console.pages.actions import Done, act
from veiltab.console.rendering import Failure, go, render
from veiltab.crypto.identity import SHORTEST_PASSPHRASE
from veiltab.errors import ParameterError, VeiltabError

router = APIRouter()


@router.get("/begin")
def show_begin(request: Request) -> Response:
    """Ask for the name and the passphrase of a new identity, where the home has none."""
    if request.app.state.console.party.has_identity:
        return go(request, "/")
    return _begin_page(request)


@router.post("/begin")
def begin(request: Request) -> Response:
    """Make the identity; a home has one, and it is never replaced."""

    def work(form: Form) -> Done:
        request.app.state.console.party.begin(form.text("name"), _new_passphrase(form))
        return Done("Your keys are made. Register with a server next.", "/identity")

    def page(failure: Failure, typed: Typed) -> Response:
        return _begin_page(request, failure, typed)

    return act(request, "begin", work, back="/identity", page=page)


def _new_passphrase(form: Form) -> str | None:
    """Return the passphrase that was typed twice, or None if somebody wants none."""
    first, again = form.exact("passphrase"), form.exact("again")
    if form.checked("without"):
        if first or again:
            raise ParameterError(
                "there is a passphrase, and the box says that there is none",
                hint="empty the fields, or take the tick away",
            )
        return None
    if first != again:
        raise ParameterError("the two passphrases differ", hint="type the same one twice")
    return first


def _begin_page(
    request: Request, failure: Failure | None = None, typed: Typed | None = None
) -> Response:
    return render(
        request,
        "begin.html",
        200 if failure is None else 422,
        folder=str(request.app.state.console.party.path),
        shortest=SHORTEST_PASSPHRASE,
        typed=typed or Typed(),
        failure=failure,
    )


@router.get("/unlock")
def show_unlock(request: Request) -> Response:
    """Ask for the passphrase."""
    return _unlock_page(request, Form.of(request).text("next"))


@router.post("/unlock")
def unlock(request: Request) -> Response:
    """Unlock the keys, and go where somebody wanted to go."""
    form, party = Form.of(request), request.app.state.console.party
    try:
        party.unlock(form.exact("passphrase") if party.home.locked else None)
    except VeiltabError as error:
        return _unlock_page(request, form.text("next"), Failure.of(error))
    return go(request, own_path(form.text("next")))


@router.post("/lock")
def lock(request: Request) -> Response:
    """Forget the keys at once."""
    request.app.state.console.party.lock()
    return go(request, "/unlock")


@router.get("/idle")
def idle(request: Request) -> Response:
    """Take the place of a page with results that nobody has used; it is no use of the keys."""
    back = own_path(Form.of(request).text("next"))
    if not request.app.state.console.party.unlocked:
        return go(request, f"/unlock?next={quote(back, safe='/')}")
    return render(request, "idle.html", back=back)


def own_path(path: str) -> str:
    """Return a path within the console; anything else becomes the first page."""
    inside = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if inside and path.isprintable() else "/"


def _unlock_page(request: Request, back: str, failure: Failure | None = None) -> Response:
    home = request.app.state.console.party.home
    return render(
        request,
        "unlock.html",
        200 if failure is None else 403,
        home=home,
        next=own_path(back),
        failure=failure,
    )
