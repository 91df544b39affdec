"""The tables of ``docs/explanation/performance.md``, from ``build/bench.json``.

``python -m benchmarks.page`` writes them between the page's marks; the text around them stays.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.__main__ import OUT, PARTS
from benchmarks.timing import number

PAGE = Path("docs/explanation/performance.md")
BEGIN, END = "<!-- measured: {} -->\n", "<!-- end of {} -->\n"


def main() -> None:
    """Rewrite every table whose part was measured."""
    report = json.loads(OUT.read_text())
    text = PAGE.read_text("utf-8")
    for part, rows in report["parts"].items():
        if part in PARTS:
            text = replaced(text, part, table(rows))
    text = replaced(text, "machine", machine(report["machine"]))
    PAGE.write_text(text, "utf-8")
    print(f"written to {PAGE}")


def replaced(text: str, part: str, content: str) -> str:
    """Put content between the marks of a part."""
    begin, end = BEGIN.format(part), END.format(part)
    before, _, rest = text.partition(begin)
    if not rest:
        return text
    return f"{before}{begin}{content}{end}{rest.partition(end)[2]}"


def table(rows: list[dict[str, Any]]) -> str:
    """Write rows as Markdown."""
    heads = "| what | million records/s | times | of | goal | met |"
    lines = [heads, "|---|---:|---:|---|---|---|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    return "\n".join(["", *lines, "", ""])


def cells(row: dict[str, Any]) -> list[str]:
    """Return the six cells of a row."""
    met = ("yes" if row["met"] else "**no**") if row["goal"] else ""
    if "unit" in row:
        return [row["name"], "", number(row["value"]), row["unit"], row["goal"], met]
    rate = number(row["rate"]) if row["records"] else ""
    return [row["name"], rate, number(row["ratio"]), row["reference"], row["goal"], met]


def machine(facts: dict[str, str | int]) -> str:
    """Say on what it was measured."""
    versions = ", ".join(f"{n} {facts[n]}" for n in ("python", "numpy", "polars", "cryptography"))
    return f"\n{facts['processor']}, {facts['cores']} cores, shared with others; {versions}.\n\n"


if __name__ == "__main__":
    main()
