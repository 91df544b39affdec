"""clkhash, the hashing half of anonlink: ids, or names, to CLKs (keyed Bloom filters).

``max_workers=1`` keeps it in one process. The ids are well formed, so they are not validated.
"""

import random
from collections.abc import Sequence
from typing import Any

from clkhash.clk import generate_clks
from clkhash.randomnames import NameList
from clkhash.schema import from_json_dict

from benchmarks.peers.workload import Check, Work, measure, print_report

IDS = 50_000
PEOPLE = 8_000
KEY = "the same at every curator"


def id_schema(comparison: dict[str, Any]) -> object:
    """Describe one column of ids: 1024 bits, 30 for each token of the comparison."""
    kdf = {"type": "HKDF", "hash": "SHA256", "info": "", "salt": "", "keySize": 64}
    hashing = {
        "comparison": comparison,
        "strategy": {"bitsPerToken": 30},
        "hash": {"type": "blakeHash"},
    }
    form = {"type": "string", "encoding": "ascii", "case": "mixed"}
    return from_json_dict(
        {
            "version": 3,
            "clkConfig": {"l": 1024, "kdf": kdf},
            "features": [{"identifier": "id", "format": form, "hashing": hashing}],
        }
    )


def hash_rows(work: str, rows: Sequence[Sequence[str]], schema: object) -> Work:
    """Measure the hashing of these rows."""

    def distinct(filters: list[Any]) -> Check:
        share = len({each.tobytes() for each in filters}) / len(set(map(tuple, rows)))
        return Check("share of rows with a CLK of their own", share, 1.0, 0.001)

    return measure(
        "link",
        work,
        len(rows),
        lambda: generate_clks(rows, schema, KEY, validate=False, max_workers=1),
        distinct,
    )


def main() -> None:
    """Measure ids compared exactly, ids by their bigrams, and the library's own example."""
    generator = random.Random(1)  # noqa: S311 - made-up ids
    ids = [(f"{generator.randrange(10**12):012d}",) for _ in range(IDS)]
    people = [[str(field) for field in person] for person in NameList(PEOPLE).names]
    works = [
        hash_rows("CLK of a 12-digit id, exact", ids, id_schema({"type": "exact"})),
        hash_rows("CLK of a 12-digit id, bigrams", ids, id_schema({"type": "ngram", "n": 2})),
        hash_rows("CLK of name, birth date, gender", people, NameList.SCHEMA),
    ]
    print_report("clkhash", works)


if __name__ == "__main__":
    main()
