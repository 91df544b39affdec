"""The fields of a form or a query, read strictly: bad input is an error with a hint."""

import os
from collections.abc import Iterable, Mapping

from fastapi import Request

from veiltab.errors import ParameterError


class Form:
    """Fields by name; each may come several times."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Keep the pairs in their order."""
        self.pairs = list(pairs)

    @classmethod
    def of(cls, request: Request) -> "Form":
        """Return the form that was posted, or the query of a page."""
        if request.method == "POST":
            return cls(request.scope["veiltab.form"])
        return cls(request.query_params.multi_items())

    def text(self, name: str, default: str = "") -> str:
        """Return a field without the space around it."""
        return next((value.strip() for key, value in self.pairs if key == name), default)

    def exact(self, name: str) -> str:
        """Return a field as it was typed: a passphrase may end with a space."""
        return next((value for key, value in self.pairs if key == name), "")

    def path(self, name: str) -> str:
        """Return the path of a file, or a name; ``~`` stands for the user's own folder."""
        return os.path.expanduser(self.text(name))  # noqa: PTH111 - it may be no path

    def all(self, name: str) -> list[str]:
        """Return every value of a field."""
        return [value for key, value in self.pairs if key == name]

    def checked(self, name: str) -> bool:
        """Tell whether a box is ticked."""
        return any(key == name for key, _ in self.pairs)

    def number(self, name: str, what: str, default: float | None = None) -> float:
        """Return a number; an empty field stands for the default."""
        text = self.text(name).replace(" ", "").replace(" ", "").replace(",", "")
        if not text and default is not None:
            return default
        try:
            return float(text)
        except ValueError:
            raise ParameterError(
                f"{what} must be a number, not {self.text(name)!r}",
                hint="write it with digits and a decimal point, such as 0.5 or 1e-6",
            ) from None

    def integer(self, name: str, what: str, default: int | None = None) -> int:
        """Return a whole number."""
        value = self.number(name, what, default)
        if value != int(value) if abs(value) < float("inf") else True:
            raise ParameterError(f"{what} must be a whole number", hint="such as 20000")
        return int(value)

    def choice(self, name: str, choices: Mapping[str, object] | Iterable[str], default: str) -> str:
        """Return one of a few words."""
        value = self.text(name, default) or default
        if value not in choices:
            raise ParameterError(
                f"there is no choice {value!r} here", hint=f"choose one of {', '.join(choices)}"
            )
        return value

    def as_dict(self) -> dict[str, str]:
        """Return the last value of each field, to fill a form again."""
        return dict(self.pairs)


def without_password(location: str) -> str:
    """Return where a table is without the password that the address of a database may have."""
    kind, separator, rest = location.partition("://")
    if not separator or kind == "sqlite":  # a file, whose name may have any characters
        return location
    address, question, options = rest.partition("?")
    named, at, place = address.rpartition("@")
    kept = [one for one in options.split("&") if "password" not in one.partition("=")[0].lower()]
    asked = f"?{'&'.join(kept)}" if question and kept != [""] and kept else ""
    return f"{kind}://{named.partition(':')[0]}{at}{place}{asked}"


def check_location(location: str) -> str:
    """Refuse an address with a password: pages hold none, and browsers keep what is typed."""
    if without_password(location) != location:
        raise ParameterError(
            "the address has a password in it, and no page may hold one",
            hint="write it without, and keep the password in ~/.pgpass",
        )
    return location


UNREPEATED = frozenset({"again", "code", "once", "passphrase", "sure"})
"""Fields that no page shows again: secrets, and what has to be said anew each time."""


class Typed:
    """What somebody has typed into one of a page's forms, to be shown there again."""

    def __init__(self, name: str = "", form: Form | None = None) -> None:
        """Name the form; without one, nothing was typed."""
        pairs = [] if form is None else form.pairs
        self.name = name
        self._form = Form(pair for pair in pairs if pair[0] not in UNREPEATED)

    def __bool__(self) -> bool:
        """Tell whether a form was typed into."""
        return bool(self.name)

    def text(self, name: str, field: str, default: str = "") -> str:
        """Return what stands in a field of the form of this name."""
        return self._form.text(field, default) if name == self.name else default

    def ticked(self, name: str, field: str, value: str, *, default: bool) -> bool:
        """Tell whether a choice of the form of this name is made."""
        return value in self._form.all(field) if name == self.name else default
