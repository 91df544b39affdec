"""What a curator believes of its server, and what it keeps when it is stopped."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from unittest import mock

import pytest

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.lying_server import lying_releases
from tests.support.servers import make_context, running
from tests.support.simulator import Stage, regrant
from veiltab.errors import AuditError, PromiseError, VeiltabError
from veiltab.party import curator
from veiltab.party.proposal import StudyDraft
from veiltab.party.study_folder import StudyFolder
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.in_process import LATER
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Release
from veiltab.wire.signed import Signed

SHARES = ({"first": 2, "second": 3}, {"third": 2})


def granted(study: HttpStudy, *attributes: str) -> tuple[str, ...]:
    """Let the first curator grant attributes; return those in the grant."""
    to = public_identity(study.researcher.identity)
    made = curator.give_grant(
        study.curators[0], study.curators[0].contract(study.study), to, list(attributes), LATER
    )
    return made.body.attributes


@pytest.mark.slow
def test_a_server_cannot_widen_a_grant(tmp_path: Path) -> None:
    """What was granted before is granted again, but only what the curator itself has signed."""
    with running(make_context(tmp_path / "data")) as service:
        study = http_study(service, tmp_path, Stage.RELEASED, terms=HttpTerms(shares=SHARES))
        me, other = study.curators
        assert granted(study, "first") == ("first",)
        (real,) = me.server.grants(study.study)
        forged = regrant(real, other.identity, attributes=("first", "second"))
        with mock.patch.object(me.server, "grants", return_value=[forged]):
            assert granted(study, "first") == ("first",)
        assert granted(study, "second") == ("first", "second")


@pytest.mark.slow
def test_a_proposal_that_is_stopped_while_it_is_kept_is_charged_once(tmp_path: Path) -> None:
    """Right after the ledger was written: the same proposal again is the same study."""
    with running(make_context(tmp_path / "data")) as service:
        first = http_study(service, tmp_path, Stage.PROPOSED)
        me, contract = first.curators[0], first.contract.body
        ledgers = me.home.ledgers
        ledger = ledgers.set_limits("people", 10.0).ledger
        draft = _draft(contract, "another study")
        real = StudyFolder.save_contract

        def stop(place: StudyFolder, signed: Signed[Contract]) -> None:
            if signed.signatures:
                raise KeyboardInterrupt
            real(place, signed)

        with (
            mock.patch.object(StudyFolder, "save_contract", stop),
            pytest.raises(KeyboardInterrupt),
        ):
            curator.propose(me, draft, ledger)
        (entry,) = ledgers.open_ledger("people").ledger.entries
        again = ledgers.open_ledger("people").ledger
        assert curator.propose(me, draft, again).study_id == entry.study
        assert ledgers.open_ledger("people").ledger.entries == (entry,)


def _draft(contract: Contract, title: str) -> StudyDraft:
    """Return a draft with the terms of a contract, but its title."""
    others = {"expected_population", "vault"}
    names = [each.name for each in fields(StudyDraft) if each.name not in others]
    return StudyDraft(**{name: getattr(contract, name) for name in names} | {"title": title})


LIES: dict[str, tuple[type[VeiltabError], Callable[[Release], Release]]] = {
    "less noise": (
        PromiseError,
        lambda release: replace(
            release, keep_threshold=(release.keep_threshold or 0) + 24 * release.cells
        ),
    ),
    "another upload": (
        AuditError,
        lambda release: replace(
            release, uploads=(replace(release.uploads[0], digest=bytes(32)), *release.uploads[1:])
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("error", "lie"), LIES.values(), ids=LIES)
def test_pads_are_not_given_out_for_a_release_that_breaks_its_promise(
    tmp_path: Path, error: type[VeiltabError], lie: Callable[[Release], Release]
) -> None:
    """The curator looks at the release itself: what the server signs and logs is not enough."""
    with running(make_context(tmp_path / "data")) as service, lying_releases(lie):
        study = http_study(service, tmp_path, Stage.RELEASED)
        first, to = study.curators[0], public_identity(study.researcher.identity)
        with pytest.raises(error):
            curator.give_grant(first, first.contract(study.study), to, None, LATER)
        assert first.server.grants(study.study) == []
