"""Finding a study or vault by what people type: a title, or the first digits of an id.

An exact title, or digits of an id, count before anything else; then the same title in other case or
spacing; then the beginning of a title.  Whatever is not clear names all that it could mean.
"""

import unicodedata
from collections.abc import Callable, Iterable, Mapping

SHORTEST_PREFIX = 4
"""The fewest digits of an id that count as one."""

_LISTED = 10

Titles = Mapping[bytes, str | None]


def find(
    text: str,
    titles: Titles,
    unseen: Callable[[], Iterable[tuple[bytes, str]]] = tuple,
) -> tuple[list[bytes], dict[bytes, str | None]]:
    """Return the ids that a text could mean, and all titles that were looked at.

    Those that ``unseen`` returns count only if nothing else is meant exactly: whoever proposes a
    study under the title of another one does not get in its way.  But where a title is only begun,
    an exact title among the unseen is a candidate too, so that nobody acts on the wrong one.
    """
    exact = _exact(titles, text)
    if exact:
        return exact, dict(titles)
    others = {scope: title for scope, title in unseen() if scope not in titles}
    every = {**titles, **others}
    loose = _loose(titles, text)
    if loose:
        return loose + _exact(others, text), every
    return _exact(others, text) or _loose(others, text), every


def candidates(titles: Titles, *, most: int | None = _LISTED) -> str:
    """List ids and titles, one on a line, at the end of a message."""
    if not titles:
        return "; there are none yet"
    lines = [f"\n  {scope.hex()[:16]}  {title or '(no title)'}" for scope, title in titles.items()]
    if most is None or len(lines) <= most:
        return ":" + "".join(lines)
    return ":" + "".join(lines[:most]) + f"\n  and {len(lines) - most:,} more"


def _exact(titles: Titles, text: str) -> list[bytes]:
    """Return every id with this exact title, or that starts with these digits."""
    wanted = text.strip()
    prefix = wanted.lower() if len(wanted) >= SHORTEST_PREFIX else None
    return [
        scope
        for scope, title in titles.items()
        if wanted == title or (prefix and scope.hex().startswith(prefix))
    ]


def _loose(titles: Titles, text: str) -> list[bytes]:
    """Return the ids with this title in any case, or else those whose title begins with it."""
    wanted = _folded(text)
    if not wanted:
        return []
    folded = {scope: _folded(title) for scope, title in titles.items() if title is not None}
    same = [scope for scope, title in folded.items() if title == wanted]
    return same or [scope for scope, title in folded.items() if title.startswith(wanted)]


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
