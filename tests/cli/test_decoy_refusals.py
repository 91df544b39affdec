"""Bad numbers, tables and decoys: a typed error before anything is signed, sent or shown."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.support.commands import Office, assert_refused, open_office, write_csv, write_study
from tests.support.decoys import two_sided
from tests.support.servers import Server, make_context, running
from veiltab.core.channel import DRAW_RANGE
from veiltab.party.remote import RemoteServer
from veiltab.wire.codec import dump

pytestmark = pytest.mark.slow

PEOPLE = 200


@dataclass(frozen=True)
class Scene:
    """Two curators and a researcher, and a study with decoys that waits for a signature."""

    server: Server
    folder: Path
    hospital: Office
    office: Office
    rivera: Office

    def file(self, title: str, **changes: Any) -> Path:
        """Write a study file of the hospital's."""
        options: dict[str, Any] = {"epsilon": 1.0, "mechanism": "decoys"} | changes
        sizes = options.pop("sizes", (2, 2))
        identities = ("me", self.office.public.name)
        curators = {
            identity: {f"a{place}": [str(n) for n in range(size)]}
            for place, (identity, size) in enumerate(zip(identities, sizes, strict=True))
        }
        options.setdefault("lines", "expected_population = 200")
        return write_study(self.folder / f"{title}.toml", curators, title=title, **options)

    def state(self) -> tuple[Any, ...]:
        """Return everything that a refusal must not change."""
        offices = (self.hospital, self.office)
        kept = [sorted(path for path in office.home.rglob("*.json")) for office in offices]
        ledgers = [office.json("ledger") for office in offices]
        return kept, ledgers, self.hospital.json("study", "list")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Set the scene by commands."""
    folder = tmp_path_factory.mktemp("scene")
    with running(make_context(folder / "server")) as server:
        offices = [open_office(folder, name, server) for name in ("Hospital", "Office", "Rivera")]
        for office in offices[:2]:
            office.succeed("ledger", "set", "people", "--epsilon", 1000, "--delta", 0.05)
        scene = Scene(server, folder, *offices)
        scene.hospital.succeed("study", "propose", "--yes", scene.file("Proposed"))
        scene.office.succeed("study", "show", "Proposed")
        yield scene


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"lines": "expected_population = 200\ndelta = 1e-25"}, "delta"),
        ({"lines": "expected_population = 200\nsample_size = 10"}, "sample_size"),
        ({"lines": ""}, "expected_population: is missing"),
        ({"epsilon": 1e-15}, "epsilon"),
        ({"sizes": (4_000, 4_000), "linkage": 'by = "ids"\nmode = "matched"'}, "patterns"),
        ({"mechanism": "paper", "lines": "delta = 1e-6"}, "without delta"),
        ({"mechanism": "shuffle", "lines": ""}, "nothing without a delta"),
    ],
)
def test_numbers_that_cannot_be_planned(
    scene: Scene, changes: dict[str, Any], problem: str
) -> None:
    """Nothing is signed, charged or sent, and no file is left."""
    before = scene.state()
    outcome = scene.hospital.run("study", "propose", "--yes", scene.file("Bad", **changes))
    assert problem in assert_refused(outcome)
    assert scene.state() == before


def _mechanism(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        body["mechanism"] |= changes

    return change


def _one_more(body: dict[str, Any]) -> None:
    """Break the promise by one unit in the last place: the planner takes all that there is."""
    body["mechanism"]["coin_threshold"] = str(int(body["mechanism"]["coin_threshold"]) + 1)


def _weights(*more: int) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        weights = [*two_sided(3).weights]
        weights[0] += sum(more)
        body["delta"] = 0.01 if more else 0.0
        body["mechanism"]["decoys"] = {"law": "table", "weights": [str(w) for w in weights]}

    return change


def _stored(body: dict[str, Any]) -> None:
    body["linkage"]["mode"] = "matched"
    body["stored"] = {"uploads": ["00" * 32] * 2, "vault": "00" * 32}


CONTRACTS = {
    "a coin of zero": (_mechanism(coin_threshold="0"), "coin_threshold"),
    "a coin above one": (_mechanism(coin_threshold=str(DRAW_RANGE + 1)), "coin_threshold"),
    "a ratio of zero": (_mechanism(decoys={"law": "geometric", "threshold": "0"}), "threshold"),
    "a ratio of one": (
        _mechanism(decoys={"law": "geometric", "threshold": str(DRAW_RANGE)}),
        "threshold",
    ),
    "a promise broken by one unit": (_one_more, "spends more than"),
    "weights that do not sum to 2^64": (_weights(1), "sum to"),
    "a bounded law without delta": (_weights(), "without delta"),
    "a cut by rank": (lambda body: body.update(mechanism={"name": "decoys"}), "mechanism"),
    "decoys with stored tables": (_stored, "stored tables have no decoys"),
    "a law with too many decoys": (
        _mechanism(decoys={"law": "geometric", "threshold": str(DRAW_RANGE - 1)}),
        "decoys",
    ),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_contracts_that_keep_no_promise(scene: Scene, name: str) -> None:
    """Whoever made them: they cannot even be read, let alone signed."""
    change, problem = CONTRACTS[name]
    real = RemoteServer._get

    def get(server: RemoteServer, path: str) -> bytes:
        answer = real(server, path)
        if not path.endswith("/contract"):
            return answer
        contract = json.loads(answer)
        change(contract["body"])
        return dump(contract)

    before = scene.state()
    with mock.patch.object(RemoteServer, "_get", get):
        shown = scene.office.run("study", "show", "Proposed")
        signed = scene.office.run("study", "sign", "Proposed", "--yes")
    for outcome in (shown, signed):
        assert problem in assert_refused(outcome, code=1)
    assert scene.state() == before


def test_shares_of_almost_nobody(scene: Scene, tmp_path: Path) -> None:
    """They would be ratios of noise: nothing is shown, and nothing is published."""
    study = scene.file("Nobody", linkage='by = "ids"\nmode = "matched"')
    scene.hospital.succeed("study", "propose", "--yes", study)
    scene.office.succeed("study", "sign", "Nobody", "--yes")
    for place, office in enumerate((scene.hospital, scene.office, scene.hospital)):
        column = place % 2
        rows = [(f"{column}-{n}", n % 2) for n in range(PEOPLE)]
        table = write_csv(tmp_path / f"{column}.csv", ("id", f"a{column}"), rows)
        office.succeed("push", "Nobody", "--table", table, "--id", "id", "--no-wait")
    scene.hospital.succeed("study", "status", "Nobody", "--wait", "released")
    for office in (scene.hospital, scene.office):
        office.succeed("grant", "Nobody", "--to", scene.rivera.public)
    for command in ("estimate", "publish"):
        outcome = scene.rivera.run(command, "Nobody", "--csv", tmp_path / "table.csv")
        assert "almost nobody is in this release" in assert_refused(outcome)
    assert not (tmp_path / "table.csv").exists()
    events = [entry["event"] for entry in scene.rivera.json("audit", "Nobody")["entries"]]
    assert "published" not in events
