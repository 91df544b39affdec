"""Words that people outside of this field do not know, and what they mean in a few plain ones.

Commands, the console's pages and reports show the meaning below whatever has such a word in it.
``docs/glossary.md`` says more.
"""

import re
from collections.abc import Container
from dataclasses import dataclass, field
from html import unescape

_TAG = re.compile("<[^>]*>")


@dataclass(frozen=True, slots=True)
class Word:
    """A word as it is listed, how it is found in a text, and what it means."""

    name: str
    pattern: str
    meaning: str
    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compile the pattern; capital letters at the start of a sentence make no difference."""
        object.__setattr__(self, "_regex", re.compile(self.pattern, re.IGNORECASE))

    def is_in(self, text: str) -> bool:
        """Tell whether a text has the word in it."""
        return self._regex.search(text) is not None


WORDS = (
    Word("ε", "ε", "how much one record can change what others see; less is safer"),
    Word("δ", "δ", "the chance that the promise of privacy fails"),
    Word("γ", "γ", "how much likelier a row stays than becomes one other cell"),
    Word("ln γ", "ln γ", "the ε that the server's noise keeps by itself"),
    Word("RMSE", r"\bRMSE\b", "the usual error of all shares of a table together"),
    Word("cells", r"\bcells?\b", "combinations of one category of each attribute"),
    Word("decoys", r"\bdecoys?\b(?!-1)", "invented records that only the curators can tell"),
    Word("coin", r"\bcoins?\b", "a secret draw: whether a respondent takes part"),
    Word("decoys-1", r"\bdecoys-1\b", "this promise is computed from a coin and decoys"),
    Word("pure-1", r"\bpure-1\b", "this promise is computed by the paper's Theorem 1"),
    Word("shuffle-1", r"\bshuffle-1\b", "this promise is computed from noise and a secret order"),
    Word("overlap-1", r"\boverlap-1\b", "the promise of a count of people in common"),
    Word(
        "privacy blanket",
        r"\bprivacy blanket\b",
        "the records that noise replaced, among which each hides",
    ),
    Word(
        "aligned",
        r"\b(un)?align(s|ed|ing|ments?)?\b",
        "has sent a code of whom it holds; all codes must agree",
    ),
    Word(
        "keyed digest",
        r"\bkeyed digests?\b",
        "a code that says nothing to whoever lacks the curators' key",
    ),
    Word("linkage", r"\blinkage\b", "how the rows about one person are found"),
    Word(
        "matched linkage",
        r"\bmatched (linkage|stud(y|ies)|mode)\b|[\"']matched[\"']",
        "the server finds those whom all curators hold",
    ),
    Word("token", r"\btokens?\b", "a code in the place of an id; only the curators can make it"),
    Word(
        "study's secret",
        r"\b(study|vault)'s secret\b|\bstudy secret\b|\bsecret of the (study|vault)\b",
        "a random number that its curators share, and nobody else",
    ),
    Word("pads", r"\bpads?\b", "random numbers that hide values; whoever has them can read"),
    Word(
        "one-time pads",
        r"\bone-time pads?\b",
        "pads drawn anew for every row; no computer breaks them",
    ),
    Word(
        "published copy",
        r"\bpublished cop(y|ies)\b",
        "counts with noise of their own, for everybody to read",
    ),
    Word("perturbed", r"\bperturb(s|ed|ing|ation)?\b", "replaced at random, with a known chance"),
    Word("chunks", r"\bchunks?\b", "pieces of a column, as they are sent and stored"),
    Word("pinned", r"\bpinned\b", "known since you registered; no other server is spoken to"),
)


def plain_text(markup: str) -> str:
    """Return the text of some elements, without their tags."""
    return unescape(_TAG.sub(" ", markup))


def meanings(text: str, told: Container[str] = ()) -> dict[str, str]:
    """Return the words in a text that it does not explain itself, with what they mean.

    ``told`` are the names of words that were explained before.
    """
    found: dict[str, str] = {}
    while True:  # what a word means may have another word in it
        plain = " ".join([*text.split(), *found.values()])
        new = {
            word.name: word.meaning
            for word in WORDS
            if word.name not in told and word.is_in(plain) and word.meaning not in plain
        }
        if not new:
            return {word.name: word.meaning for word in WORDS if word.name in found}
        found |= new
