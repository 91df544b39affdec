"""Invitations, parties and nonces, on both databases."""

import pytest

from veiltab.errors import InvitationError
from veiltab.server.db.database import Database
from veiltab.server.db.records import Invitation
from veiltab.wire.contract import PublicIdentity

CODE, OTHER_CODE = b"\x00code".ljust(32, b"\xff"), b"\x01" * 32
ALICE = PublicIdentity("Clinic Süd 😀", b"\x01" * 32, b"\x02" * 1216)
BOB, CAROL = b"b" * 32, b"c" * 32


def invite(database: Database, *, expires: int = 1_000) -> None:
    """Keep one invitation."""
    with database.transaction() as records:
        records.add_invitation(CODE, "for the clinic", 100, expires)


def use(database: Database, party: bytes, now: int, code: bytes = CODE) -> None:
    """Use the invitation in a transaction of its own."""
    with database.transaction() as records:
        records.use_invitation(code, party, now)


def only_invitation(database: Database) -> Invitation:
    """Return the one invitation that is there."""
    with database.reading() as records:
        [invitation] = records.invitations()
    return invitation


def test_an_invitation_is_used_once(database: Database) -> None:
    """The first party has it; another one is refused and changes nothing."""
    invite(database)
    assert only_invitation(database) == Invitation(CODE, "for the clinic", 100, 1_000, None, None)
    use(database, BOB, 200)
    with pytest.raises(InvitationError, match="was used already"):
        use(database, CAROL, 300)
    assert only_invitation(database) == Invitation(CODE, "for the clinic", 100, 1_000, BOB, 200)


def test_a_party_may_repeat_its_invitation_even_later(database: Database) -> None:
    """A registration whose answer was lost is sent again, and the first time counts."""
    invite(database)
    use(database, BOB, 999)
    use(database, BOB, 5_000)
    assert only_invitation(database).used == 999


def test_expired_and_unknown_invitations_are_refused(database: Database) -> None:
    """An invitation ends at its last second; whoever has its code is told why it is refused."""
    invite(database)
    for now, code, why in (
        (1_000, CODE, "has expired"),
        (5_000, CODE, "has expired"),
        (200, OTHER_CODE, "no such invitation"),
    ):
        with pytest.raises(InvitationError, match=why) as caught:
            use(database, BOB, now, code)
        assert "operator" in caught.value.hint
        assert only_invitation(database).party is None


def test_a_code_cannot_be_given_out_twice(database: Database) -> None:
    """A second invitation with the same code would make the first one usable again."""
    invite(database)
    use(database, BOB, 200)
    with pytest.raises(InvitationError, match="already"):
        invite(database, expires=9_000)
    assert only_invitation(database).expires == 1_000


def test_a_party_is_registered_once_and_comes_back_whole(database: Database) -> None:
    """The second time is no error and says so; a new name for the same keys changes nothing."""
    renamed = PublicIdentity("Somebody else", ALICE.signing_key, ALICE.sealing_key)
    with database.transaction() as records:
        assert records.party(ALICE.party_id) is None
        assert records.add_party(ALICE, 100)
    with database.transaction() as records:
        assert not records.add_party(ALICE, 200)
        assert not records.add_party(renamed, 300)
    with database.reading() as records:
        assert records.party(ALICE.party_id) == ALICE
        assert records.party(BOB) is None


def test_a_nonce_is_used_once_by_each_party(database: Database) -> None:
    """Nonces of different parties do not meet."""
    with database.transaction() as records:
        assert records.use_nonce(BOB, b"n" * 16, 100)
        assert not records.use_nonce(BOB, b"n" * 16, 101)
        assert records.use_nonce(CAROL, b"n" * 16, 100)
        assert records.use_nonce(BOB, b"m" * 16, 100)
    with database.transaction() as records:
        assert not records.use_nonce(BOB, b"n" * 16, 102)


def test_old_nonces_are_forgotten(database: Database) -> None:
    """Only those before the given time, which are then free again."""
    with database.transaction() as records:
        for created in (98, 99, 100, 101):
            records.use_nonce(BOB, bytes([created]) * 16, created)
    with database.transaction() as records:
        assert records.forget_nonces(100) == 2
        assert records.forget_nonces(100) == 0
        assert records.use_nonce(BOB, bytes([99]) * 16, 99)
        assert not records.use_nonce(BOB, bytes([100]) * 16, 100)
