"""What is chosen to be shown, how numbers are written, and pictures as files."""

from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.estimates import ODD, adult_to_show, million_cells, odd_estimate
from veiltab.core.plan import plan
from veiltab.core.schema import Attribute, Schema
from veiltab.errors import ParameterError
from veiltab.estimates import Estimate
from veiltab.inference.distributions import NUMBERS
from veiltab.inference.residuals import standardised_residuals
from veiltab.report import formatting
from veiltab.report.figures import figures, plain, save_figures
from veiltab.report.heat import shade, shade_words
from veiltab.report.view import (
    ReportOptions,
    View,
    error_shares,
    holm,
    shown_table,
    view_release,
)
from veiltab.report.words import citation, interval_words


def view_of(estimate: Estimate) -> View:
    """Return what a report of an estimate shows, with the usual options."""
    return view_release(estimate, estimate.provenance, ReportOptions())


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.12345, 2, "12.35"),
        (1.0, 2, "100.00"),
        (-0.00001, 2, "0.00"),
        (-0.0123, 2, "-1.23"),
        (0.0000012, 6, "0.000120"),
    ],
)
def test_points(share: float, digits: int, text: str) -> None:
    """Per cent with fixed decimals, and no minus before nothing."""
    assert formatting.points(share, digits) == text


@pytest.mark.parametrize("nothing", [float("nan"), float("inf")])
def test_no_number_is_never_printed(nothing: float) -> None:
    """It would be a mistake, so it is an error."""
    with pytest.raises(ParameterError):
        formatting.percent(nothing)


@pytest.mark.parametrize(
    ("errors", "digits"),
    [([0.01], 2), ([0.0003, 0.0002], 3), ([1e-7], 6), ([1e-12, None], 2), ([], 2), ([0.3, 0.2], 2)],
)
def test_decimals(errors: list[float | None], digits: int) -> None:
    """Two digits of a typical error; two decimals at least, and where there is no error."""
    assert formatting.decimals(errors) == digits


@pytest.mark.parametrize(
    ("p_value", "text"), [(1e-9, "< 0.001"), (0.001, "0.001"), (0.5, "0.500"), (1, "1.000")]
)
def test_p_values(p_value: float, text: str) -> None:
    """Three decimals; what would be shown as 0.000 is a bound."""
    assert formatting.significance(p_value) == text


@pytest.mark.parametrize(
    ("number", "text"), [(1e-6, "10⁻⁶"), (2.5e-10, "2.5·10⁻¹⁰"), (0.01, "0.01"), (0.0, "0")]
)
def test_small_numbers(number: float, text: str) -> None:
    """Powers of ten as people write them."""
    assert formatting.small(number) == text


def test_holm() -> None:
    """As in every textbook: sorted, times how many are left, and never falling."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1)))
def test_holm_keeps_the_order(p_values: list[float]) -> None:
    """Adjusted p-values are no smaller, at most one, and ordered as before."""
    found = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, found, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(found)[order]) >= 0).all()


@pytest.mark.slow
def test_the_view_of_a_small_table() -> None:
    """Every cell, every attribute, every pair, in the schema's order."""
    estimate = adult_to_show()
    view = view_of(estimate)
    assert [part.names[0] for part in view.marginals] == list(estimate.schema.names)
    assert len(view.joint.rows) == 24
    assert view.joint.whole
    drawn = [pair.names for pair in view.pairs]
    assert drawn == [pair for pair, _ in view.tests]
    assert len(drawn) == len(view.associations) == view.pairs_in_all == 6
    assert view.pairs[0].comparison.within.names == ("education", "marital")
    assert view.pairs[0].reverse.within.names == ("marital", "education")


@pytest.mark.slow
def test_the_view_of_a_million_cells() -> None:
    """The largest cells come first, and pairs of 10⁴ cells are neither tested nor drawn."""
    view = view_of(million_cells())
    shares = [row.share or 0 for row in view.joint.rows]
    assert shares == sorted(shares, reverse=True)
    assert (len(shares), view.joint.total) == (60, 10**6)
    assert (view.tests, view.pairs, view.pairs_in_all) == ((), (), 3)


def test_rows_have_more_categories_than_columns() -> None:
    """A page is longer than it is wide; the title keeps the order of the schema."""
    turned = adult_to_show().marginal(["salary", "education"])
    [pair] = view_of(turned).pairs
    assert pair.names == ("salary", "education")
    assert pair.joint.names == pair.comparison.within.names == ("education", "salary")
    residuals = standardised_residuals(turned, "super").reshape(2, 3)
    assert np.reshape(pair.residuals, (3, 2)) == pytest.approx(residuals.T)


def test_words_about_rows_come_from_the_columns_of_a_table() -> None:
    """Warnings and reasons become notes; an attribute with such a name does not."""
    numbers = {name: [0.1, 0.2] for name in NUMBERS}
    frame = pl.DataFrame({"warning": ["x", "y"], **numbers, "reason": [None, "no"]})
    assert [row.note for row in shown_table(frame, ("warning",), 10).rows] == [None, "no"]
    both = frame.rename({"warning": "a"}).with_columns(pl.Series("warning", ["rough", "wide"]))
    assert [row.note for row in shown_table(both, ("a",), 10).rows] == ["rough", "no; wide"]


def test_one_attribute_has_no_pairs() -> None:
    """And one with a single category goes together with nothing."""
    estimate = adult_to_show().marginal("salary")
    assert view_of(estimate).pairs_in_all == 0
    schema = Schema([Attribute("one", ["only"]), Attribute("two", ["a", "b"])])
    chosen = plan(population_size=1000, domain_size=2, epsilon=1.0, sample_size=100)
    lonely = view_of(Estimate(schema, np.array([60, 40]), chosen))
    assert (lonely.pairs, lonely.tests, lonely.pairs_in_all) == ((), (), 1)


def test_the_parts_of_the_error_of_a_whole_population() -> None:
    """Whoever asks everybody has no sampling error; about a larger population there is one."""
    estimate = adult_to_show(delta=1e-6)
    assert error_shares(estimate, "finite")[1] == 1
    assert error_shares(estimate, "super")[1] < 1


def test_words_about_other_levels() -> None:
    """How many of a hundred miss follows from the level."""
    assert "about 10 miss" in interval_words(ReportOptions(level=0.9))
    assert "about 0.5 miss" in interval_words(ReportOptions(level=0.995))


def test_a_citation_without_any_origin() -> None:
    """Says what it can."""
    estimate = adult_to_show().marginal("salary")
    bare = Estimate(estimate.schema, estimate.counts, estimate.plan)
    said = citation(bare, bare.provenance, "1 May 2026")
    assert said.startswith("A joint table. Shares of salary, estimated on 1 May 2026 with veiltab")
    assert "under differential privacy with ε = 1." in said


@pytest.mark.slow
def test_figures_are_files(tmp_path: Path) -> None:
    """Each picture as PNG and as an SVG that names its categories."""
    estimate = adult_to_show().marginal(["gender", "salary"])
    made = save_figures(view_of(estimate), tmp_path / "new" / "folder")
    assert sorted(path.name for path in made if path.suffix == ".svg") == [
        "attribute-1-gender.svg",
        "attribute-2-salary.svg",
        "pair-1-gender-salary.svg",
        "pair-1-salary-within-gender.svg",
        "pairs.svg",
    ]
    for path in made:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        else:
            words = "".join(ET.fromstring(path.read_text("utf-8")).itertext())  # noqa: S314 - ours
            assert "95% interval" in words
            assert "female" in words or path.stem in ("attribute-2-salary", "pairs")


def test_figures_show_the_numbers() -> None:
    """The rows of a heat map are the shares of its cells, in per cent."""
    estimate = adult_to_show().marginal(["gender", "salary"])
    charts = dict(figures(view_of(estimate)))
    spec = charts["pair-1-gender-salary"].to_dict()
    [rows] = spec["datasets"].values()
    shares = estimate.table()["share"].to_list()
    assert [row["share"] for row in rows] == pytest.approx([100 * share for share in shares])
    residuals = standardised_residuals(estimate, "super")
    assert [row["shade"] for row in rows] == [shade_words(shade(value)) for value in residuals]
    [rows] = charts["pair-1-salary-within-gender"].to_dict()["datasets"].values()
    within = estimate.conditional("salary", "gender")["share"].to_list()
    assert [row["value"] for row in rows] == pytest.approx([100 * share for share in within])
    overall = estimate.marginal("salary").table()["share"].to_list()
    assert [row["all"] for row in rows] == pytest.approx([100 * share for share in overall * 2])


@pytest.mark.slow
def test_figures_cut_nothing_off(tmp_path: Path) -> None:
    """Long names come in lines, and a group without an estimate says so."""
    long = "Electricity, gas, steam and air conditioning supply"
    schema = Schema([Attribute("industry", ["a", long, "c"]), Attribute("b", ["x", "y"])])
    chosen = plan(population_size=1000, domain_size=6, epsilon=1.0, sample_size=100)
    estimate = Estimate(schema, np.array([30, 30, 17, 17, 3, 3]), chosen)
    made = save_figures(view_of(estimate), tmp_path)
    [within] = [path for path in made if path.name == "pair-1-b-within-industry.svg"]
    words = "".join(ET.fromstring(within.read_text("utf-8")).itertext())  # noqa: S314 - ours
    assert long.replace(" ", "") in words.replace(" ", "")
    assert "not estimable" in words
    assert "…" not in words


@pytest.mark.slow
def test_figures_of_odd_names(tmp_path: Path) -> None:
    """File names are plain, and different; the pictures can be drawn."""
    made = save_figures(view_of(odd_estimate()), tmp_path)
    assert len({path.name for path in made}) == len(made)
    assert all(path.name.isascii() for path in made)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Größe (cm)", "groe-cm"),
        ("../etc/passwd", "etc-passwd"),
        (ODD[3], "other"),
        ("x" * 99, "x" * 40),
    ],
)
def test_plain_names(name: str, found: str) -> None:
    """No path, no odd letter, not too long, never empty."""
    assert plain(name) == found
