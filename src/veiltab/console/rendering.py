"""Pages from templates: everything in them is escaped, and names keep their direction."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any

from fastapi import Request
from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, RedirectResponse, Response

from veiltab.console.wording import on_page
from veiltab.crypto.identity import fingerprint
from veiltab.errors import VeiltabError
from veiltab.party.known.names import readable
from veiltab.report.glossary import meanings, plain_text

LONGEST_SHOWN = 200
"""Characters of a name that a page shows; somebody else may have chosen it."""

LONGEST_WORD = 20
"""Letters of a word that is not broken at the end of a line."""

SHORTEST_SHOWN = 60
"""Characters of a name in a list to choose from."""


class _Templates(BaseLoader):
    """The templates of the package, wherever it is installed."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Any]:
        del environment
        path = files("veiltab.console") / "templates" / template
        if not path.is_file():
            raise TemplateNotFound(template)
        return path.read_text("utf-8"), str(path), lambda: True


@lru_cache(maxsize=1)
def templates() -> Environment:
    """Return the templates, with the filters that they use."""
    environment = Environment(
        loader=_Templates(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "moment": moment,
        "words": words,
        "name": name,
        "visible": readable,
        "sentence": sentence,
        "on_page": on_page,
        "short_name": short_name,
        "fingerprint": fingerprint,
        "short": lambda value: value.hex()[:16],
        "path": path,
        "number": lambda value: f"{value:,}",
        "how_many": how_many,
        "plain": plain_number,
        "percent": lambda value: f"{100 * value:.3g}%",
        "significant": lambda value: f"{value:.3g}",
    }
    return environment


def moment(seconds: int) -> Markup:
    """Write a time in Unix seconds, so that the page's script can show it in local time too."""
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # a server may state any number
        return Markup("{} s").format(seconds)
    return Markup('<time datetime="{}">{}</time>').format(
        when.isoformat(), when.strftime("%Y-%m-%d %H:%M UTC")
    )


def name(text: str) -> Markup:
    """Write a name that somebody has chosen: no hidden characters, its direction kept to itself."""
    shown = readable(text)
    if len(shown) > LONGEST_SHOWN:
        whole, shown = shown, f"{shown[:LONGEST_SHOWN]}…"
        return Markup('<bdi class="long" title="{}">{}</bdi>').format(whole[:2000], shown)
    # Words of usual length are never broken; a place may be too narrow for others.
    kind = ' class="long"' if max(map(len, shown.split()), default=0) > LONGEST_WORD else ""
    return Markup("<bdi{}>{}</bdi>").format(Markup(kind), escape(shown))  # noqa: S704 - ours


def path(text: str) -> Markup:
    """Write the path of a request or a file, whose line ends after a slash and not in a word."""
    return Markup("<bdi>{}</bdi>").format(Markup("/<wbr>").join(readable(text).split("/")))


def words(page: Markup) -> Markup:
    """List what words on a page mean that people outside of this field do not know.

    Part of a page that changes by itself has a list of its own, which counts for the whole page.
    """
    found = meanings(plain_text(page))
    rows = Markup("").join(map(Markup("<dt>{}</dt><dd>{}</dd>").format, found, found.values()))
    listed = Markup('<aside class="words"><h2>What the words mean</h2><dl>{}</dl></aside>')
    return listed.format(rows) if found else Markup("")


def plain_number(value: float) -> str:
    """Write a number as people type it: 1e-6, and not 1e-06."""
    digits, letter, power = f"{value:g}".partition("e")
    return f"{digits}e{int(power)}" if letter else digits


def how_many(number: int, thing: str) -> str:
    """Write how many things there are, such as 1 row or 2 rows."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def sentence(text: str) -> str:
    """Write words as a sentence: with a capital letter, and an end; what to do as a page has it."""
    shown = readable(on_page(text))
    return f"{shown[:1].upper()}{shown[1:]}{'' if shown.endswith(('.', '?', '!')) else '.'}"


def short_name(text: str) -> str:
    """Return a name for a place that takes no markup, such as a list to choose from."""
    shown = readable(text)
    return shown if len(shown) <= SHORTEST_SHOWN else f"{shown[:SHORTEST_SHOWN]}…"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a page shows it."""

    message: str
    hint: str
    code: str

    @classmethod
    def of(cls, error: VeiltabError) -> "Failure":
        """Take what people read of an error."""
        return cls(error.message, error.hint, error.code)


def render(request: Request, template: str, code: int = 200, /, **values: object) -> HTMLResponse:
    """Return a page; the layout finds the party, the form's secret and messages by itself."""
    state = request.app.state.console
    session = request.scope["veiltab.session"]
    shared = {
        "console": state,
        "path": request.url.path,
        "form_token": session.form_token,
        "once": state.once.new,
        "messages": state.messages.take(session.cookie),
        "failure": None,
        "is_fragment": "hx-request" in request.headers,
    }
    text = templates().get_template(template).render(shared | values)
    return HTMLResponse(text, status_code=code)


def go(request: Request, path: str, message: str | None = None) -> Response:
    """Go to another page after a form was carried out, and say there what was done."""
    state = request.app.state.console
    if message is not None:
        state.messages.leave(request.scope["veiltab.session"].cookie, message)
    if "hx-request" in request.headers:
        return Response(headers={"HX-Redirect": path})
    return RedirectResponse(path, status_code=303)
