"""Keys: unlocking and locking them."""

from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.forms import Form
from veiltab.console.rendering import Failure, go, render
from veiltab.errors import VeiltabError

router = APIRouter()


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
