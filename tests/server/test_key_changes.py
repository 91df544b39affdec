"""Keys that change in the middle of a study, and keys that were stolen: over HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import polars as pl
import pytest

import veiltab as vt
from tests.support.servers import Server, running
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity, fingerprint
from veiltab.crypto.signing import SigningKey
from veiltab.errors import (
    ConnectionFailedError,
    HomeError,
    RevokedError,
    ServerChangedError,
    SignatureError,
    StateError,
    UnauthenticatedError,
)
from veiltab.hosting import existing_server, rotate_server_key
from veiltab.party import rotation as party_rotation
from veiltab.party.connection import Call, Retry
from veiltab.party.context import PartyContext
from veiltab.party.evidence import read_log, read_whole_log
from veiltab.party.keyfile import load_identity
from veiltab.party.remote import RemoteServer
from veiltab.party.session import Session
from veiltab.protocol import rotating
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.keys import verify_keys
from veiltab.protocol.verify import cosign, sign
from veiltab.server.invitations import invite
from veiltab.wire.codec import dump
from veiltab.wire.rotation import Revocation, Rotation
from veiltab.wire.signed import Signed

TITLE = "Smoking and income"
PEOPLE = 400
STUDY = """\
title = "Smoking and income"
epsilon = 1.0
population = 400

[linkage]
by = "ids"
columns = 1

[[curators]]
identity = "me"
attributes = [{name = "smoker", categories = ["no", "yes"]}]

[[curators]]
identity = "office.json"
attributes = [{name = "income", categories = ["high", "low"]}]

[[researchers]]
identity = "rivera.json"
"""
ENTROPY = SystemEntropy()
GONE = ConnectionFailedError("gone", hint="wait")
QUICK = Retry(total=1.0, base=0.02, cap=0.1)


@contextmanager
def serving(data: Path) -> Iterator[Server]:
    """Serve a data folder in a thread."""
    app = vt.create_app(data, poll_seconds=0.05, rate=1e6, burst=10**6, stranger_burst=10**6)
    with running(existing_server(data, None), app) as server:
        yield server


def join(server: Server, path: Path) -> vt.Home:
    """Make a party that is registered, called like its folder."""
    home = vt.Home(path)
    home.create(path.name)
    code, identity = invite(server.context, path.name), server.context.identity
    home.register(server.url, code, fingerprint=fingerprint(identity.party_id))
    return home


@dataclass
class World:
    """A running service, and a folder for parties."""

    server: Server
    folder: Path
    count: int = 0

    def party(self) -> vt.Home:
        """Make another party that is registered."""
        self.count += 1
        return join(self.server, self.folder / f"party {self.count}")

    def remote(self, identity: PrivateIdentity) -> RemoteServer:
        """Return the server as somebody with these keys sees it."""
        return RemoteServer(self.server.url, self.server.context.identity, identity, retry=QUICK)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Serve for all attacks: each has parties of its own."""
    folder = tmp_path_factory.mktemp("keys")
    with serving(folder / "data") as server:
        yield World(server, folder)


def table(attribute: str, values: list[str]) -> pl.DataFrame:
    """Return a curator's table."""
    return pl.DataFrame({"id": range(PEOPLE), attribute: values * (PEOPLE // len(values))})


def test_a_study_goes_on_while_all_its_parties_change_their_keys(tmp_path: Path) -> None:
    """Propose, rotate, push, rotate, restart with a new server key, grant, rotate, estimate."""
    with serving(tmp_path / "data") as server:
        names = ("hospital", "office", "rivera")
        hospital, office, rivera = (join(server, tmp_path / name) for name in names)
        for home, name in ((office, "office"), (rivera, "rivera")):
            home.write_public(tmp_path / f"{name}.json")
            home.set_budget("data", epsilon=3)
        hospital.set_budget("data", epsilon=3)
        (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
        with hospital.connect() as session:
            session.propose(tmp_path / "study.toml")
        before = [home.fingerprint for home in (hospital, office, rivera)]
        for home in (hospital, office, rivera):
            home.rotate()
        with hospital.connect() as me, office.connect() as other:
            assert other.study(TITLE).sign().state == "open"
            assert other.study(TITLE).sign().state == "open"  # again, and nothing has changed
            me.study(TITLE).push(table("smoker", ["no", "yes"]), ids="id", wait=False)
        hospital.rotate()
        office.rotate()
        with hospital.connect() as me, office.connect() as other:
            other.study(TITLE).push(table("income", ["low"]), ids="id", wait=False)
            broken = mock.patch.object(RemoteServer, "upload", side_effect=GONE)
            with broken, pytest.raises(ConnectionFailedError):
                me.study(TITLE).push(table("smoker", ["no", "yes"]), ids="id", wait=False)
        hospital.rotate()  # the upload is prepared, and signed with the key before
        with hospital.connect() as me:
            me.study(TITLE).push()
    rotate_server_key(tmp_path / "data")
    with serving(tmp_path / "data") as server:
        for home in (hospital, office, rivera):
            home.pin_server(server.url, server.context.identity)
        with hospital.connect() as me, office.connect() as other:
            assert me.study(TITLE).wait("released", timeout=30).state == "released"
            me.study(TITLE).grant("rivera", days=7)
            rivera.rotate()  # the first grant is sealed to the key before
            other.study(TITLE).grant("rivera", days=7)
        with rivera.connect() as researcher:
            estimate = researcher.study(TITLE).estimate(["smoker", "income"])
            assert estimate.probability("income = 'low'").value is not None
            published = researcher.study(TITLE).publish()
        rivera.rotate()  # the publication is signed with the key before
        with rivera.connect() as researcher:
            assert researcher.study(TITLE).publish().digest == published.digest
        assert [home.fingerprint for home in (hospital, office, rivera)] == before
        assert [len(home.open().earlier) for home in (hospital, office, rivera)] == [3, 2, 3]
        pinned = hospital.server
        assert pinned is not None
        assert len(pinned.rotations) == 1  # the home has followed the server's new key


def test_a_server_that_goes_back_to_an_old_key_is_refused(world: World, tmp_path: Path) -> None:
    """Whoever has stolen a replaced key of the server cannot speak for it any more."""
    home = world.party()
    with serving(tmp_path / "other") as server:
        server_key = tmp_path / "other" / "server.key"
        old = load_identity(server_key, None)
    new, thief = (rotating.rotate(old, ENTROPY, 5) for _ in range(2))
    home.forget_server()
    home.pin_server(server.url, public_identity(old))
    home.follow_server(new.signing.proof)
    home.follow_server(new.signing.proof)
    for proof in ((), thief.signing.proof):
        with pytest.raises(ServerChangedError, match="THE SERVER HAS CHANGED"):
            home.follow_server(proof)
    kept = home.server
    assert kept is not None
    assert kept.rotations == new.signing.proof


def test_a_log_under_an_old_key_of_the_server_is_not_remembered(
    world: World, tmp_path: Path
) -> None:
    """Else a thief could put in an entry that the real server's log then contradicts for ever."""
    home, partner = world.party(), world.party()
    home.set_budget("data", epsilon=3)
    server = load_identity(world.folder / "data" / "server.key", None)
    with home.connect() as me:
        _propose_to(me, home, partner, tmp_path)
        study = me.study(TITLE)
        pinned = home.study(bytes.fromhex(study.id)).log
        study.contract()
        before = pinned.read()
        study.abort("one more entry")
        home.follow_server(rotating.rotate(server, ENTROPY, 5).signing.proof)
        for read in (read_log, read_whole_log):
            with pytest.raises(ServerChangedError, match="THE SERVER HAS CHANGED"):
                read(me._context, study.terms)
    assert pinned.read() == before


def test_old_keys_are_refused_at_the_server(world: World) -> None:
    """After a rotation the old key signs no request and no message any more."""
    home = world.party()
    stolen = load_identity(home.key_file, None)
    with world.remote(stolen) as thief:
        assert thief.studies() == []
        home.rotate()
        with pytest.raises(UnauthenticatedError):
            thief.studies()
    with home.connect() as owner:
        assert owner.studies() == []


def test_a_stolen_old_key_proposes_nothing(world: World, tmp_path: Path) -> None:
    """Not even through an accomplice, who sends what the old key has signed."""
    victim, accomplice, third = world.party(), world.party(), world.party()
    stolen = load_identity(victim.key_file, None)
    victim.rotate()
    victim.write_public(tmp_path / "office.json")
    third.write_public(tmp_path / "rivera.json")
    accomplice.set_budget("data", epsilon=3)
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    with accomplice.connect() as session:
        study = session.propose(tmp_path / "study.toml")
        context: PartyContext = session._context
        study_id = bytes.fromhex(study.id)
        contract = context.server.contract(study_id)
        forged = cosign(contract, stolen.signing)
        with pytest.raises(SignatureError, match="replaced or revoked"):
            context.server.sign(study_id, forged)
    victim.set_budget("data", epsilon=3)
    with victim.connect() as owner:
        assert owner.study(study.id).sign().state == "open"


def test_messages_under_an_old_key_are_refused(world: World, tmp_path: Path) -> None:
    """A request under the newest key cannot carry a message under one before it."""
    owner, partner, third = world.party(), world.party(), world.party()
    partner.write_public(tmp_path / "office.json")
    third.write_public(tmp_path / "rivera.json")
    owner.set_budget("data", epsilon=3)
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    old = load_identity(owner.key_file, None)
    owner.rotate()
    with mock.patch("veiltab.protocol.curator.agreement.sign") as signing:
        signing.side_effect = lambda body, _: sign(body, old.signing)
        with owner.connect() as session, pytest.raises(SignatureError, match="has replaced"):
            session.propose(tmp_path / "study.toml")  # its contribution is signed with the old key


def send(world: World, rotation: Signed[Rotation], sealing_key: bytes) -> None:
    """Send a rotation as anybody may."""
    body = dump({"rotation": rotation.to_json(), "sealing_key": sealing_key.hex()})
    with world.remote(PrivateIdentity.create("anybody", ENTROPY)) as remote:
        call = Call("POST", "/v1/parties/rotations", body)
        remote._connection.send(call, lambda _: {})


def test_a_rotation_is_taken_twice_and_replayed_in_vain(world: World) -> None:
    """The first rotation, replayed after the second, changes nothing."""
    home = world.party()
    first, second = home.rotate(), home.rotate()
    send(world, first.signing.proof[0], first.sealing.public)
    with world.party().connect() as session:
        context: PartyContext = session._context
        keys = verify_keys(home.public, context.server.party_keys(first.party_id))
        assert keys.rotations == second.signing.proof
        assert keys.sealing_key == second.sealing.public
        assert context.sealing_key(home.public) == second.sealing.public


def test_a_fork_is_refused_and_both_keys_are_shown(world: World) -> None:
    """Two rotations with the same number: the first stays, and the second is told of it."""
    home = world.party()
    identity = load_identity(home.key_file, None)
    first = home.rotate()
    fork = rotating.rotate(identity, ENTROPY, 5)
    with pytest.raises(StateError, match="another rotation number 1") as caught:
        send(world, fork.signing.proof[0], fork.sealing.public)
    for key in (first, fork):
        assert key.signing.public.hex() in caught.value.message
    with home.connect() as session:
        assert session.studies() == []


def test_a_thief_that_rotates_first_is_noticed_and_revoked(world: World) -> None:
    """The owner's own rotation is refused, and the owner ends the identity for both."""
    home = world.party()
    stolen = load_identity(home.key_file, None)
    thief = rotating.rotate(stolen, ENTROPY, 5)
    send(world, thief.signing.proof[0], thief.sealing.public)
    with pytest.raises(StateError, match=thief.signing.public.hex()):
        home.rotate()
    assert not home.next_key.exists()
    with world.remote(thief) as remote:
        assert remote.studies() == []
        home.revoke(reason="stolen")
        with pytest.raises(UnauthenticatedError):
            remote.studies()


def test_no_rotation_without_both_keys(world: World) -> None:
    """One signature, another party's chain, other keys in it: all get the same answer."""
    home, other = world.party(), world.party()
    identity, stranger = (load_identity(h.key_file, None) for h in (home, other))
    good = rotating.rotate(identity, ENTROPY, 5)
    (rotation,) = good.signing.proof
    theirs = rotating.rotate(stranger, ENTROPY, 5)
    body = theirs.signing.proof[0].body
    moved = replace(body, party=identity.party_id)
    unknown = rotating.rotate(PrivateIdentity.create("x", ENTROPY), ENTROPY, 5)
    later = rotating.rotate(identity, ENTROPY, 2**40)
    only_old = sign(rotation.body, identity.signing)
    only_new = sign(rotation.body, plain(good))
    attempts = [
        (only_old, good.sealing.public),
        (only_new, good.sealing.public),
        (cosign(only_old, stranger.signing), good.sealing.public),
        (rotation, stranger.sealing.public),
        (both(moved, stranger, theirs), theirs.sealing.public),
        (unknown.signing.proof[0], unknown.sealing.public),
        (later.signing.proof[0], later.sealing.public),
        (rotating.rotate(good, ENTROPY, 6).signing.proof[1], good.sealing.public),
    ]
    answers = set()
    for attempt, sealing_key in attempts:
        with pytest.raises(UnauthenticatedError) as caught:
            send(world, attempt, sealing_key)
        answers.add(caught.value.message)
    assert len(answers) == 1
    with home.connect() as session:
        assert session.studies() == []


def plain(identity: PrivateIdentity) -> SigningKey:
    """Return the newest signing key without what proves it."""
    return SigningKey(identity.signing.secret_bytes())


def both(body: Rotation, old: PrivateIdentity, new: PrivateIdentity) -> Signed[Rotation]:
    """Sign a rotation with both keys."""
    return cosign(sign(body, old.signing), plain(new))


def test_a_revoked_party_is_refused_and_others_are_told(world: World, tmp_path: Path) -> None:
    """By a certificate that was made before the keys changed, sent by anybody who holds it."""
    home, other = world.party(), world.party()
    home.write_revocation(tmp_path / "certificate.json", reason="laptop stolen")
    assert (tmp_path / "certificate.json").stat().st_mode & 0o777 == 0o600
    home.rotate()
    victim = home.public
    forgery = Revocation(at=1, party=victim.party_id, reason="forged")
    forged = sign(forgery, other.open().signing)
    with pytest.raises(UnauthenticatedError):
        RemoteServer.revoke(world.server.url, forged, retry=QUICK)
    with home.connect() as session:
        assert session.studies() == []
        kept = party_rotation.read_certificate(tmp_path / "certificate.json")
        for _ in range(2):  # again, and nothing has changed
            assert RemoteServer.revoke(world.server.url, kept, retry=QUICK) == victim.party_id
        with pytest.raises(UnauthenticatedError):
            session.studies()
    with pytest.raises(UnauthenticatedError):
        home.rotate(retry=QUICK)
    with other.connect() as session:
        context: PartyContext = session._context
        with pytest.raises(RevokedError, match="laptop stolen"):
            context.sealing_key(victim)
        with pytest.raises(RevokedError, match="laptop stolen"):
            _propose_to(session, other, home, tmp_path)


def _propose_to(session: Session, me: vt.Home, partner: vt.Home, folder: Path) -> None:
    partner.write_public(folder / "office.json")
    me.set_budget("data", epsilon=3)
    text = STUDY.split("[[researchers]]", maxsplit=1)[0]
    (folder / "study.toml").write_text(text, encoding="utf-8")
    session.propose(folder / "study.toml")


def test_a_rotation_that_breaks_off_is_finished(world: World) -> None:
    """Whether the server has heard of it or not, the same keys are used in the end."""
    home = world.party()
    with (
        mock.patch.object(RemoteServer, "rotate", side_effect=ConnectionFailedError("x", hint="y")),
        pytest.raises(ConnectionFailedError),
    ):
        home.rotate()
    with pytest.raises(HomeError, match="new keys were made"):
        home.open()
    drawn = load_identity(home.next_key, None)
    assert home.rotate().signing.public == drawn.signing.public
    failing = mock.patch.object(
        party_rotation, "replace_identity", side_effect=HomeError("x", hint="y")
    )
    with failing, pytest.raises(HomeError, match="x"):
        home.rotate()
    drawn = load_identity(home.next_key, None)
    assert home.rotate().signing.public == drawn.signing.public
    assert len(home.open().earlier) == 2
    with home.connect() as session:
        assert session.studies() == []


def test_an_identity_with_new_keys_registers_elsewhere(world: World, tmp_path: Path) -> None:
    """A second server learns the way from the first keys to the newest."""
    home = vt.Home(tmp_path / "party")
    home.create("party")
    home.rotate()
    newest = home.rotate()
    code, identity = invite(world.server.context, "party"), world.server.context.identity
    home.register(world.server.url, code, fingerprint=fingerprint(identity.party_id))
    with home.connect() as me:
        assert me.studies() == []
    with world.party().connect() as session:
        context: PartyContext = session._context
        assert context.sealing_key(home.public) == newest.sealing.public
