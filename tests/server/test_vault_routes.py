"""The routes of vaults over HTTP: what each answers the first time, and again."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.requests import VAULTS, Request, Signer, asked
from tests.support.servers import Server, make_context, running
from tests.support.simulator import Simulator
from tests.support.vaults import VaultOnServer, chunk_body
from veiltab.protocol.curator.agreement import share_secret
from veiltab.wire.bundles import check_bundle
from veiltab.wire.codec import dump
from veiltab.wire.contract import Vault
from veiltab.wire.messages import RepadRequest


@dataclass
class Asked:
    """A service with a vault, whose tables are not stored yet, and its curators' requests."""

    service: Server
    client: httpx.Client
    vault: VaultOnServer

    def __call__(
        self, place: int, method: str, path: str, body: bytes = b"", status: int = 200
    ) -> Any:  # noqa: ANN401 - JSON, or bytes
        """Send a request of a curator, check the status of the answer, and return its body."""
        identity = self.vault.parties.curators[place]
        signer = Signer(identity, self.service.context.identity.party_id)
        answer = signer.sign(Request(method, path, body)).send(self.client)
        assert answer.status_code == status, answer.text
        is_message = path.endswith(("terms", "repad-request", "request/chunks"))
        return answer.content if is_message else answer.json()


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Asked]:
    """Return a running service, with a vault that one curator has signed."""
    context = make_context(tmp_path / "data", identity=Simulator().server)
    vault = VaultOnServer(context, signed=False)
    with running(context) as service, httpx.Client(base_url=service.url) as client:
        yield Asked(service, client, vault)


def test_a_vault_and_a_study_on_it(ask: Asked) -> None:
    """Every route once, and again where something is sent: then nothing is new."""
    vault, deposit = ask.vault, ask.vault.deposit
    base, (first, second) = f"/v1/vaults/{vault.vault.hex()}", vault.parties.curators
    terms = ask(1, "GET", f"{base}/terms")
    assert Vault.loads(terms).body == deposit.vault.body
    ask(0, "POST", "/v1/vaults", terms, status=200)
    for _ in range(2):
        ask(1, "POST", f"{base}/signatures", deposit.vault.dumps())
    secret = share_secret(deposit.vault.body, first, deposit.secret, second.party_id).dumps()
    for status in (201, 200):
        assert ask(0, "POST", f"{base}/secrets", secret, status) == {}
    assert len(ask(1, "GET", f"{base}/secrets")["secrets"]) == 1
    for place, table in enumerate(deposit.stored):
        chunks = chunk_body(deposit.tables, [table.upload.body])
        for status in (201, 200):
            ask(place, "PUT", f"{base}/chunks", chunks, status)
        assert len(ask(place, "GET", f"{base}/chunks")["chunks"]) == 3
        for _ in range(2):
            found = ask(place, "POST", f"{base}/uploads", table.upload.dumps())
    assert found == ask(0, "GET", base)
    assert (found["state"], found["curators"][1]) == (
        "stored",
        {
            "name": "curator 2",
            "party": second.party_id.hex(),
            "signed": True,
            "uploaded": True,
            "upload": deposit.stored[1].upload.digest.hex(),
        },
    )
    (listed,) = ask(1, "GET", "/v1/vaults")["vaults"]
    assert (listed["vault"], listed["role"]) == (vault.vault.hex(), "curator")
    _check_study(ask)
    closed = ask(1, "POST", f"{base}/close", dump({"reason": "enough"}))
    assert (closed["state"], closed["reason"]) == ("closed", "curator 2: enough")
    entries = ask(0, "GET", f"{base}/audit")["entries"]
    assert [entry["event"] for entry in entries][-2:] == ["complete", "closed"]


def _check_study(ask: Asked) -> None:
    """Go through a study on the vault; the worker draws and releases by itself."""
    study = ask.vault.study()
    base = f"/v1/studies/{study.study.hex()}"
    _wait(ask, base, "sampled")
    for place in range(2):
        request = RepadRequest.loads(ask(place, "GET", f"{base}/repad-request"))
        assert request == study.request(place)
        question = asked(request.body.positions)
        positions = ask(place, "POST", f"{base}/repad-request/chunks", question)
        found = [each.digest for each in check_bundle([positions])]
        assert found == list(request.body.positions)
        answer = study.prepare(place).message
        ask(place, "PUT", f"{base}/chunks", chunk_body(study.sent, [answer.body]), 201)
        status = ask(place, "POST", f"{base}/repads", answer.dumps())
        assert status["curators"][place]["uploaded"]
        again = ask(place, "POST", f"{base}/repads", answer.dumps())
        assert again["curators"][place]["uploaded"]
    _wait(ask, base, "released")


def _wait(ask: Asked, path: str, state: str) -> None:
    end = time.monotonic() + 20
    while (status := ask(0, "GET", path))["state"] != state:
        assert time.monotonic() < end, status
        time.sleep(0.02)


def test_outsiders_cannot_tell_whether_there_is_a_vault(ask: Asked) -> None:
    """On every route that only asks: the answer is that for a vault which does not exist."""
    parties, server = ask.vault.parties, ask.service.context.identity.party_id
    outsider = Signer(parties.researcher, server)
    for _, template in sorted(route for route in VAULTS if route[0] == "GET"):
        answers = [
            outsider.sign(Request("GET", template.format(vault=vault.hex()))).send(ask.client)
            for vault in (ask.vault.vault, bytes(32))
        ]
        assert [answer.status_code for answer in answers] == [404, 404], template
        assert answers[0].content == answers[1].content
