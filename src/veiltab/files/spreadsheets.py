"""CSV that spreadsheets open as a table, and compute nothing of.

A spreadsheet takes a text such as ``=WEBSERVICE("https://…"&B2)`` for a formula, which sends the
numbers beside it to whoever has thought of it.  Categories come from other parties, and the values
of a table from anybody.
"""

import polars as pl

_FORMULA = r"(^|[;\t\r\n][ ;\t\r\n\"]*)([=@+＝＠＋－-])"
"""How a formula begins: also after a semicolon, which separates fields in half of the world.

Quotes may be between the two: in the middle of a field they are doubled, and at its beginning two
of them are none.
"""

_NUMBER = r"[0-9][0-9.,]*(e[+-]?[0-9]+)?"
_HARMLESS = rf"^[+-]?({_NUMBER}(%| to <-?{_NUMBER})?)?$"
"""A number, an interval as bins name theirs, or a sign alone."""


def csv_bytes(frame: pl.DataFrame, *, header: bool = True) -> bytes:
    """Write a table as CSV; a text that would be a formula has an apostrophe before it."""
    names = _plain_names(frame.columns)
    texts = pl.col(pl.String, pl.Categorical, pl.Enum)
    shown = frame.with_columns(_plain(texts.cast(pl.String)))
    shown.columns = names
    return shown.write_csv(include_header=header).encode()


def _plain(text: pl.Expr) -> pl.Expr:
    safe = text.str.replace_all(_FORMULA, "$1'$2")
    return pl.when(text.str.contains(_HARMLESS)).then(text).otherwise(safe)


def _plain_names(names: list[str]) -> list[str]:
    """Write the names of columns in the same way; each stays another one."""
    plain = pl.DataFrame({"name": names}).select(_plain(pl.col("name"))).to_series().to_list()
    taken = set(names)
    for place, (name, safe) in enumerate(zip(names, plain, strict=True)):
        if name != safe:
            while safe in taken:
                safe = f"'{safe}"  # noqa: PLW2901 - another name until it is a new one
            taken.add(safe)
            plain[place] = safe
    return plain
