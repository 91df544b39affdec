"""What the documentation shows is what happens: its commands and its Python are really run.

The blocks of a document share one folder and one Python session, from top to bottom.
"""

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

NOT_RUN = {"README.md": 1, "docs/tutorial/first-plan.md": 1}
"""How many blocks of each document may be shown without being run."""

SHOWN_ONLY = {"bibtex", "csv", "json", "text"}
_FENCE = re.compile(r"^```(\w*)$")
_REMARK = re.compile(r"^<!-- (not run|file): (\S.*\S) -->$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, and the remark on the line before it: why it is not run, or its file."""

    document: Path
    line: int
    language: str
    text: str
    remark: str | None
    reason: str

    @property
    def place(self) -> str:
        """Where the block starts, for messages."""
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(document: Path) -> Iterator[Block]:
    """Yield a document's fenced blocks in order."""
    lines = document.read_text("utf-8").splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            assert "```" not in line, f"{document}:{number + 1}: a fence must stand alone"
            continue
        if start is None:
            start = number
            continue
        assert not fence[1], f"{document}:{number + 1}: a block starts inside another"
        opening = _FENCE.match(lines[start])
        remark = _REMARK.match(lines[start - 1]) if start else None
        assert opening is not None
        yield Block(
            document,
            start + 1,
            opening[1],
            "\n".join(lines[start + 1 : number]) + "\n",
            remark[1] if remark else None,
            remark[2] if remark else "",
        )
        start = None
    assert start is None, f"{document}: a block does not end"


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console block with the lines that are shown below it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, tidy(shown)


def tidy(lines: list[str]) -> list[str]:
    """Take away what cannot be seen: spaces at the ends of lines, empty lines at either end."""
    return "\n".join(line.rstrip() for line in lines).strip("\n").splitlines()


def agrees(shown: list[str], real: list[str]) -> bool:
    """Tell whether the shown lines are the real ones; a line ``...`` stands for any lines."""
    patterns = [
        r"(?:[^\n]*\n)*" if line == "..." else re.escape(line) + r"\n" for line in tidy(shown)
    ]
    text = "".join(f"{line}\n" for line in tidy(real))
    return re.fullmatch("".join(patterns), text) is not None


def run_console(block: Block, folder: Path) -> None:
    """Run every command of a block and compare what it prints with what is shown."""
    assert block.text.startswith("$ "), f"{block.place}: begin with a command"
    environment = os.environ | {"COLUMNS": "80", "PYTHONUTF8": "1"}
    environment.pop("FORCE_COLOR", None)
    for command, shown in commands(block):
        program, *arguments = shlex.split(command)
        assert program == "veiltab", f"{block.place}: mark a block that cannot be run: {command}"
        done = subprocess.run(  # noqa: S603 - our own program and our own documents
            [sys.executable, "-m", "veiltab", *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        real = tidy(done.stdout.splitlines())
        assert agrees(shown, real), f"{block.place}: {command}\nprints:\n" + "\n".join(real)


def run_python(block: Block, session: dict[str, Any]) -> None:
    """Run a block as a dialogue if it has prompts, and as a program if it has none."""
    if ">>> " not in block.text:
        exec(compile(block.text, block.place, "exec"), session)  # noqa: S102 - our own documents
        return
    dialogue = doctest.DocTestParser().get_doctest(
        block.text, session, block.place, str(block.document), block.line
    )
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(dialogue, out=report.append, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
    session.update(dialogue.globs)


def run(block: Block, folder: Path, session: dict[str, Any]) -> None:
    """Do what a reader would do with a block."""
    if block.remark == "file":
        (folder / block.reason).write_text(block.text, "utf-8")
    if block.remark == "not run":
        return
    if block.language == "console":
        run_console(block, folder)
    elif block.language == "python":
        run_python(block, session)
    elif block.language == "json":
        json.loads(block.text)
    else:
        assert block.language in SHOWN_ONLY, f"{block.place}: name the block's language"
        prompt = re.search(r"^(\$|>>>) ", block.text, flags=re.MULTILINE)
        assert prompt is None, f"{block.place}: make it a console or a python block"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_does_what_it_shows(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands print what is shown below them, and Python answers what is shown."""
    monkeypatch.chdir(tmp_path)
    session: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(document):
        run(block, tmp_path, session)


def test_few_blocks_are_left_out_and_each_says_why() -> None:
    """A new block that is not run has to be counted here, so that nobody does it in passing."""
    left_out = [b for document in DOCUMENTS for b in blocks(document) if b.remark == "not run"]
    assert Counter(str(b.document.relative_to(ROOT)) for b in left_out) == NOT_RUN


def test_no_remark_is_out_of_place() -> None:
    """A remark that is not on the line right before a block would be ignored in silence."""
    for document in DOCUMENTS:
        written = re.findall(r"<!-- *(?:not run|file)", document.read_text("utf-8"))
        assert len(written) == sum(block.remark is not None for block in blocks(document)), document


@pytest.mark.parametrize(
    ("shown", "real", "same"),
    [
        (["a", "b"], ["a  ", "b", ""], True),
        (["a"], ["a", "b"], False),
        (["a", "..."], ["a", "b", "c"], True),
        (["...", "c"], ["a", "b", "c"], True),
        (["a", "...", "c"], ["a", "c"], True),
        (["a", "...", "d"], ["a", "b", "c"], False),
        (["a.c"], ["abc"], False),
        ([], ["a"], False),
    ],
)
def test_what_counts_as_the_same(shown: list[str], real: list[str], same: object) -> None:
    """The comparison itself: strict, except for ends of lines and the line of three dots."""
    assert agrees(shown, real) is same
