"""Saving and loading: everything comes back, and nothing else is taken."""

import base64
import json
import math
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.estimates import PROVENANCE, adult_estimate
from veiltab.core.plan import plan
from veiltab.core.schema import Attribute, Schema
from veiltab.data.counts import adult_table
from veiltab.errors import InputError, MalformedError, OutputError, VeiltabError, VersionError
from veiltab.estimates import Estimate, Promise, Provenance
from veiltab.rehearsal import simulate
from veiltab.wire import codec

ESTIMATE = adult_estimate()


def test_everything_comes_back(tmp_path: Path) -> None:
    """Schema, counts, plan, provenance and promises; and so does every number."""
    told = Estimate(
        ESTIMATE.schema,
        ESTIMATE.counts,
        ESTIMATE.plan,
        provenance=Provenance("ab" * 32, "Title", "A & B", (Promise("anybody", 0.5, 1e-6),)),
    )
    parties = {
        "researcher": replace(PROVENANCE, researcher="Dr. Rivera"),
        "holders": replace(PROVENANCE, holders={"salary": "Tax office", "gender": "Registry"}),
        "terms": replace(PROVENANCE, linkage="matched", pads="one-time"),
    }
    estimates = {
        name: Estimate.from_counts(ESTIMATE, provenance=origin) for name, origin in parties.items()
    }
    estimates |= {"plain": ESTIMATE, "told": told, "part": told.marginal("gender")}
    for name, each in estimates.items():
        each.save(tmp_path / name)
        again = Estimate.load(str(tmp_path / name))
        assert again.schema == each.schema
        assert again.plan == each.plan
        assert again.provenance == each.provenance
        assert (again.counts == each.counts).all()
        assert again.table().equals(each.table())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(estimates)


def test_plans_with_a_delta_come_back(tmp_path: Path) -> None:
    """The accounting is stored with its version."""
    chosen = plan(
        population_size=2_000, domain_size=4, epsilon=0.5, delta=1e-6, mechanism="shuffle"
    )
    assert chosen.accounting == "shuffle"
    schema = Schema([Attribute("a", list("wxyz"))])
    counts = np.array([chosen.sample_size, 0, 0, 0])
    Estimate(schema, counts, chosen).save(tmp_path / "file")
    assert Estimate.load(tmp_path / "file").plan == chosen


DECOYS = {
    "pure": {},
    "with a channel": {"epsilon_with_curator": 3.0},
    "with a delta": {"delta": 1e-6, "epsilon_with_curator": math.inf},
    "matched": {"linkage": "matched", "epsilon_public": 0.25},
}


@pytest.mark.parametrize("name", DECOYS)
def test_decoys_and_published_copies_come_back(name: str, tmp_path: Path) -> None:
    """Mechanism, linkage and the noise of the copy; every number comes out the same."""
    estimate = simulate(
        adult_table(24).marginal(["gender", "salary"]),
        epsilon=1.0,
        mechanism="decoys",
        seed=4,
        **DECOYS[name],  # type: ignore[arg-type]
    )
    for key, each in (("own", estimate), ("copy", estimate.publish())):
        each.save(tmp_path / key)
        again = Estimate.load(tmp_path / key)
        assert again.plan == each.plan
        assert again.publication == each.publication
        assert again.provenance == each.provenance
        assert (again.counts == each.counts).all()
        assert again.table().equals(each.table())
        assert again.status == each.status


def test_a_plan_before_the_population_is_known_comes_back(tmp_path: Path) -> None:
    """With the cells of each curator, and no population."""
    chosen = plan(
        population_size=9_000,
        domain_size=4,
        epsilon=1.0,
        linkage="matched",
        curator_cells=(2, 2),
        mechanism="decoys",
    )
    unknown = replace(chosen, population_size=None)
    schema = Schema([Attribute("a", list("wxyz"))])
    Estimate(schema, np.array([4000, 1, 2, 3]), unknown).save(tmp_path / "file")
    assert Estimate.load(tmp_path / "file").plan == unknown


def published_file(path: Path) -> dict[str, Any]:
    """Write a published copy with decoys, and return what is in the file."""
    table = adult_table(24).marginal(["gender", "salary"])
    simulate(table, epsilon=1.0, mechanism="decoys", seed=4).publish().save(path)
    fields: dict[str, Any] = json.loads(path.read_bytes())
    return fields


def raised(fields: dict[str, Any], name: str, by: int) -> None:
    """Change a threshold a little."""
    fields[name] = str(int(fields[name]) + by)


DECOY_CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a coin that breaks the promise": (
        lambda v: v["mechanism"].update(
            coin_threshold=str(int(v["mechanism"]["coin_threshold"]) + 10**9)
        ),
        "spends more",
    ),
    "no decoys": (lambda v: v["mechanism"].pop("decoys"), "is missing"),
    "another accounting": (lambda v: v.update(accounting="pure-1"), "accounting"),
    "less noise on the copy": (
        lambda v: raised(v["published"], "threshold", -1),
        "does not keep",
    ),
    "a smaller promise to readers": (
        lambda v: v["published"].update(epsilon=0.5),
        "does not keep",
    ),
    "noise on other cells": (lambda v: v["published"].update(cells=7), "has no marginal"),
    "another linkage": (lambda v: v.update(linkage="guessed"), "linkage"),
}


@pytest.mark.parametrize("name", DECOY_CHANGES)
def test_a_changed_file_with_decoys_is_refused(name: str, tmp_path: Path) -> None:
    """A file cannot claim a promise that its numbers do not keep."""
    change, message = DECOY_CHANGES[name]
    path = tmp_path / "file"
    fields = published_file(path)
    change(fields)
    path.write_bytes(codec.dump(fields))
    with pytest.raises(MalformedError, match="is not a saved estimate") as caught:
        Estimate.load(path)
    assert message in caught.value.message


def test_large_tables_are_small_files(tmp_path: Path) -> None:
    """A million cells of few records take some hundred kilobytes."""
    schema = Schema(Attribute(n, [str(i) for i in range(100)]) for n in "abc")
    chosen = plan(population_size=10**7, domain_size=10**6, epsilon=1.0, mechanism="paper")
    generator = np.random.default_rng(0)
    counts = np.bincount(generator.integers(0, 10**6, chosen.sample_size), minlength=10**6)
    estimate = Estimate(schema, counts, chosen)
    estimate.save(tmp_path / "file")
    assert (tmp_path / "file").stat().st_size < 500_000
    assert (Estimate.load(tmp_path / "file").counts == counts).all()


def packed(counts: bytes, width: int) -> dict[str, Any]:
    """Return the packed form of these bytes."""
    return {"data": base64.b64encode(zlib.compress(counts)).decode(), "width": width}


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another format": (lambda v: v.update(format="other"), "does not say"),
    "no format": (lambda v: v.pop("format"), "does not say"),
    "a field too many": (lambda v: v.update(extra=1), "unknown field"),
    "a field missing": (lambda v: v.pop("epsilon"), "is missing"),
    "another threshold": (lambda v: v["mechanism"].update(keep_threshold="7"), "threshold"),
    "a threshold that is no number": (
        lambda v: v["mechanism"].update(keep_threshold="0x7"),
        "digits as text",
    ),
    "another mechanism": (lambda v: v["mechanism"].update(name="decoys"), "mechanism"),
    "an unknown mechanism": (lambda v: v["mechanism"].update(name="magic"), "mechanism.name"),
    "no mechanism": (lambda v: v.update(mechanism=None), "mechanism.name"),
    "a broken promise": (lambda v: v.update(epsilon=0.01), "spends more"),
    "another sample": (
        lambda v: v["mechanism"].update(sample_size=v["mechanism"]["sample_size"] - 1),
        "",
    ),
    "other attributes": (lambda v: v["attributes"].pop(), "counts"),
    "equal attributes": (lambda v: v.update(attributes=v["attributes"][:1] * 2), "attributes"),
    "no attributes": (lambda v: v.update(attributes=[]), "at least 1"),
    "too many cells": (
        lambda v: v.update(
            attributes=[{"name": n, "categories": list(map(str, range(1000)))} for n in "abc"]
        ),
        "joint cells",
    ),
    "another width": (lambda v: v["counts"].update(width=4), "must hold"),
    "a strange width": (lambda v: v["counts"].update(width=3), "one of 1, 2, 4, 8"),
    "not deflated": (lambda v: v["counts"].update(data="AAAA"), "not deflated"),
    "a bomb": (lambda v: v.update(counts=packed(bytes(10**7), 1)), "must hold"),
    "cut off": (
        lambda v: v["counts"].update(
            data=base64.b64encode(base64.b64decode(v["counts"]["data"])[:-4]).decode()
        ),
        "must hold",
    ),
    "huge counts": (
        lambda v: v.update(counts=packed(b"\xff" * 8 * 24, 8)),
        "2^53",
    ),
    "parties of another form": (lambda v: v.update(parties={"pads": "stream"}), "is missing"),
    "an unknown linkage": (
        lambda v: v.update(
            parties={"holders": [], "pads": None, "researcher": None, "linkage": "nobody"}
        ),
        "linkage",
    ),
    "a negative promise": (
        lambda v: v.update(promises=[{"against": "me", "epsilon": -1, "delta": 0}]),
        "not negative",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_file_is_refused(name: str, tmp_path: Path) -> None:
    """Whatever was changed, the error names the file."""
    change, message = CHANGES[name]
    path = tmp_path / "file"
    ESTIMATE.save(path)
    value = json.loads(path.read_bytes())
    change(value)
    path.write_bytes(codec.dump(value))
    with pytest.raises(MalformedError, match="is not a saved estimate") as caught:
        Estimate.load(path)
    assert message in caught.value.message


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"nonsense", b'{ "format": 1}'])
def test_what_is_no_estimate_is_refused(data: bytes, tmp_path: Path) -> None:
    """Other files, and JSON that is not canonical."""
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(MalformedError, match="is not a saved estimate"):
        Estimate.load(path)


def test_a_later_version_is_named(tmp_path: Path) -> None:
    """With what to do about it."""
    path = tmp_path / "file"
    ESTIMATE.save(path)
    value = json.loads(path.read_bytes()) | {"version": 3}
    path.write_bytes(codec.dump(value))
    with pytest.raises(VersionError, match="version 3"):
        Estimate.load(path)


def test_missing_places_are_typed_errors(tmp_path: Path) -> None:
    """A file that is not there, and a folder that is not."""
    with pytest.raises(InputError, match="cannot read"):
        Estimate.load(tmp_path / "nowhere")
    for place, message in ((tmp_path / "nowhere" / "file", "cannot write"), (tmp_path, "exists")):
        with pytest.raises(OutputError, match=message):
            ESTIMATE.save(place)
    assert list(tmp_path.iterdir()) == []


def test_single_flipped_bytes_never_load_silently(tmp_path: Path) -> None:
    """A file with a changed byte is refused, or is a different, valid estimate; never a crash."""
    path = tmp_path / "file"
    ESTIMATE.save(path)
    data = path.read_bytes()
    for position in range(0, len(data), 7):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        try:
            Estimate.load(path)
        except VeiltabError as error:
            assert error.hint  # noqa: PT017 - both outcomes are fine
