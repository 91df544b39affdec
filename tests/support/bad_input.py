"""A scene for bad input: studies at every stage, bad files, and all that may not change.

Everything is set up by commands, once.
"""

import contextlib
import gzip
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tests.support.commands import Office, open_office, run, write_csv, write_study
from tests.support.servers import Server, make_context, running
from veiltab.hosting import server_identity
from veiltab.server.directory import DataDirectory

PEOPLE = 40
PASSWORD, PERSON = "hunter2", "SOFIA-1974"
"""They stand in files: the password is in no message, and the id in none to anybody else."""

PROPOSED, OPEN, RELEASED, ABORTED = "Not signed", "Open", "Released", "Aborted"
STORED, COUNTED = "Stored tables", "How many"
CURATORS = {"me": {"smoker": ("no", "yes")}, "taxoffice.json": {"income": ("low", "high")}}
FORGETFUL = ("nonces",)
"""What the server keeps only for a while, to tell a request that is sent again."""


@dataclass(frozen=True)
class Scene:
    """A server, those who use it, and the folder that they work in."""

    server: Server
    folder: Path
    offices: dict[str, Office]

    @property
    def data(self) -> Path:
        """The server's own folder."""
        return self.folder.parent / "data"

    def state(self) -> dict[str, str]:
        """Return all that a refused command may not change: files, and what the server keeps."""
        tops = [self.folder, *(office.home for office in self.offices.values())]
        files = {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            for top in tops
            for path in sorted(top.rglob("*"))
            if not path.is_symlink() and (path.is_file() or path.parent == self.folder)
        }
        chunks = {str(path): "" for path in self.data.rglob("*") if path.is_file()}
        return files | chunks | self._records()

    def _records(self) -> dict[str, str]:
        """Return a digest of each table of the server's database."""
        path = self.server.context.folders.database_url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path)) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {
                name: hashlib.sha256(
                    repr(database.execute(f'SELECT * FROM "{name}"').fetchall()).encode()  # noqa: S608
                ).hexdigest()
                for (name,) in tables.fetchall()
                if name not in FORGETFUL
            }


@contextmanager
def bad_input_scene(top: Path) -> Iterator[Scene]:
    """Set the scene, by commands alone, and serve it until the block ends."""
    folder = top / "work"
    folder.mkdir()
    context = make_context(
        top / "data", identity=server_identity(DataDirectory(top / "data"), None)
    )
    with running(context) as server:
        names = ("Hospital", "Tax office", "Rivera", "Stranger")
        offices = {name.split()[0].lower(): open_office(folder, name, server) for name in names}
        offices["newcomer"] = open_office(folder, "Newcomer")
        scene = Scene(server, folder, offices)
        _run_studies(scene)
        _write_tables(folder)
        _write_texts(scene)
        _write_invitations(scene)
        _look_around(scene)
        yield scene


def _run_studies(scene: Scene) -> None:
    folder, offices = scene.folder, scene.offices
    hospital, office, rivera = offices["hospital"], offices["tax"], offices["rivera"]
    for each, values in ((hospital, ("no", "yes")), (office, ("low", "high"))):
        each.succeed("ledger", "set", "people", "--epsilon", 100)
        column = "smoker" if each is hospital else "income"
        rows = [(f"p{i}", values[i % 2]) for i in range(PEOPLE)]
        write_csv(folder / f"{column}.csv", ("id", column), rows)
    for title in (PROPOSED, OPEN, RELEASED, ABORTED):
        path = write_study(
            folder / f"{title}.toml",
            CURATORS,
            title=title,
            epsilon=5.0,
            researchers=[rivera.public.name],
            lines=f"population = {PEOPLE}",
            mechanism="decoys",
        )
        hospital.succeed("study", "propose", path, "--yes")
        if title != PROPOSED:
            office.succeed("study", "sign", title, "--yes")
    hospital.succeed("study", "abort", ABORTED, "--reason", "a slip", "--yes")
    for each, column, wait in (
        (hospital, "smoker", "--no-wait"),
        (office, "income", "--no-wait"),
        (hospital, "smoker", "--wait-release"),
    ):
        push = ("push", RELEASED, "--table", folder / f"{column}.csv", "--id", "id", wait)
        each.succeed(*push)
    hospital.succeed("grant", RELEASED, "--to", rivera.public)
    count = ("overlap", "propose", COUNTED, "--with", office.public, "--epsilon", 1, "--yes")
    hospital.succeed(*count)
    (folder / "vault.toml").write_text(
        f'title = "{STORED}"\n[linkage]\nby = "ids"\n[[curators]]\nidentity = "me"\n'
        'attributes = [{name = "smoker", categories = ["no", "yes"]}]\n[[curators]]\n'
        'identity = "taxoffice.json"\n'
        'attributes = [{name = "income", categories = ["low", "high"]}]\n',
        "utf-8",
    )
    hospital.succeed("vault", "propose", folder / "vault.toml", "--yes")


TABLES = {
    "nothing.csv": b"",
    "blank.csv": b"\n\n\n",
    "header.csv": b"id,smoker\n",
    "one.csv": b"id,smoker\np1,no\n",
    "null.csv": b"id,smoker\n" + b"p1,\np2,\n",
    "no_ids.csv": b"id,smoker\n,no\n,yes\n",
    "nan.csv": b"id,smoker\np1,NaN\np2,inf\n",
    "twice.csv": b"id,smoker,smoker\np1,no,yes\n",
    "no_name.csv": b"id,,smoker\np1,x,no\n",
    "options.csv": b"--id,--json\np1,no\n",
    "bars.csv": b"id|smoker\np1|no\np2|yes\n",
    "ragged.csv": b"id,smoker\np1,no\np2,yes,no,no\np3\n",
    "open_quote.csv": b'id,smoker\np1,"no\np2,yes\np3,no\n',
    "bytes.csv": bytes(range(256)) * 8,
    "nul.csv": b"id,smoker\np1\0,no\np2,yes\n",
    "umlaut.csv": "id,smoker\nMüller,no\nMaier,yes\n".encode("cp1252"),
    "wide.csv": "id,smoker\np1,no\n".encode("utf-16"),
    "person.csv": f"id,smoker\n{PERSON},maybe\np2,no\n".encode(),
    "again.csv": b"id,smoker\np1,no\np1,yes\n",
    "emoji.csv": "id,smoker\np1,🚬\np2,\u202eno\n".encode(),
    "text.parquet": b"id,smoker\np1,no\n",
    "nothing.parquet": b"",
    "text.xlsx": b"id,smoker\np1,no\n",
    "text.ods": b"id,smoker\np1,no\n",
    "text.csv.gz": b"id,smoker\np1,no\n",
    "text.csv.zst": b"id,smoker\np1,no\n",
    "cut.csv.gz": gzip.compress(b"id,smoker\n" + b"p1,no\n" * 9_999)[:40],
    "text.db": b"id,smoker\np1,no\n",
    "address": f"postgresql://me:{PASSWORD}@127.0.0.1:9/people".encode(),
    "odd_address": b"a\0b.csv\n",
}


def _write_tables(folder: Path) -> None:
    """Write tables of the hospital, each with something wrong."""
    for name, content in TABLES.items():
        (folder / name).write_bytes(content)
    for name in ("address", "odd_address"):
        (folder / name).chmod(0o600)
    for name in ("folder", "folder.csv", "folder.toml", "parts", "no_parts"):
        (folder / name).mkdir()
    pl.DataFrame({"id": ["p1"], "smoker": ["no"]}).write_parquet(folder / "parts" / "1.parquet")
    pl.DataFrame({"id": [1.5], "other": [None]}).write_parquet(folder / "parts" / "2.parquet")
    pl.DataFrame({"id": [["p1"]], "smoker": [{"a": 1}]}).write_parquet(folder / "nested.parquet")
    (folder / "loop.csv").symlink_to("loop.csv")
    (folder / "gone.csv").symlink_to("nowhere.csv")
    (folder / "zero.csv").symlink_to("/dev/zero")
    (folder / "null_device.csv").symlink_to("/dev/null")
    os.mkfifo(folder / "pipe.csv")
    with contextlib.closing(sqlite3.connect(folder / "people.db")) as database:
        database.execute("CREATE TABLE people (id TEXT, smoker TEXT, picture BLOB)")
        database.execute("INSERT INTO people VALUES ('p1', 'no', x'00ff')")
        database.commit()


def _study(
    title: str = "New", *, lines: str = "population = 40", more: str = "", **terms: str
) -> str:
    """Write a study file by its parts."""
    part = {
        "epsilon": "1.0",
        "linkage": 'by = "ids"',
        "mine": '{name = "smoker", categories = ["no", "yes"]}',
        "theirs": '{name = "income", categories = ["low", "high"]}',
        "me": '"me"',
        "partner": '"taxoffice.json"',
    } | terms
    return (
        f'title = "{title}"\nepsilon = {part["epsilon"]}\nmechanism = "decoys"\n{lines}\n'
        f"[linkage]\n{part['linkage']}\n[[curators]]\nidentity = {part['me']}\n"
        f"attributes = [{part['mine']}]\n[[curators]]\nidentity = {part['partner']}\n"
        f"attributes = [{part['theirs']}]\n{more}\n"
    )


STUDIES = {
    "good": _study(),
    "bom": "\ufeff" + _study(epsilon='"much"').replace("\n", "\r\n"),
    "keys_twice": "title = 'x'\n" + _study(),
    "deep": "a = " + "[" * 20_000 + "]" * 20_000,
    "deep_keys": ".".join("a" * 5_000) + " = 1",
    "no_toml": "Dear colleague,\nplease find attached",
    "empty": "",
    "no_title": _study(""),
    "long_title": _study("x" * 10_000),
    "nul_title": _study("a\\u0000b"),
    "turned_title": _study("a\u202eb"),
    "epsilon_nan": _study(epsilon="nan"),
    "epsilon_inf": _study(epsilon="inf"),
    "epsilon_huge": _study(epsilon="1e400"),
    "epsilon_digits": _study(epsilon="9" * 400),
    "epsilon_more_digits": _study(epsilon="9" * 5_000),
    "epsilon_negative": _study(epsilon="-1"),
    "epsilon_true": _study(epsilon="true"),
    "epsilon_day": _study(epsilon="2026-01-01"),
    "epsilon_dear": _study(epsilon="49"),
    "population_negative": _study(lines="population = -5"),
    "population_half": _study(lines="population = 1.5"),
    "population_huge": _study(lines=f"population = {10**30}"),
    "delta_large": _study(lines="delta = 0.5\npopulation = 40"),
    "unknown_key": _study(lines="epsilom = 3"),
    "one_category": _study(mine='{name = "smoker", categories = ["no"]}'),
    "no_category": _study(mine='{name = "smoker", categories = []}'),
    "same_category": _study(mine='{name = "smoker", categories = ["no", "no"]}'),
    "alike_category": _study(mine='{name = "smoker", categories = ["no", "No "]}'),
    "cyrillic_category": _study(mine='{name = "smoker", categories = ["no", "n\u043e"]}'),
    "number_category": _study(mine='{name = "smoker", categories = [1, 2]}'),
    "many_cells": _study(
        mine=", ".join(
            f'{{name = "a{i}", categories = {list(map(str, range(99)))}}}' for i in range(9)
        )
    ),
    "same_attribute": _study(theirs='{name = "smoker", categories = ["low", "high"]}'),
    "no_attribute": _study(mine=""),
    "twice_me": _study(partner='"me"'),
    "not_me": _study(me='"rivera.json"'),
    "nul_partner": _study(partner='"a\\u0000b.json"'),
    "long_partner": _study(partner=f'"{"x" * 10_000}.json"'),
    "absent_partner": _study(partner='"absent.json"'),
    "folder_partner": _study(partner='"folder"'),
    "device_partner": _study(partner='"/dev/null"'),
    "deep_partner": _study(partner='"deep.json"'),
    "bad_linkage": _study(linkage='by = "magic"'),
    "bad_normalisation": _study(linkage='by = "ids"\nnormalisation = ["shout"]'),
    "fill_in": _study(more="# FILL IN: your partner"),
    "no_vault": 'title = "v"\nepsilon = 1\n[vault]\nname = "absent"\n',
    "nobody": _study(more="researchers = []").replace("researchers = []\n", ""),
    "bad_researcher": _study(more='[[researchers]]\nidentity = "text.json"'),
}
SMOKER = "[attributes.smoker]\n"
RECODES = {
    "deep": "a = " + "[" * 20_000 + "]" * 20_000,
    "unknown": "[attributes.age]\ncolumn = 'x'\n",
    "column": SMOKER + "column = 'absent'\n",
    "nul_column": SMOKER + 'column = "a\\u0000b"\n',
    "value_twice": SMOKER + "[attributes.smoker.categories]\nno = ['1']\nyes = ['1']\n",
    "ambiguous": SMOKER + "[attributes.smoker.categories]\nno = ['a*']\nyes = ['*a']\n",
    "ring": SMOKER + "[attributes.smoker.categories]\nno = ['yes']\nyes = ['no', 'yes']\n",
    "stars": SMOKER + f"[attributes.smoker.categories]\nno = ['{'*' * 5_000}']\n",
    "else": SMOKER + "else = 'perhaps'\n",
    "bins_down": SMOKER + "bins = [60, 40]\n",
    "bins_nan": SMOKER + "bins = [nan]\n",
    "bins_inf": SMOKER + "bins = [1e400]\n",
    "bins_digits": SMOKER + f"bins = [{'9' * 400}]\n",
    "bins_text": SMOKER + "bins = ['40']\n",
    "bins_none": SMOKER + "bins = []\n",
    "bins_number": SMOKER + "bins = 40\n",
    "bins_and_else": SMOKER + "bins = [40]\nelse = 'no'\n",
    "decimal": SMOKER + "bins = [40]\ndecimal = 'x'\n",
    "fold": SMOKER + "fold = ['shout']\n",
    "fill_in": SMOKER + "column = 'FILL IN'\n",
    "duplicates": "duplicates = 'some'\n",
    "dates": "[ids]\ncolumns = ['id']\ndates = {id = 'soon'}\n",
    "dates_elsewhere": "[ids]\ncolumns = ['id']\ndates = {born = 'DD.MM.YYYY'}\n",
    "year": "[ids]\ncolumns = ['id']\ndates = {id = 'DD.MM.YY'}\nlatest_year = -5\n",
    "ids_empty": "[ids]\ncolumns = []\n",
    "ids_text": "[ids]\ncolumns = 'id'\n",
    "missing": SMOKER + "missing = 'unknown'\n",
    "missing_values": SMOKER + "missing_values = 'n/a'\n",
    "latin": "",
}
OTHERS = {
    "deep.json": "[" * 100_000,
    "text.json": "this is no JSON",
    "number.json": '{"name": 1e400, "signing_key": NaN}',
    "list.json": "[]",
    "half.json": '{"name": "Hospital"',
    "wrong.json": '{"name": "x", "signing_key": "zz", "sealing_key": 5}',
    "policy_nan.toml": "epsilon = nan\n",
    "policy_empty.toml": "",
    "policy_seconds.toml": "epsilon = 1\npoll_seconds = -1\n",
    "policy_deep.toml": "a = " + "[" * 20_000 + "]" * 20_000,
    "policy_digits.toml": f"epsilon = {'9' * 400}\n",
    "empty.txt": "",
    "long.txt": "x" * 100_000,
    "no.code": "AAAAA-BBBBB",
    "readable.txt": f"{PASSWORD}\n",
    "cert.pem": "no certificate",
}


def _write_texts(scene: Scene) -> None:
    """Write study files, recode files, policies and secrets, each with something wrong."""
    folder = scene.folder
    named = {f"study_{name}.toml": text for name, text in STUDIES.items()}
    named |= {f"recode_{name}.toml": text for name, text in RECODES.items()} | OTHERS
    for name, text in named.items():
        (folder / name).write_text(text, "utf-8", newline="")
        if name.startswith("policy") or name.endswith("txt"):
            (folder / name).chmod(0o600)
    (folder / "readable.txt").chmod(0o644)
    (folder / "latin.toml").write_bytes("title = 'Größe'".encode("cp1252"))
    (folder / "latin.txt").write_bytes("Größe".encode("cp1252"))
    (folder / "latin.txt").chmod(0o600)


def _write_invitations(scene: Scene) -> None:
    """Write invitations that are no longer good, or for another server, or damaged."""
    folder, good = scene.folder, scene.folder / "invitation.json"
    made = run(
        "server", "invite", "--data", scene.data, "X", "--url", scene.server.url, "--out", good
    )
    assert made.code == 0
    invitation = json.loads(good.read_text("utf-8"))
    good.unlink()
    used = (folder / "stranger.code").read_text("utf-8").strip()
    for name, change in (
        ("expired", {"expires": 1_000_000}),
        ("elsewhere", {"fingerprint": " ".join(["12345"] * 6)}),
        ("used", {"code": used}),
        ("unread", {}),
        ("huge", {"expires": 10**400}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(invitation | change), "utf-8")
    (folder / "damaged.json").write_text(json.dumps(invitation)[:-40], "utf-8")


def _look_around(scene: Scene) -> None:
    """Let everybody see what there is: what they remember of it is not what a mistake leaves."""
    offices = scene.offices
    for name in ("hospital", "tax", "rivera"):
        for title in (PROPOSED, OPEN, RELEASED, ABORTED, COUNTED):
            offices[name].run("audit", title)
        offices[name].run("vault", "show", STORED)
    hospital, table = offices["hospital"], scene.folder / "header.csv"
    for command in (
        ("study", "check", scene.folder / "study_good.toml", "--table", table, "--id", "id"),
        ("push", OPEN, "--table", table, "--id", "id"),
        ("push", ABORTED, "--table", table, "--id", "id"),
        ("push", RELEASED, "--table", table, "--id", "id"),
        ("ledger", "refund", RELEASED, "--reason", "x", "--yes"),
        ("grant", RELEASED, "--to", offices["stranger"].public),
        ("vault", "push", STORED, "--table", table, "--id", "id"),
    ):
        assert hospital.run(*command).code
