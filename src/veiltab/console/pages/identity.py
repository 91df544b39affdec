"""Who this party is, which server it trusts, and whom it knows: compared, blocked or neither."""

from collections.abc import Callable
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.forms import Form, Typed
from veiltab.console.keys import PATIENCE, ConsoleParty
from veiltab.console.pages.actions import act, typed_before
from veiltab.console.rendering import Failure, render
from veiltab.errors import InputError, VeiltabError
from veiltab.party.connection import Retry
from veiltab.party.home import Home, identity_text, parse_identity, read_identity
from veiltab.party.known.fingerprints import check_digits
from veiltab.party.known.names import readable
from veiltab.party.registration import meet
from veiltab.wire.contract import PublicIdentity
from veiltab.wire.invitations import looks_like_code, read_code

router = APIRouter()


@router.get("/identity")
def identity(request: Request) -> Response:
    """Show who this party is, and which server it trusts."""
    return _page(request, None, typed_before(request))


@router.post("/identity/register")
def register(request: Request) -> Response:
    """Register with the server of an invitation, whose fingerprint was compared."""
    party: ConsoleParty = request.app.state.console.party

    def work(form: Form) -> str:
        keys = party.identity()  # before a server is asked
        place, typed_code = form.path("place"), form.exact("code")
        if looks_like_code(place):
            raise InputError(
                "this is a code, and not where the server is",
                hint="type the server's address here, and the code into its own field",
            )
        check_digits(form.text("digits"))
        code = read_code(typed_code) if typed_code.strip() else None
        authority = Path(form.path("ca_file")) if form.text("ca_file") else None
        met = meet(party.home, place, ca_file=authority, retry=Retry(total=PATIENCE))
        met.check_fingerprint(form.text("digits"))
        code = code or met.code
        if code is None:
            raise InputError(
                "an address needs the code of an invitation too",
                hint="type the code, or the path of the operator's file instead of the address",
            )
        pinned = met.finish(keys, code)
        return f"You are registered with {readable(pinned.identity.name)}."

    return _do(request, "register", work)


@router.get("/identity/public.json")
def public_identity(request: Request) -> Response:
    """Hand over the file that other parties need; it holds no secret."""
    text = identity_text(request.app.state.console.party.home.public)
    headers = {"content-disposition": 'attachment; filename="identity.json"'}
    return Response(text, media_type="application/json; charset=utf-8", headers=headers)


@router.post("/identity/add")
def add(request: Request) -> Response:
    """Remember a party by its file, as one that was not compared."""

    def work(form: Form) -> str:
        identity = met(request.app.state.console.party.home, form.text("identity"))
        return f"You know {readable(identity.name)}. Compare the fingerprint by telephone."

    return _do(request, "add", work)


@router.post("/identity/verify")
def verify(request: Request) -> Response:
    """Remember that somebody has compared a party's fingerprint."""

    def work(form: Form) -> str:
        known = request.app.state.console.party.home.known
        name = form.text("name") or None
        verified = known.verify(_party(form), form.text("digits"), name=name)
        return f"You have compared the fingerprint of {readable(verified.name)}."

    return _do(request, "verify", work)


@router.post("/identity/block")
def block(request: Request) -> Response:
    """Have nothing to do with a party any more."""

    def work(form: Form) -> str:
        with request.app.state.console.party.session() as session:
            blocked = session.block(_party(form))
        return f"{readable(blocked.name)} is blocked: you and the server refuse their proposals."

    return _do(request, "block", work)


@router.post("/identity/unblock")
def unblock(request: Request) -> Response:
    """Let a party be met again."""

    def work(form: Form) -> str:
        with request.app.state.console.party.session() as session:
            blocked = session.unblock(_party(form))
        return f"{readable(blocked.name)} is blocked no more."

    return _do(request, "unblock", work)


def _party(form: Form) -> str:
    """Return who is meant: a party id, a name that is known, or the file of a public identity."""
    if not form.text("party"):
        raise InputError(
            "nobody is named", hint="give a name that you know, or the file of a public identity"
        )
    return form.path("party")


def _do(request: Request, name: str, work: Callable[[Form], str]) -> Response:
    def page(failure: Failure, typed: Typed) -> Response:
        return _page(request, failure, typed)

    return act(request, name, work, back="/identity", page=page)


def _page(request: Request, failure: Failure | None, typed: Typed) -> Response:
    home = request.app.state.console.party.home
    return render(
        request,
        "identity.html",
        200 if failure is None else 422,
        home=home,
        known=home.known.parties(),
        blocked=home.known.blocked(),
        typed=typed,
        identity=shown_again(typed.text("add", "identity")),
        failure=failure,
    )


def shown_again(text: str) -> str:
    """Return what was given for an identity, unless it is the content of something else.

    Beside the file of a public identity are those of the keys, which are on no page.
    """
    if _is_content(text):
        try:
            parse_identity(text.encode(), "what you have pasted")
        except VeiltabError:
            return ""
    return text


def _is_content(text: str) -> bool:
    """Tell the content of a file from its path."""
    return text.lstrip().startswith("{") or "\n" in text.strip()


def met(home: Home, text: str) -> PublicIdentity:
    """Remember the party of an identity file, given by its path or its content."""
    if not text:
        raise InputError(
            "no identity is given", hint="choose its file, write its path, or paste its content"
        )
    if _is_content(text):
        identity = parse_identity(text.encode(), "what you have pasted")
    else:
        identity = read_identity(Path(text).expanduser())
    home.known.remember([identity])
    return identity
