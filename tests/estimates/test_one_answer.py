"""One question has one answer: tables, quantities, reports and numbers of people agree."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import veiltab as vt
from tests.support.commands import succeed
from tests.support.unkind import Unkind, unkind_settings
from veiltab.core.uncertainty import Population
from veiltab.estimates import Estimate, Quantity
from veiltab.inference.distributions import NUMBERS
from veiltab.inference.provenance import Provenance
from veiltab.report.view import ReportOptions, view_release

SETTINGS = {setting.name: setting for setting in unkind_settings()}
"""Sparse tables under every mechanism."""


@cache
def estimates(name: str) -> tuple[Estimate, ...]:
    """Return the estimates of two releases."""
    setting: Unkind = SETTINGS[name]
    counts = setting.releases(2, 12, "finite")
    schema, plan = setting.table.schema, setting.plan
    noise = getattr(setting.design(counts, "finite"), "publication", None)
    return tuple(vt.Estimate(schema, rows, plan, noise) for rows in counts)


def own_words(quantity: Quantity, estimate: Estimate) -> str | None:
    """Return the warnings of a quantity, without those about the whole release."""
    about_all = estimate.population().warnings
    return "; ".join(w for w in quantity.warnings if w not in about_all) or None


def assert_same(row: dict[str, object], quantity: Quantity, estimate: Estimate) -> None:
    """Compare a row of a table with the answer to the same question."""
    errors = (quantity.standard_error, quantity.sampling_error, quantity.privacy_error)
    for name, number in zip(
        NUMBERS, (quantity.value, *errors, quantity.low, quantity.high), strict=True
    ):
        assert row[name] == (None if number is None else pytest.approx(number, rel=1e-6, abs=1e-9))
    if quantity.estimable:
        assert row["warning"] == own_words(quantity, estimate)
        assert row.get("reason") is None
    else:
        assert quantity.warnings == (f"not estimable: {row['reason']}",)


POPULATIONS: dict[str, Population] = {"few people, matched": "super", "ratio 0, δ": "super"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_every_cell_of_a_conditional_table_is_the_answer(name: str) -> None:
    """The point, the errors, the interval, and every word, whichever way round."""
    population = POPULATIONS.get(name, "finite")
    for estimate, (of, given) in zip(estimates(name), (("a", "b"), ("b", "a")), strict=True):
        if given == "a" or name in POPULATIONS:
            table = estimate.conditional(of, given, level=0.9, population=population)
            for row in table.iter_rows(named=True):
                condition, group = {of: row[of]}, {given: row[given]}
                answer = estimate.probability(condition, group, level=0.9, population=population)
                assert row["estimable"] == answer.estimable
                assert_same(row, answer, estimate)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_every_cell_of_a_joint_table_is_the_answer(name: str) -> None:
    """In the joint table, in a marginal, and in numbers of people."""
    for estimate in estimates(name)[:1]:
        for part in (estimate, estimate.marginal("b")):
            people = part.people_table()
            for cell, row in enumerate(part.table().iter_rows(named=True)):
                condition = {key: row[key] for key in part.schema.names}
                answer = estimate.probability(condition)
                assert_same(row, answer, estimate)
                assert row["low"] <= row["share"] <= row["high"]
                number = estimate.people(condition)
                assert people["people"][cell] == pytest.approx(number.value, rel=1e-6, abs=1e-9)
                assert people["low"][cell] == pytest.approx(number.low, rel=1e-5, abs=1e-5)
                assert people["warning"][cell] == own_words(number, estimate)


@pytest.mark.parametrize("name", SETTINGS)
def test_marginals_agree_with_sums_before_they_are_clipped(name: str) -> None:
    """Whatever the table, the unbiased shares of its parts add up."""
    for estimate in estimates(name):
        joint = estimate.to_numpy("unbiased")
        np.testing.assert_allclose(estimate.marginal("a").unbiased, joint.sum(axis=1), atol=1e-12)
        np.testing.assert_array_equal(estimate.to_numpy(), np.clip(joint, 0, 1))


def test_some_shares_are_below_zero_and_some_groups_vague() -> None:
    """The tests above meet every case: shown as zero, doubtful, one end, and nothing known."""
    tables = [e.conditional("b", "a") for name in SETTINGS for e in estimates(name)]
    words = pl.concat([table.select("warning", "reason") for table in tables])
    said = " ".join([*words["warning"].drop_nulls(), *words["reason"].drop_nulls()])
    for text in (
        "below zero because of the noise; it is shown as zero",
        "above one because of the noise; it is shown as one",
        "there is no upper limit below one, because the denominator, the share of a = 'a1',",
        "there is no lower limit above zero, because",
        "cannot be distinguished from zero",
    ):
        assert text in said, text


def test_groups_with_the_same_counts_are_named_each() -> None:
    """Words are made once for all cells with the same counts, but not for different groups."""
    schema = SETTINGS["ratio 0, by rank"].table.schema
    plan = vt.plan(population_size=20_000, domain_size=6, epsilon=0.5, mechanism="paper")
    even, rest = divmod(plan.ranked.sample_size, 6)
    counts = np.array([even + 356 + rest, even + 356, even - 178, even - 178] + [even - 178] * 2)
    table = vt.Estimate(schema, counts, plan).conditional("b", "a")
    for name in ("a1", "a2"):
        (reason,) = table.filter(pl.col("a") == name)["reason"].unique()
        assert f"the share of a = '{name}'," in reason


def test_reports_notebooks_and_commands_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The words of a share that is shown as zero are in all of them."""
    estimate = next(e for name in SETTINGS for e in estimates(name) if (e.unbiased < 0).any())
    (cell, *_) = np.flatnonzero(estimate.unbiased < 0)
    row = estimate.table().row(int(cell), named=True)
    words = row["warning"]
    question = f"P(a = '{row['a']}' and b = '{row['b']}'): {words}"
    view = view_release(estimate, Provenance(), ReportOptions())
    shown = next(r for r in view.joint.rows if r.labels == (row["a"], row["b"]))
    assert shown.note == words
    assert shown.share == row["share"] == 0
    assert words in estimate._repr_html_()
    file = tmp_path / "mine.estimate"
    estimate.save(file)
    estimate.report(tmp_path / "report.html")
    assert words[1:] in (tmp_path / "report.html").read_text("utf-8")
    printed = succeed(capsys, "estimate", "--load", file)
    assert question in " ".join(printed.split())
    cells = json.loads(succeed(capsys, "estimate", "--load", file, "--json"))
    assert cells["cells"][cell]["warning"] == words
