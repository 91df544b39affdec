"""How long a person waits for whole commands."""

import math
import subprocess
import sys
import tempfile
from functools import partial
from itertools import product

from benchmarks.timing import Ratio, median_seconds
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.decoys import exact_delta
from veiltab.core.mechanism import WeightTable
from veiltab.core.plan import plan

PLAN = ["plan", "--population", "45222", "--cells", "24", "--epsilon", "0.5"]


def command_ratios() -> list[Ratio]:
    """Return the rows of all commands."""
    return [time_plan(), time_plan_with_delta(), time_accounting(), time_reproduce()]


def run_veiltab(*arguments: str) -> None:
    """Run the command in a new process."""
    command = [sys.executable, "-m", "veiltab", *arguments]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command


def run_empty_python() -> None:
    """Start Python and do nothing: the least that any command can take."""
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def time_plan() -> Ratio:
    """Time ``veiltab plan`` from a cold start, against starting Python at all."""
    seconds = median_seconds(lambda: run_veiltab(*PLAN), 7)
    return Ratio(
        name="veiltab plan, start to answer",
        seconds=seconds,
        reference="python -c pass",
        reference_seconds=median_seconds(run_empty_python, 7),
        goal="under 1 second",
        met=seconds < 1,
    )


def time_plan_with_delta() -> Ratio:
    """Time ``veiltab plan --delta`` for the largest population, against the plan without."""
    large = ["plan", "--population", "1000000000", "--epsilon", "0.5", "--delta", "1e-6"]
    questions = [[*large, "--cells", cells] for cells in ("2", "24", "1000000")]
    slowest = max(median_seconds(partial(run_veiltab, *question), 5) for question in questions)
    return Ratio(
        name="veiltab plan --delta, n = 10^9, N = 2, 24, 10^6",
        seconds=slowest,
        reference="veiltab plan",
        reference_seconds=median_seconds(lambda: run_veiltab(*PLAN), 3),
        goal="under 1 second",
        met=slowest < 1,
    )


def time_accounting() -> Ratio:
    """Time the exact δ of a long law, against the double sum itself, in floats."""
    planned = plan(population_size=10**6, domain_size=24, epsilon=0.05, delta=1e-9)
    coin, law = planned.mechanism.coin, planned.mechanism.decoys
    assert coin is not None  # noqa: S101 - so it is planned
    assert isinstance(law, WeightTable)  # noqa: S101 - as above
    beta = float(coin.probability)
    plain = [weight / DRAW_RANGE for weight in law.weights]
    shifted = [
        (1 - beta) * w + beta * before for w, before in zip(plain, [0.0, *plain[:-1]], strict=True)
    ]

    def double_sum() -> float:
        pairs = product(zip(shifted, plain, strict=True), repeat=2)
        ratio = math.exp(planned.epsilon)
        return sum(max(p * e - ratio * d * q, 0.0) for (p, d), (q, e) in pairs)

    seconds = median_seconds(lambda: exact_delta.__wrapped__(coin, law, planned.epsilon), 7)
    return Ratio(
        name=f"exact delta of a law of decoys, {len(law.weights):,} weights",
        seconds=seconds,
        reference="the double sum in floats",
        reference_seconds=median_seconds(double_sum, 1),
        goal="under 50 ms",
        met=seconds < 0.05,  # noqa: PLR2004 - the goal in the line above
    )


def time_reproduce() -> Ratio:
    """Time the whole reproduction, against the plan command."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = median_seconds(lambda: run_veiltab("reproduce", "--out", folder), 1)
    return Ratio(
        name="veiltab reproduce, whole",
        seconds=seconds,
        reference="veiltab plan",
        reference_seconds=median_seconds(lambda: run_veiltab(*PLAN), 3),
        goal="under 120 seconds",
        met=seconds < 120,  # noqa: PLR2004 - the goal in the line above
    )
