"""Vectors of decoys: sections 4.3, 5.2 and 11 of the specification."""

import math
from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from vectors.generator.files import Case, Document, bad, case, document, filler
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.decoys import exact_delta, largest_coin
from veiltab.core.mechanism import Coin, Geometric, Law, Mechanism, WeightTable
from veiltab.core.plausible import plausible_rows
from veiltab.protocol.curator.decoys import Decoys, Patterns
from veiltab.wire.mechanism import MECHANISM, DecoyTerms

THIRD, HALF = DRAW_RANGE // 3, Geometric(DRAW_RANGE // 2)
TABLE = WeightTable((2**56, 2**60, DRAW_RANGE - 2**57 - 2**61, 2**60, 2**56))
INFEASIBLE, MALFORMED = "infeasible_plan", "malformed_message"
_MANY = 10**6
RATIOS = {0.1: 797, 0.5: 852, 1.0: 944}
"""Good ratios, in thousandths, for 24 cells and some ten thousand respondents, by ε."""


def stated(coin: int, law: Law, public: float = 0.5, keep: int | None = None) -> dict[str, Any]:
    """Return a mechanism as contracts write it."""
    written: dict[str, Any] = MECHANISM.write(DecoyTerms(coin, law, public, keep), "mechanism")
    return written


def decoys() -> Document:
    """Section 5.2: numbers, tokens and the digest."""
    laws: dict[str, tuple[int, Law, list[int], str]] = {
        "geometric, aligned": (THIRD, HALF, [6, 4], "aligned"),
        "geometric, matched": (THIRD, HALF, [3, 2], "matched"),
        "geometric, one curator": (THIRD, HALF, [5], "matched"),
        "a curator with one cell": (THIRD, HALF, [1, 3], "matched"),
        "many of each": (2**60, Geometric(DRAW_RANGE * 9 // 10), [2, 2], "aligned"),
        "a table, everybody takes part": (DRAW_RANGE, TABLE, [2, 3], "aligned"),
        "a table, matched": (2**63 + 1, TABLE, [2, 1, 2], "matched"),
        "every second block is skipped": (2**62 + 1, HALF, [4, 2], "aligned"),
        "the rarest coin": (1, HALF, [4], "aligned"),
        "two blocks of patterns": (THIRD, Geometric(2**52), [257, 256], "aligned"),
        "none at all": (THIRD, WeightTable((DRAW_RANGE,)), [4], "aligned"),
    }
    secret, study = filler("study secret"), filler("study")
    return document(
        "Section 5.2. From a study secret, the study id, the contract's `mechanism`, the number of"
        " `cells` of each curator and the linkage `mode`: how many patterns there are, all decoys"
        " as pairs of pattern and token, and their digest. The mechanisms need not keep a promise.",
        [
            case(
                name,
                _invented(coin, law, Patterns(tuple(cells), mode == "matched")),
                secret=secret.hex(),
                study=study.hex(),
                mechanism=stated(coin, law),
                cells=cells,
                mode=mode,
            )
            for name, (coin, law, cells, mode) in laws.items()
        ],
    )


def _invented(coin: int, law: Law, patterns: Patterns) -> Case:
    terms = DecoyTerms(coin, law, 0.5, None)
    made = Decoys(patterns, terms, filler("study secret"), filler("study"))
    pairs = [
        [int(number), token.tobytes().hex()]
        for numbers, tokens in made.spans()
        for number, token in zip(numbers, tokens, strict=True)
    ]
    return {"patterns": patterns.count, "decoys": pairs, "digest": made.digest.hex()}


def promise() -> Document:
    """Section 4.3: mechanisms that keep a promise, and such as just do not."""
    return document(
        "Section 4.3. A contract with this `mechanism` keeps the promise of `epsilon` and `delta`"
        " (`kept`), or must be refused.",
        [*_kept(), *_broken()],
    )


def _kept() -> Iterator[Case]:
    for epsilon, ratio in RATIOS.items():
        law = Geometric(DRAW_RANGE * ratio // 1000)
        yield _promised(
            f"geometric, epsilon = {epsilon:g}", largest_coin(law, epsilon), law, epsilon, 0
        )
    yield _promised("two-sided, epsilon = 1, delta = 1e-6", DRAW_RANGE, _two_sided(), 1, 1e-6)
    coin = largest_coin(HALF, 0.7)
    yield _promised("as much as there is", coin, HALF, 0.7, 0)
    yield _promised("geometric, with a delta that nobody needs", coin, HALF, 0.7, 1e-6)
    yield _promised("a table, everybody takes part", DRAW_RANGE, TABLE, 5.5, 0.01)
    yield _promised(
        "a table, as much as there is", DRAW_RANGE, TABLE, 5.5, _least_delta(TABLE, 5.5)
    )


def _broken() -> Iterator[Case]:
    coin = largest_coin(HALF, 0.7)
    ratio = next(q for q in range(HALF.threshold, 0, -1) if largest_coin(Geometric(q), 0.7) < coin)
    delta = math.nextafter(_least_delta(TABLE, 5.5), 0)
    wrong: dict[str, tuple[str, dict[str, Any], float, float]] = {
        "promise": (INFEASIBLE, stated(coin + 1, HALF), 0.7, 0),
        "promise_ratio": (INFEASIBLE, stated(coin, Geometric(ratio)), 0.7, 0),
        "promise_epsilon": (INFEASIBLE, stated(coin, HALF), 0.6999999999999999, 0),
        "promise_certain_coin": (INFEASIBLE, stated(DRAW_RANGE, HALF), 50, 0),
        "promise_delta": (INFEASIBLE, stated(DRAW_RANGE, TABLE), 5.5, delta),
        "bounded_law": (INFEASIBLE, stated(DRAW_RANGE, TABLE), 5.5, 0),
        "bounded_law_rare_coin": (INFEASIBLE, stated(1, TABLE), 50, 0),
    }
    for name, (code, mechanism, epsilon, spent) in wrong.items():
        yield bad(name, code, mechanism=mechanism, epsilon=epsilon, delta=spent)
    table = stated(DRAW_RANGE, TABLE)
    weights = table["decoys"]["weights"]
    forms: dict[str, dict[str, Any]] = {
        "weights_sum": table | {"decoys": {"law": "table", "weights": [*weights, "1"]}},
        "weights_sum_short": table | {"decoys": {"law": "table", "weights": weights[1:]}},
        "weights_empty": table | {"decoys": {"law": "table", "weights": []}},
        "weights_negative": table | {"decoys": {"law": "table", "weights": ["-1", *weights]}},
        "law": table | {"decoys": {"law": "poisson", "threshold": "5"}},
        "law_fields": table | {"decoys": {"law": "geometric", "weights": weights}},
        "ratio_zero": table | {"decoys": {"law": "geometric", "threshold": "0"}},
        "ratio_one": table | {"decoys": {"law": "geometric", "threshold": str(DRAW_RANGE)}},
        "coin_zero": table | {"coin_threshold": "0"},
        "coin_above_one": table | {"coin_threshold": str(DRAW_RANGE + 1)},
        "coin_number": table | {"coin_threshold": 5},
        "epsilon_public": table | {"epsilon_public": 0},
    }
    for name, mechanism in forms.items():
        yield bad(name, MALFORMED, mechanism=mechanism, epsilon=5.5, delta=0.01)


def _promised(name: str, coin: int, law: Law, epsilon: float, delta: float) -> Case:
    mechanism = stated(coin, law)
    return case(name, {"kept": True}, mechanism=mechanism, epsilon=epsilon, delta=delta)


def _two_sided() -> WeightTable:
    """Return weights that fall off by a factor of 0.61 on both sides of 28, in whole numbers."""
    shape = [61 ** abs(z - 28) * 100 ** (28 - abs(z - 28)) for z in range(57)]
    weights = [DRAW_RANGE * each // sum(shape) for each in shape]
    weights[28] += DRAW_RANGE - sum(weights)
    return WeightTable(tuple(weights))


def _least_delta(law: WeightTable, epsilon: float) -> float:
    """Return the least δ that is enough, in both of its readings, if everybody takes part."""
    exact = exact_delta(Coin(DRAW_RANGE), law, epsilon)
    delta = float(exact)
    while min(Fraction(delta), Fraction(repr(delta))) < exact:
        delta = math.nextafter(delta, 1)
    return delta


def plausible() -> Document:
    """Section 11: numbers of rows, at both ends of what is plausible."""
    settings: dict[str, tuple[int | None, int, int, Law]] = {
        "geometric, aligned": (45_222, 24, 6_565_100_134_462_451_712, Geometric(2**63 + 2**62)),
        "geometric, few people": (1, 2, THIRD, HALF),
        "a table, everybody takes part": (1000, 12, DRAW_RANGE, TABLE),
        "geometric, matched": (None, 768, THIRD, Geometric(2**63 + 2**60)),
        "a table, matched": (None, 768, DRAW_RANGE, TABLE),
        "one weight": (10, 4, THIRD, WeightTable((DRAW_RANGE,))),
    }
    cases = []
    for name, (population, cells, coin, law) in settings.items():
        for rows in _edges(population, cells, coin, law):
            expect = _is_plausible(population, cells, coin, law, rows)
            cases.append(
                case(
                    f"{name}, {rows} rows",
                    expect,
                    mechanism=stated(coin, law),
                    population=population,
                    cells=cells,
                    rows=rows,
                )
            )
    return document(
        "Section 11. Whether a release of so many `rows` is plausible, for `population` n (null if"
        " it is not known) and `cells` N. The mechanisms need not keep a promise.",
        cases,
    )


def _edges(population: int | None, cells: int, coin: int, law: Law) -> list[int]:
    """Return 0, and the numbers of rows between which the answer changes."""

    def fine(rows: int) -> bool:
        return _is_plausible(population, cells, coin, law, rows)

    middle = int(cells * law.mean + (population or 0) * Fraction(coin, DRAW_RANGE))
    first = bisect_left(range(middle), True, key=fine)  # noqa: FBT003 - what is looked for
    last = bisect_left(range(middle, _MANY), True, key=lambda rows: not fine(rows)) + middle  # noqa: FBT003
    edges = {0, first - 1, first, last - 1, last}
    return sorted(rows for rows in edges if 0 <= rows < _MANY)


def _is_plausible(population: int | None, cells: int, coin: int, law: Law, rows: int) -> bool:
    return plausible_rows(rows, Mechanism(Coin(coin), law, None), cells, population)
