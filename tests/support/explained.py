"""What must be explained wherever people are shown it, in commands, errors, pages and reports."""

import re

from veiltab.report.glossary import WORDS

JARGON = {
    "ε": "ε",
    "δ": "δ",
    "γ": "γ",
    "ln γ": "ln γ",
    "RMSE": "RMSE",
    "cells": r"\bcells?\b",
    "decoys": r"\bdecoys?\b(?!-1)",
    "coin": r"\bcoins?\b",
    "decoys-1": "decoys-1",
    "pure-1": "pure-1",
    "shuffle-1": "shuffle-1",
    "overlap-1": "overlap-1",
    "privacy blanket": "blanket",
    "aligned": r"\balign",
    "keyed digest": "keyed digest",
    "linkage": r"\blinkage\b",
    "matched linkage": r"\bmatched (linkage|stud)",
    "token": r"\btokens?\b",
    "study's secret": r"(study|vault)('s)? secret",
    "pads": r"\bpads?\b",
    "one-time pads": r"\bone-time pad",
    "published copy": r"\bpublished cop",
    "perturbed": r"\bperturb",
    "chunks": r"\bchunks?\b",
    "pinned": r"\bpinned\b",
}
"""Words of this field, as a reader finds them; listed apart from the program's own list."""

_MEANINGS = {word.name: word.meaning for word in WORDS}
_FILES = {"example", "draft", "--from"}
"""Commands that print a file, which explains its words by comments."""


def assert_explained(text: str) -> None:
    """Check that a text says what each of its words means."""
    plain = " ".join(text.split())
    unexplained = [
        word
        for word, pattern in JARGON.items()
        if re.search(pattern, plain, re.IGNORECASE) and _MEANINGS[word] not in plain
    ]
    assert not unexplained, f"not explained: {unexplained}, in: {text}"


def assert_screens_explained(arguments: tuple[str, ...], out: str, err: str) -> None:
    """Check everything that a command has shown to people; JSON is for scripts."""
    if "--json" not in arguments:
        assert_explained(err if _FILES.intersection(arguments) else f"{out}\n{err}")
