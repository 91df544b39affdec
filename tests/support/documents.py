"""The fenced blocks of the documentation, and how what they show is compared with what happens."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```(\w*)$")
_REMARK = re.compile(r"^<!-- (not run|file|terminal): (\S.*\S) -->$")
REMARKS = re.compile(r"<!-- *(?:not run|file|terminal)\b")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, and the remark on the line before it.

    ``not run`` says why, ``file`` names the file that the reader saves it as, and ``terminal`` says
    what goes on running in a terminal of its own.
    """

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
    """Yield each command of a console block with the lines that are shown below it.

    A command goes on in the next line after a backslash, as in a shell.
    """
    assert block.text.startswith("$ "), f"{block.place}: begin with a command"
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        length = 1 + next(i for i, line in enumerate(lines) if not line.endswith("\\"))
        yield "\n".join(lines[:length]), tidy(lines[length:])


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
