"""What somebody can do about an error, in the words of commands and of Python.

Messages, hints and notes take these words from here.  A page of the console has no options, and no
commands for what it does itself: it puts words of its own in their place (see
:mod:`veiltab.console.wording`).  So a text tells a fact once, and only what to do is said twice.
"""

from enum import StrEnum


class Remedy(StrEnum):
    """Words that name an option or a command; ``{}`` stands for what differs."""

    # About tables
    OPTION = "--{} {} (in Python, {}={})"
    HEADER = "--header (header=True)"
    NO_HEADER = "--no-header (in Python, header=False)"
    IDS = "name the columns of the ids in order: --id COLUMN, once for each"
    TABLE = "name the table to push: --table FILE, and --id COLUMN for its ids"
    DUPLICATES = "--duplicates"
    WRITE_OFFENDERS = "`veiltab study check` writes every row that does not fit to a file"
    DRAFT_COLUMN = "a recode file names its column: `veiltab recode draft` writes one"
    NAME_COLUMN = "draft the file again with --column"
    DRAFT_RECODE = "`veiltab recode draft` writes a first recode file"
    # About budgets
    SEE_CHARGED = "see what is charged with: veiltab ledger"
    SEE_LEDGER = "see: veiltab ledger"
    REFUND = "(veiltab ledger refund STUDY)"
    ALLOW_DELTA = "(veiltab ledger set … --delta 1e-5)"
    SET_BUDGET = "set one with: veiltab ledger set DATASET --epsilon LIMIT"
    NAME_DATASET = "say which data set the study is about, with --dataset"
    CHARGE_AGAIN = "veiltab study sign {} --dataset DATASET"
    # About studies
    ANYWAY = "use --anyway, or anyway=True in Python"
    SIGN = "sign with `veiltab study sign`"
    PUSH_AGAIN = "each of them runs `veiltab push` again"
    ABORT = "end it first, for everybody in it: veiltab study abort STUDY --reason …"
    ABORT_LOST = "end the study with `veiltab study abort`"
    WAIT_RELEASED = "wait with: veiltab study status {} --wait released"
    GRANT_FILE = "name a file with --out"
    PARTIAL = "with --partial (in Python: partial=True)"
    # About parties and homes
    IDENTITY_FILE = "the file that `veiltab id show --public` writes"
    VERIFY_AS = "verify it under another one: veiltab party verify FILE --as NAME"
    NAME_AS = "give one another name with `veiltab party verify FILE --as NAME`"
    UNBLOCK = "take it back with `veiltab party unblock`"
    REGISTER = "register with the invitation of a server's operator: veiltab register SERVER"
    THAT_HOME = "name that home with --home"
    ITS_HOME = "name its home with --home or VEILTAB_HOME"
