"""What a page says where commands and Python would name an option or a command.

Each of these is something that a page can do, or a place on one.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from functools import lru_cache

from veiltab.remedies import Remedy

WRITTEN = {
    "separator": ("What separates fields", "semicolon"),
    "encoding": ("Encoding of letters", "cp1252"),
    "decimal": ("What stands before decimals", "comma"),
    "thousands": ("What stands between thousands", "point"),
    "quote": ("What encloses fields", '"'),
    "sheet": ("Sheet of a workbook", "Sheet1"),
}
"""What may be said about how a file is written, with an example of each."""

SKIP_LINES = "Lines above the header"
ANYWAY = "Propose it although a guess would be nearer to the truth"


def _written(match: re.Match[str]) -> str:
    """Say an option about how a file is written by the field that takes it."""
    name = match[1].replace("-", "_")
    field = SKIP_LINES if name == "skip_lines" else WRITTEN[name][0]
    [value] = shlex.split(match[2])
    return f"write {value} into “{field}” where the table is chosen"


WORDS: Mapping[Remedy, str | Callable[[re.Match[str]], str]] = {
    Remedy.OPTION: _written,
    Remedy.HEADER: "choose “has the names of the columns” for “The first line”",
    Remedy.NO_HEADER: "choose “is a row” for “The first line” where the table is chosen",
    Remedy.IDS: "tick the columns of the ids under “What tells respondents apart”",
    Remedy.TABLE: "choose the table to push on the study's page",
    Remedy.DUPLICATES: "under “Rows with the same id”",
    Remedy.WRITE_OFFENDERS: "the check of the whole table writes every row that does not fit to a"
    " file, if you name one",
    Remedy.DRAFT_COLUMN: "choose its column where the table is mapped",
    Remedy.NAME_COLUMN: "choose it where the table is mapped",
    Remedy.DRAFT_RECODE: "All of it can be chosen where the table is mapped",
    Remedy.SEE_CHARGED: "see what is charged on the page Ledger",
    Remedy.SEE_LEDGER: "see the page Ledger",
    Remedy.REFUND: "(on the pages of those studies)",
    Remedy.ALLOW_DELTA: "(on the page Ledger)",
    Remedy.SET_BUDGET: "set one on the page Ledger",
    Remedy.NAME_DATASET: "choose the data set that the study is about",
    Remedy.CHARGE_AGAIN: "no page does that, but the command `veiltab study sign`",
    Remedy.ANYWAY: f"tick “{ANYWAY}”",
    Remedy.SIGN: "sign it on its page",
    Remedy.PUSH_AGAIN: "each of them pushes its table again",
    Remedy.ABORT: "end it first, for everybody in it, on its page",
    Remedy.ABORT_LOST: "end the study on its page",
    Remedy.WAIT_RELEASED: "wait until its page says that it is",
    Remedy.GRANT_FILE: "name a new file for the grant",
    Remedy.PARTIAL: "in the explorer",
    Remedy.IDENTITY_FILE: "the file of their public identity, from the page Identity of their"
    " console",
    Remedy.VERIFY_AS: "compare its fingerprint on the page Identity, and call it by another there",
    Remedy.NAME_AS: "give one another name where you compare fingerprints on the page Identity",
    Remedy.UNBLOCK: "unblock them on the page Identity",
    Remedy.REGISTER: "register with the invitation of a server's operator on the page Identity",
    Remedy.THAT_HOME: "start the console with that home",
    Remedy.ITS_HOME: "start the console with its home",
}


def on_page(text: str) -> str:
    """Return a text with what to do on a page, in place of options and commands."""
    for pattern, words in _patterns():
        text = pattern.sub(words, text)
    return text


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]]:
    """Return how each remedy is found; longer ones first, for some are parts of others."""

    def words_for(remedy: Remedy) -> Callable[[re.Match[str]], str]:
        words = WORDS[remedy]
        return words if callable(words) else lambda _: words

    remedies = sorted(Remedy, key=len, reverse=True)
    return [(re.compile(_found(remedy)), words_for(remedy)) for remedy in remedies]


ANYTHING = r"""('[^']*'|"[^"]*"|.+?)"""
"""What stands in a remedy: a value, in quotes if it has spaces or parentheses."""


def _found(remedy: Remedy) -> str:
    return ANYTHING.join(map(re.escape, remedy.split("{}")))
