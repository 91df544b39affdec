"""An experiment: many simulated releases at one setting, and what theory says about them.

The data are the Adult table or one of the paper's three synthetic shapes.  Two engines give the
counts that a researcher would see: one draws counts from their law, one runs the real protocol.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.core import utility
from veiltab.core.channel import MAX_ESTIMATED_CELLS
from veiltab.core.designs import release_design
from veiltab.core.parameters import check_domain_size, check_population_size, check_runs
from veiltab.core.plan import PURE, MechanismName, Plan, plan
from veiltab.core.resampling import MAX_COUNTED_POPULATION, apportion
from veiltab.core.schema import MAX_CATEGORIES, Attribute, CountTable, Schema
from veiltab.crypto.entropy import CipherEntropy
from veiltab.data.counts import adult_table
from veiltab.data.ids import row_messages
from veiltab.errors import ParameterError
from veiltab.protocol.in_process import Holding, Rehearsal, Terms
from veiltab.protocol.researcher import count_records
from veiltab.wire.mechanism import DecoyTerms

DISTRIBUTIONS = ("adult", "uniform", "linear", "peaky")
ADULT_POPULATION = 45_222
PEAK = 0.9
"""The share of the most frequent cell in the paper's "peaky" data."""

MAX_RECORDS = 10**7
"""The record engine holds the whole population in memory."""

BATCH_NUMBERS = 1 << 22
"""How many released counts are held at once: 32 MiB."""

Release = NDArray[np.int64]
"""Released counts: one row per run, one column per cell."""

Engine = Callable[[CountTable, Plan, int, int, str], Release]
"""Table, plan, number of runs, seed, and a label that sets this experiment's randomness apart."""


def distribution_table(name: str, cells: int, population_size: int | None = None) -> CountTable:
    """Return the named data over ``cells`` cells; synthetic data take any population."""
    if name == "adult":
        table = adult_table(cells)
        if population_size not in (None, table.population_size):
            raise ParameterError(
                f"the Adult table has {table.population_size} respondents, not {population_size}",
                hint="leave the population out, or choose a synthetic distribution",
            )
        return table
    check_domain_size(cells)
    if cells > MAX_ESTIMATED_CELLS:
        raise ParameterError(
            f"{cells} cells are too many to simulate", hint=f"use at most {MAX_ESTIMATED_CELLS}"
        )
    population_size = ADULT_POPULATION if population_size is None else population_size
    check_population_size(population_size)
    return CountTable(anonymous_schema(cells), apportion(_weights(name, cells), population_size))


def anonymous_schema(cells: int) -> Schema:
    """Return a schema with this many cells, of as few attributes as possible."""
    sizes = [cells]
    while sizes[-1] > MAX_CATEGORIES:  # split off factors until the rest fits one attribute
        factor = next((f for f in range(MAX_CATEGORIES, 1, -1) if sizes[-1] % f == 0), None)
        if factor is None:
            raise ParameterError(
                f"{cells} cells cannot be arranged as attributes of at most {MAX_CATEGORIES}"
                " categories",
                hint="choose a number of cells with smaller factors, such as a power of ten",
            )
        sizes[-1:] = [factor, sizes[-1] // factor]
    return Schema(
        Attribute(f"attribute {number}", map(str, range(size)))
        for number, size in enumerate(sizes, start=1)
    )


def _weights(name: str, cells: int) -> NDArray[np.float64]:
    if name == "uniform":
        return np.ones(cells)
    if name == "linear":
        return np.arange(1, cells + 1, dtype=np.float64)
    if name == "peaky":
        weights = np.full(cells, (1 - PEAK) / (cells - 1))
        weights[0] = PEAK
        return weights
    raise ParameterError(
        f"there is no distribution {name!r}", hint=f"choose one of {', '.join(DISTRIBUTIONS)}"
    )


def simulate_counts(table: CountTable, plan: Plan, runs: int, seed: int, label: str) -> Release:
    """Draw released tables from their exact law, without touching a record."""
    _check_population(table, MAX_COUNTED_POPULATION, "counts")
    generator = np.random.default_rng([seed, *label.encode()])
    return release_design(plan).draw(table.counts, runs, generator)


def simulate_records(table: CountTable, plan: Plan, runs: int, seed: int, label: str) -> Release:
    """Run a whole study for each release, from the curators' tables to the researcher's counts.

    The attributes are divided between two curators, unless there is only one.
    """
    _check_population(table, MAX_RECORDS, "records")
    rehearsal = Rehearsal(_holdings(table), CipherEntropy.from_seed(seed, label))
    terms = Terms(
        epsilon=plan.epsilon,
        delta=0.0 if plan.accounting == PURE else plan.delta,
        sample_size=plan.sample_size,
        mechanism=None if plan.mechanism.decoys is None else DecoyTerms.from_plan(plan),
    )
    released = np.empty((runs, table.counts.size), dtype=np.int64)
    for run in range(runs):
        outcome = rehearsal.run(terms)
        access = rehearsal.access(outcome)
        released[run] = count_records(access, outcome.released).counts
    return released


def _holdings(table: CountTable) -> list[Holding]:
    schema = table.schema
    codes = schema.codes(np.repeat(np.arange(table.counts.size), table.counts))
    ids = row_messages(table.population_size)
    half = max(1, len(codes) // 2)
    parts = [slice(0, half), slice(half, None)][: len(codes)]
    return [Holding(schema.attributes[part], codes[part], ids) for part in parts]


def _check_population(table: CountTable, limit: int, engine: str) -> None:
    if table.population_size > limit:
        raise ParameterError(
            f"the engine {engine!r} takes at most {limit} respondents, not {table.population_size}",
            hint="simulate a smaller population; the exact formulas hold for any size",
        )


ENGINES: dict[str, Engine] = {"counts": simulate_counts, "records": simulate_records}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What an experiment is about: known data, and a plan for releasing them."""

    distribution: str
    table: CountTable
    plan: Plan

    @property
    def label(self) -> str:
        """A name that seeds this setting's randomness, whatever other settings there are."""
        where = f"{self.distribution}/{self.plan.domain_size}/{self.plan.population_size}"
        label = f"{where}/{self.plan.epsilon!r}/{self.plan.sample_size}"
        if self.plan.accounting == PURE:
            return label
        # Few digits of γ, so that a planner that rounds a little differently changes no result.
        noise = "none" if self.plan.gamma is None else f"{self.plan.gamma:.3g}"
        return f"{label}/{self.plan.mechanism_name}/{self.plan.delta!r}/{noise}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One experiment's outcome, under the names that ``veiltab simulate --json`` prints."""

    distribution: str
    mechanism: str
    population_size: int
    cells: int
    epsilon: float
    delta: float
    sample_size: int | None
    coin_probability: float | None
    expected_rows: float
    gamma: float | None
    runs: int
    mean_l2: float
    rmse: float
    rmse_standard_error: float | None
    exact_rmse: float
    error_bound: float | None
    tightened_bound: float | None

    @property
    def sampled(self) -> int:
        """The sample size of a release by rank, which all figures of the paper show."""
        assert self.sample_size is not None  # noqa: S101 - there are no decoys in the paper
        return self.sample_size

    @property
    def bound(self) -> float:
        """The bound of Theorem 2, which only a release by rank has."""
        assert self.error_bound is not None  # noqa: S101 - as above
        return self.error_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the settings of an experiment have in common, apart from data and ε."""

    mechanism: MechanismName = "paper"
    delta: float = 0.0
    sample_size: int | None = None
    epsilon_with_curator: float | None = None


def settings_for(
    distribution: str, table: CountTable, epsilons: Iterable[float], wishes: Iterable[Wishes]
) -> list[Setting]:
    """Return a setting for each ε and each wish, planned for the least worst-case error."""
    asked = list(wishes)
    return [
        Setting(
            distribution=distribution,
            table=table,
            plan=plan(
                population_size=table.population_size,
                domain_size=table.schema.domain_size,
                epsilon=epsilon,
                anyway=True,  # an experiment measures the error, however large
                **asdict(wish),
            ),
        )
        for epsilon in epsilons
        for wish in asked
    ]


def run_experiment(setting: Setting, runs: int, seed: int, engine: str = "counts") -> Result:
    """Simulate ``runs`` releases and measure how far the estimates are from the truth."""
    check_runs(runs)
    errors = _squared_errors(setting, runs, seed, engine)
    rmse = math.sqrt(errors.mean())
    table, chosen = setting.table, setting.plan
    error_bound, tightened_bound = _bounds(chosen)
    return Result(
        distribution=setting.distribution,
        mechanism=chosen.mechanism_name,
        population_size=table.population_size,
        cells=chosen.domain_size,
        epsilon=chosen.epsilon,
        delta=chosen.delta,
        sample_size=chosen.sample_size,
        coin_probability=chosen.coin_probability,
        expected_rows=chosen.expected_rows or 0.0,
        gamma=chosen.gamma,
        runs=runs,
        mean_l2=float(np.sqrt(errors).mean()),
        rmse=rmse,
        rmse_standard_error=_standard_error(errors, rmse),
        exact_rmse=exact_rmse(chosen, table),
        error_bound=error_bound,
        tightened_bound=tightened_bound,
    )


def exact_rmse(plan: Plan, table: CountTable) -> float:
    """Return √E‖T̂ − T‖² of a planned release of these data, by formula."""
    variances = release_design(plan).total.of_sets(table.distribution, 1 / plan.domain_size)
    return math.sqrt(variances.sum())


def _bounds(plan: Plan) -> tuple[float | None, float | None]:
    """Return the paper's bounds of the mean error, which a sample by rank has."""
    if plan.sample_size is None or plan.gamma is None:
        return None, None
    sizes = plan.sample_size, plan.domain_size, plan.gamma
    return utility.error_bound(*sizes), utility.tightened_bound(*sizes)


def _standard_error(errors: NDArray[np.float64], rmse: float) -> float | None:
    """Return the Monte Carlo error of the RMSE (delta method); one run does not show any."""
    if errors.size == 1 or rmse == 0:
        return None
    return float(errors.std(ddof=1) / math.sqrt(errors.size) / (2 * rmse))


def _squared_errors(setting: Setting, runs: int, seed: int, engine: str) -> NDArray[np.float64]:
    """Return ‖T̂ − T‖² of each run, in batches so that memory stays bounded."""
    truth, design = setting.table.distribution, release_design(setting.plan)
    batch = max(1, BATCH_NUMBERS // setting.plan.domain_size)
    errors = np.empty(runs)
    for number, start in enumerate(range(0, runs, batch)):
        size = min(batch, runs - start)
        label = f"{setting.label}/{number}"
        released = ENGINES[engine](setting.table, setting.plan, size, seed, label)
        estimates = design.estimate(released)
        errors[start : start + size] = ((estimates - truth) ** 2).sum(axis=1)
    return errors
