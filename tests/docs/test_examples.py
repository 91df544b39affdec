"""What the documentation shows is what happens: its commands and its Python are really run.

The blocks of a document share one folder and one Python session, from top to bottom.
"""

import contextlib
import doctest
import io
import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import click
import pytest

from tests.support.documents import (
    DOCUMENTS,
    REMARKS,
    ROOT,
    Block,
    agrees,
    blocks,
    commands,
    invocations,
    tidy,
)
from veiltab.cli.main import main
from veiltab.cli.main import veiltab as program

PLAYED = {ROOT / "docs" / "tutorial" / "first-study.md"}
"""Pages with a server, which :mod:`tests.docs.test_tutorial` plays in terminals."""

LONG = {ROOT / "docs" / "howto" / "reproduce-the-paper.md"}
"""Pages of ``make soak``: :mod:`tests.paper.test_claims` checks the claims in fewer runs."""

NOT_RUN = {
    "CONTRIBUTING.md": 1,
    "README.md": 2,
    "docs/explanation/performance.md": 1,
    "docs/howto/back-up-and-recover.md": 4,
    "docs/howto/curate-a-study.md": 1,
    "docs/howto/estimate-as-a-researcher.md": 1,
    "docs/howto/prepare-a-table.md": 1,
    "docs/howto/publish-results.md": 4,
    "docs/howto/read-an-estimate-in-r.md": 1,
    "docs/howto/run-a-server.md": 6,
    "docs/howto/run-an-agent.md": 4,
    "docs/howto/store-tables.md": 8,
    "docs/howto/use-the-console.md": 2,
    "docs/tutorial/first-plan.md": 1,
    "docs/tutorial/first-study.md": 1,
}
"""How many blocks of each document may be shown without being run."""

SHOWN_ONLY = {"bibtex", "csv", "ini", "json", "nginx", "r", "text", "toml"}


def run_console(block: Block, folder: Path) -> None:
    """Run every command of a block and compare what it prints with what is shown.

    In this process: to start one takes longer than most commands.  The tutorial has real ones.
    """
    for command, shown in commands(block):
        program, *arguments = shlex.split(command)
        assert program == "veiltab", f"{block.place}: mark a block that cannot be run: {command}"
        printed = io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            patch.setenv("COLUMNS", "80")
            patch.delenv("FORCE_COLOR", raising=False)
            patch.chdir(folder)
            with pytest.raises(SystemExit):
                main(arguments)
        real = tidy(printed.getvalue().splitlines())
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
    assert block.remark != "terminal", f"{block.place}: list the page in PLAYED"
    if block.remark == "file":
        (folder / block.reason).write_text(block.text, "utf-8")
    if block.remark in ("not run", "played"):
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, marks=pytest.mark.soak) if document in LONG else document
        for document in DOCUMENTS
        if document not in PLAYED
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
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


def test_commands_that_are_not_run_could_be() -> None:
    """What a page only shows are still commands, with options, that the program takes."""
    for block in [b for document in DOCUMENTS for b in blocks(document)]:
        if block.language != "console" or block.remark != "not run":
            continue
        for command, _ in commands(block):
            for arguments in invocations(command):
                parse(block, program, arguments)


def parse(block: Block, command: click.Command, arguments: list[str]) -> None:
    """Let a command read its arguments, and do nothing."""
    try:
        if isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
            context = click.Context(command)
            _, found, rest = command.resolve_command(context, arguments)
            assert found is not None
            parse(block, found, rest)
        else:
            command.make_context(command.name, list(arguments))
    except click.ClickException as error:
        pytest.fail(f"{block.place}: {' '.join(arguments)}: {error.format_message()}")


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("veiltab plan --cells 2", [["plan", "--cells", "2"]]),
        (
            'sudo -u veiltab /bin/veiltab server invite "Tax office" > code',
            [["server", "invite", "Tax office"]],
        ),
        (
            "veiltab server invite 'A B' > code && veiltab plan",
            [["server", "invite", "A B"], ["plan"]],
        ),
        ("curl -s http://127.0.0.1:8750/readyz", []),
        ("veiltab push x \\\n  --id nr", [["push", "x", "--id", "nr"]]),
    ],
)
def test_what_counts_as_an_invocation(command: str, found: list[list[str]]) -> None:
    """Words of a shell's line are taken apart as the shell would."""
    assert invocations(command) == found


def test_no_remark_is_out_of_place() -> None:
    """A remark that is not on the line right before a block would be ignored in silence."""
    for document in DOCUMENTS:
        written = REMARKS.findall(document.read_text("utf-8"))
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
