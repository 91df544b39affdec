"""Making texts alike that people take for the same: Unicode form, spaces at the ends, case.

The rules have the same names for ids (spec 5), where the contract states them, and for values,
where a curator's recode file does.
"""

from collections.abc import Sequence

import polars as pl

RULES = ("nfc", "trim", "lowercase")


def folded(texts: pl.Series, rules: Sequence[str]) -> pl.Series:
    """Apply the rules in the listed order; what is missing stays missing."""
    for rule in rules:
        if rule == "nfc":
            texts = _composed(texts)
        elif rule == "trim":
            texts = texts.str.strip_chars()
        else:
            texts = texts.str.to_lowercase()
    return texts


def _composed(texts: pl.Series) -> pl.Series:
    """Bring texts into the form NFC; those of ASCII alone are in it, and most are."""
    odd = (texts.str.len_bytes() != texts.str.len_chars()).arg_true()
    if not len(odd):
        return texts
    composed = texts.gather(odd).str.normalize("NFC")
    return texts.clone().scatter(odd, composed)  # which changes the series that it is called on
