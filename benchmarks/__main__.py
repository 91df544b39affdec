"""``make bench``: measure everything, print one table, write ``build/bench.json``."""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import cryptography
import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from benchmarks.against_peers import peer_ratios
from benchmarks.commands import command_ratios
from benchmarks.console import console_ratios
from benchmarks.decoys import decoy_ratios
from benchmarks.growth import growth_peaks, growth_ratios
from benchmarks.kernels import kernel_ratios
from benchmarks.pipeline import pipeline_ratios
from benchmarks.simulation import simulation_ratios
from benchmarks.timing import Figure, Ratio, number
from benchmarks.transport import transport_ratios
from benchmarks.wire import wire_figures

OUT = Path("build/bench.json")
Rows = Sequence[Ratio | Figure]


def _growth() -> Rows:
    return [*growth_ratios(), *growth_peaks()]


PARTS: dict[str, tuple[str, Callable[[], Rows]]] = {
    "kernels": ("kernels, one thread", kernel_ratios),
    "pipeline": ("the whole private pipeline against pooling the tables", pipeline_ratios),
    "decoys": ("preparing with decoys against as many rows without", decoy_ratios),
    "growth": ("growth with the number of rows and cells, and memory", _growth),
    "wire": ("bytes on the wire and on the disk", wire_figures),
    "transport": ("chunks through the service", transport_ratios),
    "peers": ("other libraries at the same work, one thread", peer_ratios),
    "simulation": ("simulations", simulation_ratios),
    "commands": ("commands, as a person waits for them", command_ratios),
    "console": ("the console, as a person waits for it", console_ratios),
}


def main() -> int:
    """Run the benchmarks; the exit code says whether every goal was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; or all")
    wanted = parser.parse_args().parts or list(PARTS)
    console = Console(width=200)
    measured: dict[str, Rows] = {}
    for part in wanted:
        title, measure = PARTS[part]
        console.print(f"measuring {title}", style="dim")
        start = time.perf_counter()
        measured[part] = measure()
        console.print(f"  took {time.perf_counter() - start:.0f} s", style="dim")
        _write(measured)  # a part that breaks later loses nothing of this one
    console.print(_table(measured))
    print(f"written to {OUT}")
    return 0 if all(ratio.met for rows in measured.values() for ratio in rows) else 1


def _table(measured: dict[str, Rows]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("what", "million records/s", "times the speed of", "", "goal", "met"):
        table.add_column(name, justify="right" if name.startswith(("million", "times")) else "left")
    for part, rows in measured.items():
        table.add_row()
        table.add_row(f"[bold]{PARTS[part][0]}[/bold]")
        for row in rows:
            met = ("yes" if row.met else "[red]NO[/red]") if row.goal else ""
            table.add_row(row.name, *_numbers(row), row.goal, met)
    return table


def _numbers(row: Ratio | Figure) -> tuple[str, str, str]:
    if isinstance(row, Figure):
        return "", number(row.value), row.unit
    return number(row.rate) if row.records else "", number(row.ratio), row.reference


def _write(measured: dict[str, Rows]) -> None:
    """Keep what was measured; parts that were not measured this time stay as they were."""
    OUT.parent.mkdir(exist_ok=True)
    parts = json.loads(OUT.read_text())["parts"] if OUT.exists() else {}
    for part, rows in measured.items():
        parts[part] = [asdict(row) | _derived(row) for row in rows]
    OUT.write_text(json.dumps({"machine": _machine(), "parts": parts}, indent=2) + "\n")


def _derived(row: Ratio | Figure) -> dict[str, float]:
    return {} if isinstance(row, Figure) else {"ratio": row.ratio, "rate": row.rate}


def _machine() -> dict[str, str | int]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count() or 0,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "polars": pl.__version__,
        "cryptography": cryptography.__version__,
    }


if __name__ == "__main__":
    sys.exit(main())
