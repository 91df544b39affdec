"""Views of the explorer that somebody has saved: a private file in the home."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from veiltab.core.schema import check_text
from veiltab.errors import InputError
from veiltab.files.private import parse_file, write_private
from veiltab.party.home import Home
from veiltab.wire.codec import (
    MAX_INTEGER,
    TEXT,
    Codec,
    Part,
    integer,
    items,
    load,
    malformed,
    message,
    nested,
    optional,
    wired,
)
from veiltab.wire.signed import Message

LONGEST_NAME = 100
LONGEST_QUERY = 20_000
MOST_VIEWS = 500


def _check_query(value: object, path: str) -> str:
    if not isinstance(value, str) or not value.isascii() or len(value) > LONGEST_QUERY:
        raise malformed(path, f"must be at most {LONGEST_QUERY:,} characters of a link")
    return value


@message
class SavedView(Part):
    """A view by its name: which estimate, and what of it.

    ``key`` is the study's id, or stands for the ``file`` that was opened.
    """

    name: str = wired(TEXT)
    title: str = wired(TEXT)
    key: str = wired(TEXT)
    file: str | None = wired(optional(TEXT))
    query: str = wired(Codec(_check_query, _check_query))
    at: int = wired(integer(0, MAX_INTEGER))

    @property
    def link(self) -> str:
        """The page of the view."""
        return f"/explore/{self.key}?{self.query}"


@message
class ViewsFile(Message):
    """All saved views of a home."""

    kind: ClassVar[str] = "home-views"

    views: tuple[SavedView, ...] = wired(items(nested(SavedView), most=MOST_VIEWS))


class SavedViews:
    """The saved views of a home, by name."""

    def __init__(self, home: Home, clock: Callable[[], float] = time.time) -> None:
        """Take the home; nothing is read yet."""
        self._home, self._clock = home, clock
        self._path = home.path / "views.json"

    def all(self) -> list[SavedView]:
        """Return them by name."""
        return sorted(self._read().views, key=lambda view: view.name.casefold())

    def save(self, view: SavedView) -> None:
        """Keep a view; a name that is taken is refused."""
        check_text(view.name, "the view's name")
        if len(view.name) > LONGEST_NAME:
            raise InputError(
                f"the view's name has {len(view.name):,} characters",
                hint=f"use at most {LONGEST_NAME}",
            )
        with self._home.lock():
            file = self._read()
            if any(other.name == view.name for other in file.views):
                raise InputError(
                    f"there is a view {view.name!r} already",
                    hint="choose another name, or delete that view first",
                )
            if len(file.views) >= MOST_VIEWS:
                raise InputError(f"there are {MOST_VIEWS} saved views", hint="delete some first")
            added = replace(view, at=int(self._clock()))
            self._write(ViewsFile(views=(*file.views, added)))

    def delete(self, name: str) -> None:
        """Forget a view; once more, it changes nothing."""
        with self._home.lock():
            kept = tuple(view for view in self._read().views if view.name != name)
            self._write(ViewsFile(views=kept))

    def _read(self) -> ViewsFile:
        file = parse_file(self._path, lambda data: ViewsFile.from_json(load(data)))
        return ViewsFile(views=()) if file is None else file

    def _write(self, file: ViewsFile) -> None:
        write_private(self._path, file.canonical())
