"""Who can read what until when, as both sides see it; and how a curator takes that back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from sqlalchemy import delete, update

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.messages import grant as grant_message
from tests.support.messages import signed as signed_message
from tests.support.servers import Server, make_context, running
from tests.support.simulator import Stage
from veiltab.crypto.entropy import SystemEntropy
from veiltab.errors import (
    AuditError,
    HomeError,
    InputError,
    MismatchError,
    NotFoundError,
    NotGrantedError,
    RoleError,
    SignatureError,
    StateError,
    VeiltabError,
)
from veiltab.party.context import PartyContext
from veiltab.party.evidence import read_log
from veiltab.party.grants import GrantStatus, is_revoked, notices
from veiltab.party.remote import RemoteServer
from veiltab.party.researcher import as_grant
from veiltab.party.rotation import rotate
from veiltab.party.study import Study
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.grant import revoke as make_revocation
from veiltab.protocol.verify import sign
from veiltab.server.db.tables import MESSAGES
from veiltab.server.db.usage import UsageRecords
from veiltab.wire.messages import GrantRevocation, SignedGrant
from veiltab.wire.signed import digest

DAY = 86_400


@dataclass
class Scene:
    """A released study of two curators and a researcher, each with its own clock."""

    server: Server
    study: HttpStudy

    def of(self, place: int, *, days: float = 0) -> Study:
        """Return the study as a curator sees it (0, 1) or the researcher (2), some days later."""
        party = [*self.study.curators, self.study.researcher][place]
        return Study(replace(party, clock=lambda: party.clock() + days * DAY), self.study.study)

    @property
    def researcher(self) -> Any:  # noqa: ANN401 - a public identity
        """Who is granted everything."""
        return public_identity(self.study.researcher.identity)

    def grant(self, place: int, *attributes: str, days: int = 30) -> SignedGrant:
        """Let a curator grant attributes, all of its own by default."""
        given = self.of(place).grant(self.researcher, list(attributes) or None, days=days)
        return given.signed


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for all these studies."""
    with running(make_context(tmp_path_factory.mktemp("grants") / "data")) as server:
        yield server


@pytest.fixture(scope="module")
def parties(
    service: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[PartyContext]]:
    """Register the same parties for all these studies."""
    folder = tmp_path_factory.mktemp("parties")
    names = ("Hospital", "Tax office", "Rivera")
    joined = [service.join(name, folder / name) for name in names]
    yield joined
    for party in joined:
        party.server.close()


@pytest.fixture
def scene(service: Server, parties: list[PartyContext], request: Any, tmp_path: Path) -> Scene:  # noqa: ANN401
    """Release a study, which nobody has granted yet."""
    terms = HttpTerms(title=request.node.name)
    study = http_study(service, tmp_path, Stage.RELEASED, terms=terms, parties=parties)
    return Scene(service, study)


def states(grants: list[GrantStatus]) -> list[tuple[str, str, str, str]]:
    """Say of each grant who gave it to whom, of what, and how it stands."""
    return [(one.curator, one.researcher, ",".join(one.attributes), one.state) for one in grants]


def test_both_sides_see_who_can_read_what_until_when(scene: Scene) -> None:
    """A curator sees the others' grants too, without their pads; a researcher its own."""
    assert scene.of(2).grants() == []
    scene.grant(0, days=5)
    scene.grant(1, days=30)
    both = [
        ("Hospital", "Rivera", "smoker,age", "good"),
        ("Tax office", "Rivera", "income,region", "good"),
    ]
    for place in range(3):
        assert states(scene.of(place).grants()) == both
    assert [one.state for one in scene.of(2, days=6).grants()] == ["expired", "good"]
    (notice,) = notices(scene.of(2).grants(), scene.researcher.party_id)
    assert "the grant of 'smoker', 'age' by 'Hospital' ends in 5 days, on 20" in notice
    me = scene.study.curators[0].identity.party_id
    (notice,) = notices(scene.of(0).grants(), me)
    assert "your grant of 'smoker', 'age' to 'Rivera' ends in 5 days" in notice
    scene.grant(0, days=60)  # a longer one of the same ends the notice
    assert notices(scene.of(2).grants(), scene.researcher.party_id) == []
    header = scene.study.curators[1].server.grant_header
    assert header(scene.study.study, scene.grant(0).signed.digest).sealed is None


def test_a_revocation_ends_everything_and_a_new_grant_begins_anew(scene: Scene) -> None:
    """The server serves neither release, columns nor pads; only what was there before stays."""
    first, _ = scene.grant(0), scene.grant(1)
    assert len(scene.of(2).estimate().schema.names) == 4
    column = scene.study.researcher.server.release(scene.study.study).body.columns[0]
    for _ in range(2):  # once more, it changes nothing
        (revoked,) = scene.of(0).revoke("Rivera")
        assert (revoked.state, revoked.attributes) == ("revoked", ("smoker", "age"))
    log = read_log(scene.study.curators[0], scene.study.contract.body)
    assert list(log.revoked) == [digest(GrantRevocation.of(first.body))]
    server, study = scene.study.researcher.server, scene.study.study
    with pytest.raises(NotGrantedError):
        server.release_chunks(study, column.chunks)
    erased = {one.body.attributes: one.sealed is None for one in server.grants(study)}
    assert erased == {("smoker", "age"): True, ("income", "region"): False}
    assert server.status(study).granted == ("income", "region")
    with pytest.raises(StateError, match="was revoked"):
        scene.study.curators[0].server.send_grant(study, first)
    with pytest.raises(NotGrantedError) as caught:
        scene.of(2).estimate()
    said = caught.value.message + caught.value.hint
    assert "'smoker', 'age' of 'Hospital' (revoked 20" in said
    assert "ask 'Hospital' for a new one; or estimate 'income', 'region' alone" in said
    assert scene.of(2).estimate(partial=True).schema.names == ("income", "region")
    assert scene.of(2).estimate(["region"]).schema.names == ("region",)
    assert scene.of(2).estimate(["region", "age"], partial=True).schema.names == ("region",)
    with pytest.raises(NotGrantedError, match="'age' of 'Hospital'"):
        scene.of(2).estimate(["age"], partial=True)
    again = scene.grant(0, "smoker")
    assert again.body.attributes == ("smoker",)  # and not what was revoked
    assert scene.of(2).estimate(["smoker"]).schema.names == ("smoker",)
    audit = scene.of(1).audit()
    about = [(entry.event, audit.grant_of(entry)) for entry in audit.entries]
    named = [(what, (one.researcher, one.attributes)) for what, one in about if one is not None]
    assert named == [
        ("granted", ("Rivera", ("smoker", "age"))),
        ("granted", ("Rivera", ("income", "region"))),
        ("revoked", ("Rivera", ("smoker", "age"))),
        ("granted", ("Rivera", ("smoker",))),
    ]


def test_expired_grants_are_named_with_whom_to_ask(scene: Scene) -> None:
    """Before anything is fetched: the researcher's own clock tells."""
    scene.grant(0, days=1)
    scene.grant(1)
    with pytest.raises(NotGrantedError, match=r"of 'Hospital' \(expired 20"):
        scene.of(2, days=2).estimate()
    with pytest.raises(NotGrantedError, match=r"of 'Hospital' \(expired 20") as caught:
        scene.of(2, days=40).estimate(partial=True)
    assert "of 'Tax office' (expired 20" in caught.value.message
    assert caught.value.hint == "ask 'Hospital', 'Tax office' for a new one"


def test_who_may_revoke_what(scene: Scene) -> None:
    """Curators revoke their own grants, to those who have one."""
    made = scene.grant(0)
    with pytest.raises(InputError, match="you have given no grant") as caught:
        scene.of(1).revoke("Rivera")
    assert caught.value.hint == "you have given none to anybody"
    with pytest.raises(InputError, match=r"no grant of .* to anybody called 'Nobody'"):
        scene.of(0).revoke("Nobody")
    with pytest.raises(RoleError, match="only the curators"):
        scene.of(2).revoke("Rivera")
    study, (first, second) = scene.study.study, scene.study.curators
    own = replace(GrantRevocation.of(made.body), curator=second.identity.party_id)
    attempts: list[tuple[GrantRevocation, PartyContext, PartyContext, type[VeiltabError]]] = [
        (own, second, second, MismatchError),  # another's grant under one's own name
        (GrantRevocation.of(made.body), first, second, MismatchError),  # sent by another
        (GrantRevocation.of(made.body), second, first, SignatureError),
        (GrantRevocation.of(made.body), first, scene.study.researcher, MismatchError),
    ]
    for body, signer, sender, error in attempts:
        with pytest.raises(error):
            sender.server.send_revocation(study, sign(body, signer.identity.signing))
    mine = replace(own, curator=scene.researcher.party_id)
    with pytest.raises(NotFoundError):  # to a researcher there is no such route
        scene.study.researcher.server.send_revocation(
            study, sign(mine, scene.study.researcher.identity.signing)
        )
    assert states(scene.of(2).grants())[0][3] == "good"


def test_keys_may_change_between_grant_and_revocation(
    scene: Scene, parties: list[PartyContext]
) -> None:
    """The revocation is signed by the newest key, and everybody can check it."""
    scene.grant(0)
    before = parties[0]
    before.server.close()
    rotate(before.home, None, SystemEntropy())
    identity = before.home.open(None)
    server = RemoteServer(scene.server.url, before.server.pinned, identity)
    parties[0] = scene.study.curators[0] = replace(before, identity=identity, server=server)
    scene.of(0).revoke(scene.researcher)
    for place in range(3):
        assert [one.state for one in scene.of(place).grants()] == ["revoked"]


def test_a_server_that_does_not_log_a_revocation_is_refused(scene: Scene) -> None:
    """And the curator's own home does not forget it: nothing revoked is granted again."""
    made = scene.grant(0)
    with (
        mock.patch.object(RemoteServer, "send_revocation"),
        pytest.raises(AuditError, match="not written it into the audit log"),
    ):
        scene.of(0).revoke("Rivera")
    first = scene.study.curators[0]
    assert is_revoked(first, read_log(first, scene.study.contract.body), made.body)
    assert scene.grant(0, "smoker").body.attributes == ("smoker",)


def test_a_server_cannot_hide_or_make_up_what_is_logged(scene: Scene) -> None:
    """A grant or a revocation in the log that it does not show is an error, and so is the other."""
    made, _ = scene.grant(0), scene.grant(1)
    scene.of(0).revoke("Rivera")
    study = scene.study.study
    erased = (MESSAGES.c.study == study, MESSAGES.c.kind == GrantRevocation.kind)
    forged = sign(GrantRevocation.of(made.body), scene.study.curators[1].identity.signing)
    with scene.server.context.database.transaction() as records:
        records._connection.execute(update(MESSAGES).where(*erased).values(content=forged.dumps()))
    with pytest.raises(SignatureError):
        scene.of(2).grants()
    with scene.server.context.database.transaction() as records:
        records._connection.execute(delete(MESSAGES).where(*erased))
    for place in (1, 2):
        with pytest.raises(AuditError, match="has a revocation with the digest"):
            scene.of(place).grants()
    with scene.server.context.database.transaction() as records:
        records._connection.execute(
            delete(MESSAGES).where(MESSAGES.c.study == study, MESSAGES.c.kind == "grant")
        )
    with pytest.raises(AuditError, match="has a grant with the digest"):
        scene.of(1).grants()
    made_up = [scene.study.curators[0].home.study(study).grants()[0]]
    unlogged = replace(made_up[0].body, grant_id=bytes(16))
    signed = replace(made_up[0], signed=sign(unlogged, scene.study.curators[0].identity.signing))
    with (
        mock.patch.object(RemoteServer, "grants", return_value=[signed]),
        pytest.raises(AuditError, match="not the one in the study's audit log"),
    ):
        scene.of(2).grants()


@pytest.mark.parametrize("reason", ["a full disk", "a used-up quota"])
def test_nothing_stands_in_the_way_of_a_revocation(scene: Scene, reason: str) -> None:
    """Access can be taken away where nothing else can be done any more."""
    scene.grant(0)
    folders = scene.server.context.folders
    where: Callable[[], Any] = (
        (lambda: mock.patch.object(type(folders), "free_bytes", return_value=0))
        if reason == "a full disk"
        else (lambda: mock.patch.object(UsageRecords, "message_bytes", return_value=2**60))
    )
    with where():
        with pytest.raises(VeiltabError):
            scene.grant(0)
        scene.of(0).revoke("Rivera")
    assert {one.state for one in scene.of(2).grants()} == {"revoked"}


def test_a_file_of_one_time_pads_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Whoever copies it may break its seal some day; a file of sealed keys may be anywhere."""
    path = tmp_path / "a.grant"
    for pads in ("one-time", "stream"):
        made = grant_message(pads=pads)
        path.write_bytes(signed_message(made, "Hospital").dumps())
        path.chmod(0o600)
        assert as_grant(path).body == made
        path.chmod(0o644)
        if pads == "stream":
            assert as_grant(path).body == made
            continue
        with pytest.raises(HomeError, match="others can open") as caught:
            as_grant(path)
        assert f"chmod 600 {path}" in caught.value.hint


def test_a_revocation_can_be_sent_after_a_crash(scene: Scene) -> None:
    """What was kept and not sent is sent by the next call; an unsent grant is revoked with it."""
    stopped = mock.patch.object(RemoteServer, "send_grant", side_effect=KeyboardInterrupt)
    with stopped, pytest.raises(KeyboardInterrupt):
        scene.grant(0)
    (unsent,) = scene.study.curators[0].home.study(scene.study.study).grants()
    scene.grant(0, days=2)
    assert len(scene.of(0).revoke("Rivera")) == 2
    with pytest.raises(StateError, match="was revoked"):
        scene.study.curators[0].server.send_grant(scene.study.study, unsent)
    revocation = make_revocation(scene.study.curators[0].identity, unsent.body)
    scene.study.curators[0].server.send_revocation(scene.study.study, revocation)
