"""``make bench``: measure everything, print one table, write ``build/bench.json``."""

import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.commands import time_plan, time_plan_with_delta, time_reproduce
from benchmarks.simulation import compare_engines
from benchmarks.timing import Ratio

OUT = Path("build/bench.json")


def main() -> int:
    """Run the benchmarks; the exit code says whether every goal was met."""
    ratios = [compare_engines(), time_plan(), time_plan_with_delta(), time_reproduce()]
    Console(width=150).print(_table(ratios))
    OUT.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    rows = [asdict(ratio) | {"ratio": ratio.ratio} for ratio in ratios]
    OUT.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
    print(f"written to {OUT}")
    return 0 if all(ratio.met for ratio in ratios) else 1


def _table(ratios: list[Ratio]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("what", "seconds", "reference", "seconds", "ratio", "goal", "met"):
        table.add_column(name, justify="right" if name in {"seconds", "ratio"} else "left")
    for ratio in ratios:
        table.add_row(
            *(ratio.name, f"{ratio.seconds:.3f}", ratio.reference),
            *(f"{ratio.reference_seconds:.3f}", f"{ratio.ratio:.3g}"),
            *(ratio.goal, "yes" if ratio.met else "NO"),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
