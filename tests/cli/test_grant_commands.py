"""``veiltab grant``, ``grants``, ``revoke`` and ``estimate --partial``, as both sides use them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.commands import Office, assert_refused, open_office, write_csv, write_study
from tests.support.servers import make_context, running

pytestmark = pytest.mark.slow

TITLE = "Smoking and income"


@dataclass(frozen=True)
class Scene:
    """A released study by commands, which both curators have granted to a researcher."""

    folder: Path
    hospital: Office
    office: Office
    rivera: Office


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Go through a study up to its grants: the hospital's for five days."""
    folder = tmp_path_factory.mktemp("scene")
    with running(make_context(folder / "server")) as server:
        names = ("Hospital", "Tax office", "Dr. Rivera")
        hospital, office, rivera = (open_office(folder, name, server) for name in names)
        curators = {
            "me": {"smoker": ["no", "yes"]},
            office.public.name: {"income": ["low", "high"]},
        }
        file = write_study(
            folder / "study.toml", curators, title=TITLE, researchers=[rivera.public.name]
        )
        for curator in (hospital, office):
            curator.succeed("ledger", "set", "people", "--epsilon", 10)
        hospital.succeed("study", "propose", file, "--yes")
        office.succeed("study", "sign", TITLE, "--yes")
        for who, column, values in (
            (hospital, "smoker", ("no", "yes")),
            (office, "income", ("low", "high")),
        ):
            rows = [(f"p{i}", values[i % 2]) for i in range(400)]
            table = write_csv(folder / f"{column}.csv", ("id", column), rows)
            who.succeed("push", TITLE, "--table", table, "--id", "id", "--no-wait")
        table = folder / "smoker.csv"
        push = ("push", TITLE, "--table", table, "--id", "id", "--wait-release")
        hospital.succeed(*push)
        hospital.succeed("grant", TITLE, "--to", "Dr. Rivera", "--days", 5)
        office.succeed("grant", TITLE, "--to", "Dr. Rivera")
        yield Scene(folder, hospital, office, rivera)


def test_both_sides_list_and_are_warned(scene: Scene) -> None:
    """In the list, in the status and with an estimate, on stderr; JSON stays JSON."""
    for who, notice in (
        (scene.hospital, "your grant of 'smoker' to 'Dr. Rivera' ends in 5 days, on 2"),
        (scene.rivera, "the grant of 'smoker' by 'Hospital' ends in 5 days, on 2"),
    ):
        for command in (("grants",), ("grants", TITLE), ("study", "status", TITLE)):
            shown = who.run(*command, "--json")
            assert shown.code == 0
            assert shown.err.startswith(f"warning: {notice}")
            json.loads(shown.out)
        text = who.run("grants").out.splitlines()
        assert text[0].split() == ["study", "curator", "researcher", "attributes", "until"]
        assert "Hospital" in text[1]
        assert "Tax office" in text[2]
    assert scene.office.run("grants").err == ""  # its own grant lasts for a month
    shown = scene.rivera.run("estimate", TITLE, "--json")
    assert (shown.code, shown.err.count("warning: ")) == (0, 1)
    lines = scene.office.json("grants")["grants"]
    assert [(line["curator"]["name"], line["state"]) for line in lines] == [
        ("Hospital", "good"),
        ("Tax office", "good"),
    ]


@pytest.mark.parametrize(
    ("place", "arguments", "code", "words"),
    [
        (0, ("revoke", TITLE), "usage", "--from"),
        (0, ("revoke", TITLE, "--from", "Nobody"), "invalid_input", "no grant"),
        (0, ("revoke", TITLE, "--from", ""), "invalid_input", "no grant"),
        (2, ("revoke", TITLE, "--from", "Hospital"), "wrong_role", "only the curators"),
        (2, ("estimate", TITLE, "--attribute", "age"), "invalid_schema", "no attribute"),
        (2, ("estimate", "--load", "none", "--partial"), "invalid_parameter", "--partial"),
    ],
)
def test_mistakes(
    scene: Scene, place: int, arguments: tuple[str, ...], code: str, words: str
) -> None:
    """Each is said in plain words, or as JSON with its code, and changes nothing."""
    who = (scene.hospital, scene.office, scene.rivera)[place]
    said = assert_refused(who.run(*arguments), code=1 if code == "wrong_role" else 2)
    assert any(word in said for word in words.split("|")), said
    assert json.loads(who.run(*arguments, "--json").err)["error"]["code"] == code
    assert {line["state"] for line in scene.office.json("grants")["grants"]} == {"good"}


def test_revoking_by_command(scene: Scene) -> None:
    """What it takes away, what it cannot undo, and how the researcher is told; the last test."""
    for _ in range(2):
        text = scene.hospital.succeed("revoke", TITLE, "--from", "Dr. Rivera")
        assert "revoked from" in text
        assert "What was downloaded, estimated or published before stays" in text
    assert_refused(scene.rivera.run("estimate", TITLE), code=1)
    said = scene.rivera.run("estimate", TITLE).err
    assert "no grant is good any more for 'smoker' of 'Hospital' (revoked 20" in said
    assert "ask 'Hospital' for a new one; or estimate 'income' alone, with --partial" in said
    partial = scene.rivera.run("estimate", TITLE, "--partial", "--json")
    assert partial.code == 0
    assert "warning: without 'smoker' of 'Hospital', whose grant is no longer good" in partial.err
    assert [cell["income"] for cell in json.loads(partial.out)["cells"]] == ["low", "high"]
    assert_refused(scene.rivera.run("publish", TITLE), code=1)
    table = scene.office.succeed("audit", TITLE)
    squeezed = " ".join(table.split())
    assert "granted smoker to Dr. Rivera" in squeezed
    assert "revoked smoker from Dr. Rivera" in squeezed
    entries = scene.rivera.json("audit", TITLE)["entries"]
    named = [(e["event"], e["grant"]["attributes"]) for e in entries if e["grant"] is not None]
    assert named == [("granted", ["smoker"]), ("granted", ["income"]), ("revoked", ["smoker"])]
    lines = scene.rivera.json("grants")["grants"]
    assert [line["state"] for line in lines] == ["revoked", "good"]
