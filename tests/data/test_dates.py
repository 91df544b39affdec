"""Dates in ids: whatever a table writes, all curators make the same id of one day."""

import datetime as dt

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import for_each
from veiltab.data.dates import DateForm
from veiltab.data.ids import id_messages
from veiltab.data.recode import IdColumns
from veiltab.errors import LinkageError, ParameterError


@for_each(
    "case",
    [
        ("DD.MM.YYYY", None, "01.02.1934", "1934-02-01"),
        ("D.M.YYYY", None, "1.12.1934", "1934-12-01"),
        ("MM/DD/YYYY", None, " 02/29/2024 ", "2024-02-29"),
        ("YYYYMMDD", None, "20240229", "2024-02-29"),
        ("YYYY-MM-DD", None, "2024-02-29", "2024-02-29"),
        ("DD.MM.YY", 2026, "01.01.26", "2026-01-01"),
        ("DD.MM.YY", 2026, "01.01.27", "1927-01-01"),
        ("DD.MM.YY", 2000, "29.02.00", "2000-02-29"),
        ("DD.MM.YYYY", None, "29.02.2023", None),
        ("DD.MM.YYYY", None, "31.04.2023", None),
        ("DD.MM.YYYY", None, "1.4.2023", None),
        ("DD.MM.YYYY", None, "01-04-2023", None),
        ("DD.MM.YYYY", None, "01.04.2023 10:00", None),
        ("DD.MM.YYYY", None, "٠١.٠٤.٢٠٢٣", None),
        ("DD.MM.YYYY", None, "", None),
        ("DD.MM.YYYY", None, "00.00.0000", None),
    ],
)
def test_dates_become_iso(case: tuple[str, int | None, str, str | None]) -> None:
    """Impossible days, other forms, other digits and times are no dates."""
    form, latest, text, iso = case
    assert DateForm(form, latest).to_iso(pl.Series(["01.01.0001", text, None])).to_list()[1] == iso


@settings(deadline=None)
@given(st.dates(), st.permutations(["DD", "MM", "YYYY"]), st.sampled_from(["", ".", "/", " - "]))
def test_every_day_is_read_back(day: dt.date, order: list[str], between: str) -> None:
    """From the year 1 to 9999, in any order of day, month and year."""
    parts = {"DD": f"{day.day:02}", "MM": f"{day.month:02}", "YYYY": f"{day.year:04}"}
    written = between.join(parts[word] for word in order)
    assert DateForm(between.join(order)).to_iso(pl.Series([written])).to_list() == [day.isoformat()]


@for_each(
    "case",
    [
        ("DD.MM", None),
        ("DD.MM.YYYY.YYYY", None),
        ("DDD.MM.YYYY", None),
        ("dd.mm.yyyy", None),
        ("DD. Mon YYYY", None),
        ("", None),
        ("DMYYYY", None),
        ("DD.MM.YY", None),
        ("DD.MM.YY", 26),
        ("DD.MM.YY", True),
        ("DD.MM.YY", 12_000),
    ],
)
def test_forms_that_leave_a_doubt_are_refused(case: tuple[str, int | None]) -> None:
    """Two-digit years say which hundred years they are of."""
    with pytest.raises(ParameterError) as caught:
        DateForm(*case)
    assert caught.value.hint


BORN = IdColumns(["name", "born"], dates={"born": "DD.MM.YYYY"})


def test_curators_who_write_dates_differently_make_the_same_ids() -> None:
    """Text of two forms, a date of Parquet, a time stamp of midnight from a spreadsheet."""
    day, names = dt.date(1980, 5, 4), ["Ann"]
    columns: list[tuple[pl.Series, IdColumns | None]] = [
        (pl.Series(["04.05.1980"]), BORN),
        (pl.Series(["5/4/1980"]), IdColumns(["name", "born"], dates={"born": "M/D/YYYY"})),
        (pl.Series(["1980-05-04"]), None),
        (pl.Series([day]), None),
        (pl.Series([day]), BORN),
        (pl.Series([dt.datetime(1980, 5, 4)]), BORN),  # noqa: DTZ001
    ]
    made = set()
    for born, ids in columns:
        frame = pl.DataFrame({"name": names, "born": born})
        dates = None if ids is None else ids.dates
        messages = id_messages(frame, ["name", "born"], ["lowercase"], dates=dates)
        made.add(messages.data.tobytes())
    assert made == {b"ann\x1f1980-05-04"}


def test_what_is_no_date_is_named_with_its_row() -> None:
    """As every other odd id; an empty one is an empty id, and a time of day is no date."""
    frame = pl.DataFrame({"name": ["a"] * 4, "born": ["01.02.1934", "31.02.1934", None, "x"]})
    with pytest.raises(LinkageError, match=r"2 rows have no date of the form DD.MM.YYYY") as caught:
        id_messages(frame, ["name", "born"], [], dates=BORN.dates, first_row=11)
    assert "row 12: '31.02.1934'; row 14: 'x'" in caught.value.message
    assert "if it writes all dates in another way, say so under [ids]" in caught.value.hint
    with pytest.raises(LinkageError, match=r"1 row has an empty id in column 'born' \(row 2"):
        id_messages(
            pl.DataFrame({"name": ["a", "b"], "born": ["01.02.1934", None]}),
            ["name", "born"],
            [],
            dates=BORN.dates,
        )
    late = pl.DataFrame({"name": ["a"], "born": [dt.datetime(1980, 5, 4, 1)]})  # noqa: DTZ001
    with pytest.raises(LinkageError, match="a time of day"):
        id_messages(late, ["name", "born"], [], dates=BORN.dates)
    with pytest.raises(LinkageError, match="ids are text, whole numbers or dates"):
        id_messages(late, ["name", "born"], [])
