"""Dates in ids: as a table writes them, and as all curators must, ``YYYY-MM-DD``."""

import re
from dataclasses import dataclass, field
from itertools import pairwise

import polars as pl

from veiltab.errors import ParameterError

_TOKEN = re.compile("Y+|M+|D+|[A-Za-z]+|[^A-Za-z]+")
_DIGITS = {
    "YYYY": "(?<year>[0-9]{4})",
    "YY": "(?<year>[0-9]{2})",
    "MM": "(?<month>[0-9]{2})",
    "M": "(?<month>[0-9]{1,2})",
    "DD": "(?<day>[0-9]{2})",
    "D": "(?<day>[0-9]{1,2})",
}
_PARTS = ["D", "M", "Y"]
_CENTURY = 100
_YEARS = 9900


@dataclass(frozen=True, slots=True)
class DateForm:
    """A way to write dates, such as ``DD.MM.YYYY`` or ``D/M/YY``.

    A single ``D`` or ``M`` takes one digit or two.  Years of two digits are those of the hundred
    years that end with ``latest_year``; without it they are refused, because nobody can know.
    """

    form: str
    latest_year: int | None = None
    _regex: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a form that does not say year, month and day, each once."""
        tokens = _TOKEN.findall(str(self.form))
        named = [token for token in tokens if token[0].isalpha()]
        if any(token not in _DIGITS for token in named) or (
            sorted(token[0] for token in named) != _PARTS
        ):
            raise ParameterError(
                f"{self.form!r} is not a form of dates",
                hint="write the day as DD, the month as MM and the year as YYYY, each once and with"
                " what stands between them, as in DD.MM.YYYY; D and M take one digit or two",
            )
        if any(a in ("D", "M") and b in _DIGITS for a, b in pairwise(tokens)):
            raise ParameterError(
                f"in {self.form!r} nobody can tell where a number ends",
                hint="write DD and MM, or put something between the numbers",
            )
        self._check_year()
        inner = "".join(_DIGITS.get(token) or pl.escape_regex(token) for token in tokens)
        object.__setattr__(self, "_regex", rf"\A{inner}\z")

    @property
    def short(self) -> bool:
        """Whether years have two digits."""
        return "YYYY" not in self.form

    def to_iso(self, texts: pl.Series) -> pl.Series:
        """Return the dates as ``YYYY-MM-DD``; what is no date of this form becomes null."""
        groups = texts.str.strip_chars().str.extract_groups(self._regex).struct.unnest()
        year = groups["year"].cast(pl.Int32)
        if self.latest_year is not None and self.short:
            year = self.latest_year - (self.latest_year - year) % _CENTURY
        written = groups.select(
            pl.concat_str(
                year.cast(pl.String).str.zfill(4),
                pl.col("month").str.zfill(2),
                pl.col("day").str.zfill(2),
                separator="-",
            )
        ).to_series()
        possible = written.str.to_date("%Y-%m-%d", strict=False).is_not_null()
        return written.set(~possible, None).alias(texts.name)

    def _check_year(self) -> None:
        latest = self.latest_year
        if latest is None and self.short:
            raise ParameterError(
                f"{self.form!r} has a year of two digits, and 05 can be 1905 or 2005",
                hint="say which hundred years are meant by their last one, as in"
                " latest_year = 2026, or export the table with years of four digits",
            )
        if latest is not None and (type(latest) is not int or not 0 < latest - _CENTURY < _YEARS):
            raise ParameterError(
                f"latest_year is {latest!r}", hint="write a year of four digits, such as 2026"
            )
