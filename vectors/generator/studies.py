"""The studies of the vectors: both architectures, and both kinds of pads."""

from collections.abc import Sequence

import numpy as np

from vectors.generator.files import Document, entropy
from vectors.generator.show import study_document
from vectors.generator.study import Play, Table
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.group import draw_uniform
from veiltab.core.mechanism import Geometric, WeightTable
from veiltab.core.schema import Attribute, Codes
from veiltab.wire.contract import Linkage
from veiltab.wire.mechanism import DecoyTerms, PaperTerms

SMOKER = Attribute("smoker", ("no", "yes"))
AGE = Attribute("age", ("<40", "40 to <60", ">=60"))
INCOME = Attribute("income", ("none", "low", "middle", "high"))
COUNTRY = Attribute("country", ("here",))
DISTRICT = Attribute("district", tuple(f"{number:03}" for number in range(257)))
CLOTHES = Attribute("Größe", ("S", "M", "L"))


def aligned_stream() -> Document:
    """Let two curators sample, whose ids are spelled differently."""
    people = [(f"M\u00fcller {i}", f"19{i:02}-05-17") for i in range(60)]
    spelled = [(f" MU\u0308LLER {i}\u00a0", birth) for i, (_, birth) in enumerate(people)]
    tables = [
        _table("hospital", (SMOKER, AGE), 60, people),
        _table("tax office", (INCOME, COUNTRY), 60, spelled[::-1]),
    ]
    play = Play(
        "aligned-stream",
        tables,
        Linkage.by_ids(2, ("nfc", "trim", "lowercase")),
        {
            "epsilon": 2,
            "mechanism": PaperTerms(None),
            "population": 60,
            "pads": "stream",
        },
        named=True,
    )
    return study_document(
        play,
        "The curators sample, with stream pads; ids of two columns, spelled differently by the"
        " two curators; the best sample size.",
        [[SMOKER, AGE, INCOME, COUNTRY], [SMOKER, AGE], [INCOME]],
    )


def aligned_one_time() -> Document:
    """Let three curators sample; the pads travel in the grants."""
    tables = [
        _table("hospital", (SMOKER,), 90),
        _table("tax office", (INCOME, COUNTRY), 90),
        _table("Schule", (CLOTHES,), 90),
    ]
    terms = {
        "epsilon": 0.5,
        "mechanism": PaperTerms(50),
        "population": None,
        "pads": "one-time",
    }
    play = Play("aligned-one-time", tables, Linkage.by_rows(), terms)
    return study_document(
        play,
        "The curators sample, with one-time pads; three curators; rows are matched by number.",
        [[SMOKER, INCOME, COUNTRY, CLOTHES], [INCOME, CLOTHES], [COUNTRY]],
    )


def aligned_shuffle() -> Document:
    """Let two curators promise (ε, δ): everybody is sampled, and the order's secrecy counts."""
    tables = [_table("hospital", (SMOKER,), 70), _table("tax office", (INCOME,), 70)]
    terms = {
        "epsilon": 1.5,
        "delta": 1e-4,
        "accounting": "shuffle-1",
        "mechanism": PaperTerms(None),
        "population": 70,
        "pads": "stream",
    }
    play = Play("aligned-shuffle", tables, Linkage.by_rows(), terms)
    return study_document(
        play,
        "The curators sample everybody, for a promise of (ε, δ) by the accounting shuffle-1.",
        [[SMOKER, INCOME], [INCOME]],
    )


def matched_fresh() -> Document:
    """Let the server sample from tables of different people; the release has positions."""
    tables = [
        _table("hospital", (SMOKER, DISTRICT), 50, [(f"id-{i}",) for i in range(50)]),
        _table("tax office", (INCOME,), 46, [(f"id-{i}",) for i in range(54, 8, -1)]),
    ]
    terms = {
        "epsilon": 3,
        "mechanism": PaperTerms(32),
        "population": None,
        "pads": "stream",
    }
    play = Play("matched-fresh", tables, Linkage.by_ids(mode="matched"), terms)
    return study_document(
        play,
        "The server samples from fresh uploads, with stream pads; the curators hold different"
        " people, and the release has positions.",
        [[SMOKER, INCOME], [DISTRICT], [SMOKER]],
    )


def matched_stored() -> Document:
    """Let the server sample from stored tables, whose rows are re-padded for the study."""
    tables = [
        _table("hospital", (SMOKER, AGE), 48, [(f"id-{i}",) for i in range(48)]),
        _table("tax office", (INCOME,), 48, [(f"id-{i}",) for i in range(49, 1, -1)]),
    ]
    terms = {
        "epsilon": 1.25,
        "mechanism": PaperTerms(30),
        "population": None,
        "pads": "stream",
    }
    play = Play("matched-stored", tables, Linkage.by_ids(mode="matched"), terms, stored=True)
    return study_document(
        play,
        "The server samples from stored tables, with stream pads; the sampled rows are re-padded.",
        [[SMOKER, AGE, INCOME], [AGE, INCOME]],
    )


def aligned_decoys() -> Document:
    """Let two curators invent decoys; the server adds noise, and the researcher publishes."""
    ids = [(f"id-{i}",) for i in range(60)]
    tables = [
        _table("hospital", (SMOKER, AGE), 60, ids),
        _table("tax office", (INCOME, COUNTRY), 60, ids[::-1]),
    ]
    keep = DRAW_RANGE - 24 * (DRAW_RANGE // 48)
    terms = {
        "epsilon": 0.7,
        "accounting": "decoys-1",
        "mechanism": DecoyTerms(DRAW_RANGE // 3, Geometric(DRAW_RANGE // 2), 0.5, keep),
        "population": 60,
        "pads": "stream",
    }
    play = Play("aligned-decoys", tables, Linkage.by_ids(), terms, named=True)
    return study_document(
        play,
        "Decoys, aligned, with stream pads: a coin for each respondent, geometric decoys of each"
        " joint cell, and noise by the server.",
        [[SMOKER, AGE, INCOME, COUNTRY], [SMOKER, INCOME], [AGE]],
    )


def matched_decoys() -> Document:
    """Let three curators invent decoys with absence; some people are held by one of them alone."""
    tables = [
        _table("hospital", (SMOKER,), 50, [(f"id-{i}",) for i in range(50)]),
        _table("tax office", (INCOME, COUNTRY), 46, [(f"id-{i}",) for i in range(54, 8, -1)]),
        _table("Schule", (CLOTHES,), 48, [(f"id-{i}",) for i in range(5, 53)]),
    ]
    weights = (2**56, 2**60, DRAW_RANGE - 2**57 - 2**61, 2**60, 2**56)
    terms = {
        "epsilon": 5.5,
        "delta": 0.01,
        "accounting": "decoys-1",
        "mechanism": DecoyTerms(2**63 + 1, WeightTable(weights), 1.5, None),
        "population": None,
        "pads": "one-time",
    }
    play = Play("matched-decoys", tables, Linkage.by_ids(mode="matched"), terms)
    return study_document(
        play,
        "Decoys, matched, with one-time pads: a table of weights, decoys of every pattern of"
        " absence, people whom one curator alone holds, and no noise by the server.",
        [[SMOKER, INCOME, COUNTRY, CLOTHES], [SMOKER, CLOTHES], [INCOME]],
    )


def two_chunks() -> Document:
    """Let curators sample more rows than a chunk has; tables and codes are too long to show."""
    rows = 70_000
    tables = [_table("hospital", (SMOKER,), rows), _table("Schule", (CLOTHES,), rows)]
    terms = {
        "epsilon": 1.5,
        "mechanism": PaperTerms(65_600),
        "population": rows,
        "pads": "stream",
    }
    play = Play("two-chunks", tables, Linkage.by_rows(), terms)
    return study_document(
        play,
        "The curators sample more rows than a chunk has, with stream pads. Tables and noise are"
        " left out, and of the decrypted codes, a byte each, only the SHA-256 is given.",
        [[SMOKER, CLOTHES]],
        long=True,
    )


def _table(
    curator: str,
    attributes: tuple[Attribute, ...],
    rows: int,
    ids: Sequence[Sequence[str]] | None = None,
) -> Table:
    """Draw a table; the first category is the most frequent."""
    source = entropy(f"table of {curator}, {rows} rows")
    codes: list[Codes] = []
    for attribute in attributes:
        first, second = (draw_uniform(attribute.size, rows, source) for _ in range(2))
        codes.append(np.minimum(first, second).astype(attribute.dtype))
    return Table(curator, attributes, codes, ids)
