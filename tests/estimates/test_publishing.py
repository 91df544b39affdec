"""Published copies of an estimate: drawn once, marked, and honest about their noise."""

import json
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from veiltab.core.publication import PublicationNoise, publication_digest
from veiltab.data.counts import adult_table
from veiltab.errors import ParameterError, StateError
from veiltab.estimates import Estimate, Provenance
from veiltab.estimates.publishing import draw_copy
from veiltab.rehearsal import simulate

MECHANISMS = {
    "decoys": {"mechanism": "decoys"},
    "decoys, δ": {"mechanism": "decoys", "delta": 1e-6},
    "matched": {"mechanism": "decoys", "linkage": "matched"},
    "paper": {"mechanism": "paper"},
}


def estimate_of(name: str = "decoys") -> Estimate:
    """Return an estimate of the Adult table."""
    options = MECHANISMS[name]
    return simulate(adult_table(24), epsilon=1.0, epsilon_public=0.5, seed=3, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_copy_is_drawn_once(name: str) -> None:
    """The second call, and a copy of the copy, give the same numbers."""
    estimate = estimate_of(name)
    copy = estimate.publish()
    assert copy is estimate.publish()
    assert copy is copy.publish()
    assert copy.publication == PublicationNoise.for_epsilon(0.5, 24)
    assert (copy.counts != estimate.counts).any()
    assert estimate.publication is None
    assert copy.provenance == estimate.provenance
    assert copy.digest == publication_digest(copy.schema, copy.counts, 0.5).hex()
    assert estimate.digest is None


def test_system_entropy_is_the_default() -> None:
    """Two estimates of the same counts get different noise; with a seed, the same."""
    estimate = estimate_of()
    unseeded = [Estimate(estimate.schema, estimate.counts, estimate.plan) for _ in range(2)]
    first, second = (each.publish().counts for each in unseeded)
    assert (first != second).any()
    assert (estimate.publish().counts == estimate_of().publish().counts).all()


def test_marginals_share_the_copy() -> None:
    """A part published later is a part of what was published; its noise is the sum."""
    estimate = estimate_of()
    copy = estimate.publish()
    part = estimate.marginal(["salary", "gender"]).publish()
    assert (part.counts == copy.marginal(["salary", "gender"]).counts).all()
    assert part.publication == copy.publication
    assert part.digest != copy.digest


def test_a_larger_copy_after_a_smaller_one_is_refused() -> None:
    """Two copies with noise of their own would promise less together."""
    estimate = estimate_of()
    part = estimate.marginal("salary").publish()
    assert part.publication == PublicationNoise.for_epsilon(0.5, 2)
    for other in (estimate, estimate.marginal("gender")):
        with pytest.raises(StateError, match="published already, of salary") as caught:
            other.publish()
        assert "largest table first" in caught.value.hint
    assert estimate.marginal("salary").publish() is part


def test_a_publisher_may_have_drawn_before() -> None:
    """As a home does, which stores the noise of its studies."""
    plain = estimate_of()
    kept = draw_copy(plain)
    asked: list[Estimate] = []

    def stored(estimate: Estimate) -> Estimate:
        asked.append(estimate)
        return kept

    estimate = Estimate.from_counts(plain, publisher=stored)
    assert estimate.publish() is kept
    assert estimate.marginal("salary").publish().counts.tolist() == (
        kept.marginal("salary").counts.tolist()
    )
    assert asked == [estimate]
    noise = kept.publication
    assert noise is not None
    with pytest.raises(ParameterError, match="lies on 24 counts"):
        estimate.marginal("salary").with_publication(np.array([1, 2]), noise)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_noise_is_counted(name: str) -> None:
    """Errors are larger than those of the own view, by exactly the noise of the copy."""
    estimate = estimate_of(name)
    copy = estimate.publish()
    own, published = (
        replace(each.uncertainty(), distribution=estimate.plausible).cells().total
        for each in (estimate, copy)
    )
    assert (published > own).all()
    rmse, expected = published.sum() ** 0.5, estimate.plan.rmse_published
    assert 0.5 * expected < rmse < 1.1 * expected
    share, wider = (e.probability("salary = '>50K'") for e in (estimate, copy))
    assert (wider.standard_error or 0) > (share.standard_error or 1)
    assert abs((wider.value or 0) - (share.value or 0)) < 5 * (wider.standard_error or 0)


def test_an_estimate_from_a_file_is_published_elsewhere(tmp_path: Path) -> None:
    """Nobody knows whether its release was published; a published copy can be saved and read."""
    estimate = estimate_of()
    estimate.save(tmp_path / "own")
    with pytest.raises(StateError, match="read from a file") as caught:
        Estimate.load(tmp_path / "own").publish()
    assert "veiltab publish" in caught.value.hint
    estimate.publish().save(tmp_path / "copy")
    again = Estimate.load(tmp_path / "copy")
    assert again.publish() is again
    assert (again.counts == estimate.publish().counts).all()
    assert again.digest == estimate.publish().digest


@pytest.mark.parametrize("name", MECHANISMS)
def test_everything_says_whether_it_may_be_passed_on(name: str, tmp_path: Path) -> None:
    """Text, notebook, report, CSV, Parquet and summary."""
    estimate = estimate_of(name).marginal(["gender", "salary"])
    texts = {"own": "not for passing on", "copy": "a published copy: it may be passed on"}
    for key, each in (("own", estimate), ("copy", estimate.publish())):
        said = texts[key]
        assert said in each.status
        assert f"<strong>{escape(each.status)}</strong>" in each._repr_html_()
        each.write_csv(tmp_path / f"{key}.csv")
        frame = pl.read_csv(tmp_path / f"{key}.csv")
        assert frame["status"].unique().to_list() == [each.status]
        assert frame.drop("status").columns == each.table().columns
        each.write_parquet(tmp_path / f"{key}.parquet")
        note = json.loads(pl.read_parquet_metadata(tmp_path / f"{key}.parquet")["veiltab"])
        assert note["status"] == each.status
        assert (note["published"] is None) == (key == "own")
        each.report(tmp_path / f"{key}.html")
        page = (tmp_path / f"{key}.html").read_text("utf-8")
        assert ("Not for passing on" in page) == (key == "own")
        assert ("A published copy" in page) == (key == "copy")
    assert note["published"] == {
        "cells": 4,
        "digest": estimate.publish().digest,
        "epsilon": 0.5,
    }


def test_an_attribute_called_status_keeps_its_column(tmp_path: Path) -> None:
    """The mark gets another name."""
    table = adult_table(24).marginal(["salary"])
    attribute = replace(table.schema.attributes[0], name="status")
    schema = type(table.schema)([attribute])
    estimate = simulate(replace(table, schema=schema), epsilon=1.0, seed=1)
    estimate.write_csv(tmp_path / "file.csv")
    frame = pl.read_csv(tmp_path / "file.csv")
    assert frame.columns[0] == "status"
    assert frame["status (veiltab)"].unique().to_list() == [estimate.status]


def test_promises_name_every_observer() -> None:
    """The researcher with the server, a helping curator, and readers, with their numbers.

    In matched linkage it also matters whether somebody is in the tables at all, and without a
    channel a curator's help has no limit.
    """
    promises = {p.against: p for p in estimate_of("decoys, δ").promises}
    together = promises["the researcher, alone or together with the server"]
    assert together.epsilon == 1.0
    assert 0 < together.delta <= 1e-6
    assert promises["a researcher whom a curator helps"].epsilon is not None
    assert promises["whoever only reads published copies"].epsilon == 0.5
    assert len(promises) == 3
    matched = [p.against for p in estimate_of("matched").promises]
    assert "the same, about whether somebody is in the tables at all" in matched
    free = simulate(
        adult_table(24), epsilon=1.0, epsilon_with_curator=float("inf"), seed=1
    ).promises[1]
    assert free.epsilon is None
    assert str(free) == "no limit against a researcher whom a curator helps"
    told = Estimate.from_counts(estimate_of(), provenance=Provenance(promises=(free,)))
    assert told.promises == (free,)
