"""A whole study in one call, on tables as people have them."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import veiltab as vt
from veiltab.core.mechanism import LinkageMode
from veiltab.core.plan import MechanismName
from veiltab.errors import UselessPlanError

PEOPLE = 20_000
TINY = pl.DataFrame({"person": [1, 2], "x": ["a", "b"]})


def tables() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two tables about the same people, in different orders."""
    people = pl.DataFrame(
        {
            "person": range(PEOPLE),
            "smoker": ["no"] * 15_000 + ["yes"] * 5_000,
            "income": ["high", "low", "low", "low"] * 5_000,
        }
    )
    shuffled = people.sample(fraction=1, shuffle=True, seed=1)
    return people.select("person", "smoker"), shuffled.select("person", "income")


def test_the_estimate_is_near_the_truth() -> None:
    """Within five standard errors in each of four cells: a false alarm in 400,000 runs."""
    estimate = vt.rehearse(tables(), on="person", epsilon=1.0)
    assert estimate.schema.names == ("smoker", "income")
    frame = estimate.table("unbiased")
    truth = {("no", "high"): 3_750, ("no", "low"): 11_250, ("yes", "high"): 1_250}
    truth["yes", "low"] = 3_750
    for row in frame.iter_rows(named=True):
        share = truth[row["smoker"], row["income"]] / PEOPLE
        assert abs(row["share"] - share) < 5 * row["standard_error"]


def test_a_seed_repeats_and_no_seed_does_not() -> None:
    """The seed decides keys, sample and noise; without one they are new each time."""
    seeded = [vt.rehearse(tables(), on="person", epsilon=1.0, seed=7).counts for _ in range(2)]
    assert (seeded[0] == seeded[1]).all()
    fresh = [vt.rehearse(tables(), on="person", epsilon=1.0).counts for _ in range(2)]
    assert (fresh[0] != fresh[1]).any()


def test_every_kind_of_table_gives_the_same(tmp_path: Path) -> None:
    """polars, lazy, pandas, CSV, Parquet and SQLite: with one seed, the same counts."""
    smokers, incomes = tables()
    incomes.write_csv(tmp_path / "incomes.csv")
    incomes.write_parquet(tmp_path / "incomes.parquet")
    expected = vt.rehearse([smokers, incomes], on="person", epsilon=1.0, seed=3).counts
    columns = {name: incomes[name].to_list() for name in incomes.columns}
    for other in (
        incomes.lazy(),
        pd.DataFrame(columns),
        pd.DataFrame(columns).astype({"income": "category"}),
        str(tmp_path / "incomes.csv"),
        tmp_path / "incomes.parquet",
        vt.open_table(incomes),
    ):
        counts = vt.rehearse([smokers, other], on="person", epsilon=1.0, seed=3).counts
        assert (counts == expected).all()


def test_different_people_are_matched() -> None:
    """Aligned curators must hold the same respondents; a server matches those in common."""
    smokers, incomes = tables()
    fewer = incomes.head(18_000)
    with pytest.raises(vt.errors.AlignmentError):
        vt.rehearse([smokers, fewer], on="person", epsilon=1.0)
    estimate = vt.rehearse([smokers, fewer], on="person", epsilon=1.0, linkage="matched")
    assert estimate.plan.mechanism_name == "decoys"
    assert estimate.plan.population_size is None  # nobody is told how many they are
    by_rank = vt.rehearse(
        [smokers, fewer], on="person", epsilon=1.0, linkage="matched", mechanism="paper"
    )
    assert by_rank.plan.population_size == 18_000


@pytest.mark.parametrize("linkage", ["aligned", "matched"])
@pytest.mark.parametrize(
    ("chosen", "delta", "expected"),
    [
        ("auto", 0.0, "decoys"),
        ("auto", 1e-6, "decoys"),
        ("decoys", 1e-6, "decoys"),
        ("paper", 0.0, "paper"),
        ("paper", 1e-6, "paper"),
        ("shuffle", 1e-6, "shuffle"),
    ],
)
def test_the_mechanism_can_be_chosen(
    linkage: LinkageMode, chosen: MechanismName, delta: float, expected: str
) -> None:
    """By its name; decoys are what the planner takes by itself."""
    estimate = vt.rehearse(
        tables(),
        on="person",
        epsilon=1.0,
        delta=delta,
        mechanism=chosen,
        linkage=linkage,
        epsilon_public=0.5,
        seed=1,
    )
    assert estimate.plan.mechanism_name == expected
    assert estimate.plan.delta == (0.0 if chosen == "paper" else delta)
    if expected == "decoys":
        assert estimate.plan.epsilon_public == 0.5


def test_a_sample_size_stands_for_the_papers_way() -> None:
    """And decoys have none."""
    estimate = vt.rehearse(tables(), on="person", epsilon=1.0, sample_size=5000, seed=1)
    assert (estimate.plan.mechanism_name, estimate.plan.sample_size) == ("paper", 5000)
    with pytest.raises(vt.errors.ParameterError, match="sample cannot be fixed"):
        vt.rehearse(tables(), on="person", epsilon=1.0, sample_size=5000, mechanism="decoys")
    with pytest.raises(vt.errors.ParameterError, match="mechanism is 'magic'"):
        vt.rehearse(tables(), on="person", epsilon=1.0, mechanism="magic")  # type: ignore[arg-type]


def test_the_servers_noise_can_be_chosen_or_left_out() -> None:
    """The promise against a curator who helps the researcher is the channel's, or none."""
    for wanted in (1.0, math.inf):
        estimate = vt.rehearse(
            tables(),
            on="person",
            epsilon=1.0,
            mechanism="decoys",
            epsilon_with_curator=wanted,
            seed=1,
        )
        found = estimate.plan.epsilon_with_curator
        assert found is None if wanted == math.inf else found == pytest.approx(wanted, rel=1e-9)


def test_numbers_go_into_bins_and_values_are_mapped() -> None:
    """Columns with many numbers need intervals; odd values can be given a category."""
    people = pl.DataFrame(
        {
            "a": [f"{n:04}" for n in range(1000)],
            "b": ["x"] * 1000,
            "age": [20 + n % 60 for n in range(1000)],
            "smoker": [["yes", "no", "Y", None][n % 4] for n in range(1000)],
        }
    )
    recode: dict[str, vt.Bins | vt.ValueMap] = {
        "age": vt.Bins([40, 60]),
        "smoker": vt.ValueMap({"Y": "yes", None: "unknown"}),
    }
    estimate = vt.rehearse([people], on=["a", "b"], epsilon=2.0, recode=recode)
    ages, smokers = estimate.schema.attributes
    assert ages.categories == ("<40", "40 to <60", ">=60")
    assert set(smokers.categories) == {"no", "yes", "unknown"}


def test_categories_have_the_order_that_is_given() -> None:
    """That of an enum, of a categorical column, or of a map of all of them; else the alphabet's."""
    sizes = ["low", "middle", "high"]
    people = pl.DataFrame({"person": range(300), "income": sizes * 100})
    enum = people.with_columns(pl.col("income").cast(pl.Enum(sizes)))
    texts = pd.Categorical([*sizes[:2], None] * 100, sizes, ordered=True)
    categorical = pd.DataFrame({"person": range(300), "income": texts})
    named = {"income": vt.ValueMap({"low": "low", "middle": "middle", "high": "high"})}
    partly = {"income": vt.ValueMap({"low": "low"})}

    def categories(table: object, recode: dict[str, vt.ValueMap] | None = None) -> tuple[str, ...]:
        estimate = vt.rehearse([table], on="person", epsilon=4.0, recode=recode, seed=1)
        return estimate.schema.attributes[0].categories

    assert categories(people) == categories(people, partly) == ("high", "low", "middle")
    assert categories(enum) == categories(people, named) == tuple(sizes)
    assert categories(categorical) == ("low", "middle", "(missing)")
    cut = pd.cut(pd.Series([1, 7, 50] * 100), [0, 5, 40, 100], right=False)
    assert categories(categorical.assign(income=cut)) == ("[0, 5)", "[5, 40)", "[40, 100)")
    ages = pd.Categorical(["20", "50", "70"] * 100, ["20", "50", "70"], ordered=True)
    binned = vt.rehearse(
        [categorical.assign(income=ages)],
        on="person",
        epsilon=4.0,
        recode={"income": vt.Bins([60])},
    )
    assert binned.schema.attributes[0].categories == ("<60", ">=60")


@pytest.mark.parametrize(
    ("tables", "on", "options", "error", "said"),
    [
        ([], "person", {}, vt.errors.ParameterError, "at least one table"),
        ([pl.DataFrame({"person": [1], "x": ["a"]})], [], {}, vt.errors.ParameterError, "at least"),
        (
            [pl.DataFrame({"person": [1, 2]})],
            "person",
            {},
            vt.errors.SchemaError,
            "besides the ids",
        ),
        ([pl.DataFrame({"x": ["a"]})], "person", {}, vt.errors.TableError, "no column 'person'"),
        (
            [pl.DataFrame({"person": range(99), "age": range(99)})],
            "person",
            {},
            vt.errors.SchemaError,
            "'age' looks like an id",
        ),
        (
            [pl.DataFrame({"person": [1, 2], "x": ["a", "b"]})],
            "person",
            {"recode": {"y": vt.Bins([1])}},
            vt.errors.SchemaError,
            "no table has a column 'y'",
        ),
        ([TINY], "person", {"linkage": "nobody"}, vt.errors.ParameterError, "linkage is 'nobody'"),
        ([TINY], "person", {"pads": "none"}, vt.errors.ParameterError, "pads is 'none'"),
        ([TINY], "person", {"epsilon": -1.0}, vt.errors.ParameterError, "epsilon"),
        ([TINY], "person", {"delta": 2.0}, vt.errors.ParameterError, "delta"),
        (
            [TINY],
            "person",
            {"recode": {"x": {}}},
            vt.errors.ParameterError,
            "rule for 'x' is a dict",
        ),
        ([np.zeros(3)], "person", {}, vt.errors.TableError, "from an object of type ndarray"),
        ([{"person": [1]}], "person", {}, vt.errors.TableError, "from an object of type dict"),
        (
            [pd.DataFrame({"person": range(6), "age": pd.cut(range(6), 2).as_unordered()})],
            "person",
            {},
            vt.errors.TableError,
            "'age' holds Python objects",
        ),
        (tables()[0], "person", {}, vt.errors.ParameterError, "a list of at least one table"),
        ("people.csv", "person", {}, vt.errors.ParameterError, "a list of at least one table"),
        (
            tables(),
            "person",
            {"seed": -1},
            vt.errors.ParameterError,
            "the seed must be a whole number",
        ),
    ],
)
def test_what_is_refused(
    tables: Sequence[object], on: str, options: dict[str, object], error: type[Exception], said: str
) -> None:
    """Every refusal is typed, and says what to do."""
    with pytest.raises(error, match=said) as caught:
        vt.rehearse(tables, on=on, **({"epsilon": 1.0} | options))  # type: ignore[arg-type]
    assert isinstance(caught.value, vt.VeiltabError)
    assert caught.value.hint


def test_rules_may_come_as_a_recode_and_numbers_from_numpy() -> None:
    """As in a study; counting rows gives NumPy's whole numbers."""
    people = pl.DataFrame({"person": range(500), "age": [20 + n % 60 for n in range(500)]})
    recode = vt.Recode({"age": vt.Bins([40, 60])})
    first = vt.rehearse([people], on="person", epsilon=1.0, recode=recode, seed=np.int64(3))  # type: ignore[arg-type]
    again = vt.rehearse([people], on="person", epsilon=1.0, recode=recode.rules, seed=3)
    assert (first.counts == again.counts).all()
    twice = pl.concat([people, people.tail(50).with_columns(age=pl.lit(99, pl.Int64))])
    kept = vt.Recode(recode.rules, duplicates="first")
    once = vt.rehearse([twice], on="person", epsilon=1.0, recode=kept, seed=3)
    assert (first.counts == once.counts).all()
    rows = np.int64(45_222)
    chosen = vt.plan(population_size=rows, domain_size=24, epsilon=1, mechanism="paper")  # type: ignore[arg-type]
    assert chosen.sample_size == 3_238
    one = vt.plan(population_size=rows, domain_size=24, epsilon=1)  # type: ignore[arg-type]
    for epsilon in (np.float32(1), np.int64(1)):
        same = vt.plan(population_size=45_222, domain_size=24, epsilon=epsilon, delta=np.float32(0))  # type: ignore[arg-type]
        assert same == one
        assert vt.plan_overlap(1_000, epsilon) == vt.plan_overlap(1_000, 1)  # type: ignore[arg-type]
    with pytest.raises(vt.errors.ParameterError, match="recode is of type int"):
        vt.rehearse([people], on="person", epsilon=1.0, recode=5)  # type: ignore[arg-type]
    with pytest.raises(vt.errors.ParameterError, match="type DataFrame is not a table of counts"):
        vt.simulate(people, epsilon=1.0)  # type: ignore[arg-type]
    for wrong in ("1", None, True, float("nan")):
        with pytest.raises(vt.errors.ParameterError, match="epsilon"):
            vt.rehearse([people], on="person", epsilon=wrong)  # type: ignore[arg-type]


def test_a_simulation_needs_counts_alone() -> None:
    """Its estimate has the plan of its promise, and repeats with a seed."""
    first, again = (vt.simulate(vt.adult_table(24), epsilon=1, seed=5) for _ in range(2))
    assert (first.counts == again.counts).all()
    planned = vt.plan(population_size=45_222, domain_size=24, epsilon=1)
    assert first.plan == planned
    assert (vt.simulate(vt.adult_table(24), epsilon=1).counts != first.counts).any()
    with pytest.raises(vt.errors.ParameterError, match="the seed must be a whole number"):
        vt.simulate(vt.adult_table(24), epsilon=1, seed=-1)


def test_pandas_columns_of_every_kind() -> None:
    """Missing values become null, whatever pandas has for them; mixed columns are refused."""
    frame = pd.DataFrame(
        {
            "number": [1, 2, 3],
            "gap": [1.0, None, 3.0],
            "nullable": pd.array([1, None, 3], dtype="Int64"),
            "flag": [True, False, True],
            "text": ["a", None, "c"],
            "day": pd.to_datetime(["2024-01-01", None, "2024-01-03"]),
            "kind": pd.Categorical(["x", "y", None]),
        }
    )
    table = vt.open_table(frame)
    (batch,) = table.batches(list(table.columns), 10)
    assert batch["number"].to_list() == [1, 2, 3]
    assert batch["gap"].to_list() == [1.0, None, 3.0]
    assert batch["nullable"].to_list() == [1, None, 3]
    assert batch["flag"].to_list() == [True, False, True]
    assert batch["text"].to_list() == ["a", None, "c"]
    assert batch["kind"].to_list() == ["x", "y", None]
    assert batch["day"].null_count() == 1
    with pytest.raises(vt.errors.TableError, match="'odd' mixes values of several types"):
        vt.open_table(pd.DataFrame({"odd": [1, "a"]}))
    with pytest.raises(vt.errors.TableError, match="a pandas series is no table"):
        vt.open_table(frame["text"])
    with pytest.raises(vt.errors.TableError, match="two columns 'a'"):
        vt.open_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_what_says_less_than_a_guess_is_not_tried_out() -> None:
    """Neither rehearsed nor simulated, unless it is asked for."""
    schema = vt.Schema([vt.Attribute("x", ["a", "b"])])
    table = vt.CountTable(schema, np.array([1, 1]))
    with pytest.raises(UselessPlanError, match="less than a guess"):
        vt.rehearse([TINY], on="person", epsilon=0.1)
    with pytest.raises(UselessPlanError, match="less than a guess"):
        vt.simulate(table, epsilon=0.1)
    assert vt.rehearse([TINY], on="person", epsilon=0.1, anyway=True).counts.size == 2
    assert vt.simulate(table, epsilon=0.1, anyway=True).counts.size == 2
