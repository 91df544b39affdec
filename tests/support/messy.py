"""Three tables about overlapping people, as offices really export them.

The hospital's CSV file has semicolons, CP1252, padded ids in mixed case, repeated rows, ICD codes
and ages with gaps.  Taxes lie in PostgreSQL.  The school board has a workbook.  Nobody edits
anything: what the study needs comes out of recode files.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import psycopg

HOSPITAL, TAXES, SCHOOLS = range(6_500), range(1_500, 8_000), range(1_000, 7_000)
"""Whom each office knows; all three know 5,000 people."""

COMMON = range(1_500, 6_500)
CANCER = ("C34.1", "c34.9 ", "C50.0", " C50.9")
OTHERS = ("E11.9", "I10", "J45.0", "e11.2")
GAPS = ("", "n/a", "unbekannt")


@dataclass(frozen=True)
class People:
    """What is true of everybody, whether an office writes it down well or not."""

    ill: np.ndarray
    age: np.ndarray
    known: np.ndarray
    rich: np.ndarray
    schooled: np.ndarray

    @classmethod
    def draw(cls, seed: int = 3) -> "People":
        """Draw people whose illness, income and schooling go together."""
        draw, size = np.random.default_rng(seed), TAXES.stop
        schooled = draw.random(size) < 0.4
        rich = draw.random(size) < np.where(schooled, 0.7, 0.25)
        ill = draw.random(size) < np.where(rich, 0.15, 0.3)
        age = draw.integers(18, 95, size)
        return cls(ill, age, draw.random(size) < 0.92, rich, schooled)

    def share(self, *conditions: np.ndarray) -> float:
        """Return the share of those in common for whom all conditions hold."""
        return float(np.logical_and.reduce(conditions)[COMMON.start : COMMON.stop].mean())


def write_hospital(path: Path, people: People, *, holds: range = HOSPITAL) -> Path:
    """Write the export of the hospital; every tenth patient has been entered twice."""
    lines = ["Patienten-Nr;Straße;Hauptdiagnose;Alter;Größe"]
    for i in holds:
        number = f"AbC-{i:06}" if i % 3 else f"  aBc-{i:06} "
        code = (CANCER if people.ill[i] else OTHERS)[i % 4]
        age = str(people.age[i]) if people.known[i] else GAPS[i % 3]
        height = f"{1.5 + i % 50 / 100:.2f}".replace(".", ",")
        line = f"{number};Müllerstraße {i % 90};{code};{age};{height}"
        lines += [line] * (2 if i % 10 == 0 else 1)
    path.write_bytes("\r\n".join([*lines, ""]).encode("cp1252"))
    return path


def write_taxes(address: str, people: People) -> None:
    """Fill a table of a PostgreSQL database; its ids are in capitals."""
    with psycopg.connect(address) as connection:
        connection.execute("CREATE TABLE returns (taxpayer text, income numeric(10, 2))")
        with connection.cursor().copy("COPY returns FROM STDIN") as copy:
            for i in TAXES:
                income = 52_000.5 + i if people.rich[i] else 18_000.25 + i % 9_000
                copy.write_row((f"ABC-{i:06}", income))


def write_schools(path: Path, people: People) -> Path:
    """Write a workbook whose values differ by case and spaces."""
    levels = {True: ("Degree", "degree ", "DEGREE"), False: ("none", "School", " school")}
    pl.DataFrame(
        {
            "Schüler": [f"abc-{i:06} " for i in SCHOOLS],
            "Abschluss": [levels[bool(people.schooled[i])][i % 3] for i in SCHOOLS],
        }
    ).write_excel(path)
    return path
