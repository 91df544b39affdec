"""Stored tables on the server: what each step answers when all is well, and when it is not."""

from pathlib import Path

import pytest

from tests.support.servers import make_context
from tests.support.simulator import Simulator
from tests.support.vaults import VaultOnServer
from veiltab.server.context import ServiceContext


@pytest.fixture
def context(tmp_path: Path) -> ServiceContext:
    """Return a server without anything in it."""
    return make_context(tmp_path / "data", identity=Simulator().server)


def test_a_stored_table_serves_three_studies(context: ServiceContext) -> None:
    vault = VaultOnServer(context).store()
    assert vault.state == "stored"
    for _ in range(3):
        study = vault.study()
        assert study.work() == "sampled"
        assert study.answer_all().state == "joined"
        assert study.work() == "released"
        assert study.state == "released"
        print(study.events())
