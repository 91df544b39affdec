"""The demonstration's folder: only what an earlier demonstration made is ever deleted."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from veiltab.errors import OutputError
from veiltab.report.files import make_folder, write_whole

MARK, PARTIES, REPORT = ".veiltab-demo", "parties", "report.html"
MARK_TEXT = f"""\
`veiltab demo` made this folder.  The next demonstration here deletes {PARTIES}/ and {REPORT}, and
nothing else.
"""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where a demonstration leaves its report, and where its parties live meanwhile."""

    path: Path

    @property
    def parties(self) -> Path:
        """The folders of the parties, one for each."""
        return self.path / PARTIES

    @property
    def report(self) -> Path:
        """The page that stays."""
        return self.path / REPORT

    def prepare(self) -> None:
        """Make the folder, or empty one that a demonstration has made; refuse any other."""
        mark = self.path / MARK
        if self.path.is_dir() and not mark.is_file() and any(self.path.iterdir()):
            raise OutputError(
                f"{self.path} holds something that no demonstration has made",
                hint="name another folder with --out; nothing in this one was touched",
            )
        make_folder(self.path)
        write_whole(mark, MARK_TEXT.encode())
        self.forget_parties()
        self.report.unlink(missing_ok=True)
        self.parties.mkdir(mode=0o700)

    def forget_parties(self) -> None:
        """Delete the parties' folders: keys, tables, and all that the server has."""
        if self.parties.is_symlink():  # somebody has put it there; what it leads to is theirs
            self.parties.unlink()
        elif self.parties.is_dir():
            shutil.rmtree(self.parties)
