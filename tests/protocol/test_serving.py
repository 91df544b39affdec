"""What the server hands out: columns that an unexpired grant covers, their positions, no more."""

from dataclasses import replace

import pytest

from tests.support.decoys import terms
from tests.support.simulator import Simulator, regrant, reseal
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import (
    DigestError,
    ExpiredError,
    MismatchError,
    NotGrantedError,
    SignatureError,
    StateError,
    VeiltabError,
)
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.grant import grant, revoke
from veiltab.protocol.in_process import Outcome, Terms
from veiltab.protocol.verify import sign
from veiltab.wire.contract import PadMode
from veiltab.wire.messages import GrantRevocation, SignedGrant, Upload

NAMES = ("smoker", "age", "income", "region")


def study(mode: PadMode = "stream") -> tuple[Simulator, Outcome]:
    """Return a released study whose release has positions: the server sampled afresh."""
    rehearsal = Simulator()
    terms = Terms(epsilon=2.0, sample_size=30, pads=mode, linkage="matched")
    return rehearsal, rehearsal.run(terms)


def granted(
    rehearsal: Simulator,
    outcome: Outcome,
    curator: int,
    *names: str,
    expires: int = 1_000,
    to: PrivateIdentity | None = None,
) -> SignedGrant:
    """Let a curator grant attributes, to the researcher if to nobody else."""
    researcher = public_identity(to or rehearsal.researcher)
    desk, prepared = outcome.contexts[curator], outcome.prepared[curator]
    return grant(desk, outcome.contract.body, prepared, researcher, names or None, expires=expires)


def parts(outcome: Outcome) -> dict[str, bytes]:
    """Return the digest of each part of the release: its four columns, and two of positions."""
    release = outcome.study.release().body
    digests = {column.attribute: column.chunks[0] for column in release.columns}
    for number, upload in enumerate(release.uploads):
        assert upload.positions is not None
        digests[f"positions {number}"] = upload.positions[0]
    assert len(set(digests.values())) == 6
    return digests


def served(rehearsal: Simulator, outcome: Outcome, now: int = 0) -> set[str]:
    """Return the parts that the researcher may fetch, and check that they are there."""
    names = set()
    for name, digest in parts(outcome).items():
        try:
            outcome.study.check_granted(rehearsal.researcher.party_id, [digest], now)
        except (NotGrantedError, ExpiredError):
            continue
        assert outcome.released.get(digest)
        names.add(name)
    return names


def may_read(rehearsal: Simulator, outcome: Outcome, now: int = 0) -> bool:
    """Tell whether the researcher may read the release message."""
    try:
        outcome.study.check_researcher(rehearsal.researcher.party_id, now)
    except NotGrantedError:
        return False
    return True


def test_nothing_without_a_grant() -> None:
    """Neither the release message nor any of its chunks."""
    rehearsal, outcome = study()
    assert served(rehearsal, outcome) == set()
    assert not may_read(rehearsal, outcome)


@pytest.mark.parametrize(
    ("curator", "names"), [(0, NAMES[:2]), (0, ("age",)), (1, NAMES[2:]), (1, ("income",))]
)
def test_a_grant_covers_its_columns_and_its_curators_positions(
    curator: int, names: tuple[str, ...]
) -> None:
    """Neither another column of the curator, nor anything of another curator."""
    rehearsal, outcome = study()
    outcome.study.accept_grant(granted(rehearsal, outcome, curator, *names), now=0)
    assert served(rehearsal, outcome) == {*names, f"positions {curator}"}


def test_grants_add_up() -> None:
    """With all of them the researcher gets all parts of the release."""
    rehearsal, outcome = study()
    for curator in (0, 1):
        outcome.study.accept_grant(granted(rehearsal, outcome, curator), now=0)
    assert served(rehearsal, outcome) == {*NAMES, "positions 0", "positions 1"}


def test_ciphertext_before_the_noise_is_never_served() -> None:
    """Not even to somebody with all grants: it is neither covered nor kept."""
    rehearsal, outcome = study()
    for curator in (0, 1):
        outcome.study.accept_grant(granted(rehearsal, outcome, curator), now=0)
    for prepared in outcome.prepared:
        body = prepared.message.body
        assert isinstance(body, Upload)
        for digest in (*(d for c in body.columns for d in c.chunks), *(body.tokens or ())):
            with pytest.raises(NotGrantedError):
                outcome.study.check_granted(rehearsal.researcher.party_id, [digest], 0)
            with pytest.raises(DigestError):
                outcome.received.get(digest)


def test_a_grant_is_for_one_researcher() -> None:
    """Another one, and a curator, are handed nothing."""
    rehearsal, outcome = study()
    outcome.study.accept_grant(granted(rehearsal, outcome, 0), now=0)
    other = PrivateIdentity.create("other", CipherEntropy.from_seed(3, "other"))
    for party in (other, *rehearsal.curators, rehearsal.server):
        for digest in parts(outcome).values():
            with pytest.raises(NotGrantedError):
                outcome.study.check_granted(party.party_id, [digest], 0)
        with pytest.raises(NotGrantedError):
            outcome.study.check_researcher(party.party_id, 0)
    outcome.study.accept_grant(granted(rehearsal, outcome, 1, to=other), now=0)
    assert served(rehearsal, outcome) == {"smoker", "age", "positions 0"}
    outcome.study.check_granted(other.party_id, [parts(outcome)["income"]], 0)
    outcome.study.check_researcher(other.party_id, 0)


def test_nothing_after_the_grant_expires() -> None:
    """Served in its last second; from then on the error says that time is over."""
    rehearsal, outcome = study()
    outcome.study.accept_grant(granted(rehearsal, outcome, 0), now=999)
    assert served(rehearsal, outcome, now=999) == {"smoker", "age", "positions 0"}
    assert may_read(rehearsal, outcome, now=999)
    for now in (1_000, 1_001):
        assert served(rehearsal, outcome, now=now) == set()
        assert not may_read(rehearsal, outcome, now=now)
        with pytest.raises(ExpiredError):
            outcome.study.check_granted(rehearsal.researcher.party_id, [parts(outcome)["age"]], now)
    with pytest.raises(ExpiredError):
        outcome.study.accept_grant(granted(rehearsal, outcome, 1), now=1_000)


@pytest.mark.parametrize("first", [500, 1_500])
def test_a_longer_grant_outlasts_a_shorter_one(first: int) -> None:
    """Whichever came first, what a valid grant covers is served."""
    rehearsal, outcome = study()
    for expires in (first, 2_000 - first):
        narrow = granted(rehearsal, outcome, 0, "age", expires=expires)
        outcome.study.accept_grant(narrow, now=0)
    assert served(rehearsal, outcome, now=499) == {"age", "positions 0"}
    assert served(rehearsal, outcome, now=1_000) == {"age", "positions 0"}
    assert served(rehearsal, outcome, now=1_500) == set()
    assert [may_read(rehearsal, outcome, now=now) for now in (499, 1_000, 1_500)] == [1, 1, 0]


def test_one_time_pads_never_pass_through_the_server() -> None:
    """It refuses the whole grant, and serves for the header alone."""
    rehearsal, outcome = study("one-time")
    whole = granted(rehearsal, outcome, 0)
    with pytest.raises(MismatchError, match="must not pass through the server"):
        outcome.study.accept_grant(whole, now=0)
    assert served(rehearsal, outcome) == set()
    outcome.study.accept_grant(whole.header(), now=0)
    assert served(rehearsal, outcome) == {"smoker", "age", "positions 0"}


def test_a_stream_grant_is_kept_whole() -> None:
    """A header, or another sealed part, would stand in the way of the real one."""
    rehearsal, outcome = study()
    whole = granted(rehearsal, outcome, 0)
    with pytest.raises(MismatchError, match="must be whole"):
        outcome.study.accept_grant(whole.header(), now=0)
    with pytest.raises(DigestError):
        outcome.study.accept_grant(SignedGrant(whole.signed, b"something else"), now=0)
    outcome.study.accept_grant(whole, now=0)
    outcome.study.accept_grant(whole, now=0)  # sent again, it changes nothing
    assert served(rehearsal, outcome) == {"smoker", "age", "positions 0"}


def test_a_grants_id_is_used_once() -> None:
    """Another grant under a known id is refused, and the first one stays as it is."""
    rehearsal, outcome = study()
    narrow = granted(rehearsal, outcome, 0, "age")
    outcome.study.accept_grant(narrow, now=0)
    curator = rehearsal.curators[0]
    wide = granted(rehearsal, outcome, 0)
    for other in (
        regrant(narrow, curator, expires=5_000),
        regrant(wide, curator, grant_id=narrow.body.grant_id),
        reseal(narrow, curator, b"something else"),
    ):
        with pytest.raises(MismatchError, match="another grant has this id"):
            outcome.study.accept_grant(other, now=0)
    assert served(rehearsal, outcome) == {"age", "positions 0"}
    assert served(rehearsal, outcome, now=1_000) == set()


def test_the_server_refuses_what_a_researcher_would() -> None:
    """Another study, another upload, another curator's signature, another's attributes."""
    rehearsal, outcome = study()
    whole = granted(rehearsal, outcome, 0)
    first, second = rehearsal.curators
    again = rehearsal.run(Terms(epsilon=2.0, sample_size=30, linkage="matched"))
    refused: list[tuple[SignedGrant, type[VeiltabError]]] = [
        (granted(rehearsal, again, 0), MismatchError),
        (regrant(whole, first, upload_digest=bytes(32)), MismatchError),
        (regrant(whole, first, attributes=("income",)), MismatchError),
        (regrant(whole, first, pads="one-time"), MismatchError),
        (regrant(whole, first, curator=rehearsal.researcher.party_id), MismatchError),
        (regrant(whole, second), SignatureError),
        (regrant(whole, rehearsal.server), SignatureError),
    ]
    for bad, error in refused:
        with pytest.raises(error):
            outcome.study.accept_grant(bad, now=0)
    assert served(rehearsal, outcome) == set()


def test_grants_wait_for_the_release() -> None:
    """Before it there is nothing to grant, and nothing to serve."""
    rehearsal, outcome = study()
    whole = granted(rehearsal, outcome, 0)
    early = rehearsal._open(outcome.contract.body).study
    with pytest.raises(StateError):
        early.accept_grant(whole, now=0)
    with pytest.raises(StateError):
        early.check_granted(rehearsal.researcher.party_id, [parts(outcome)["age"]], 0)
    with pytest.raises(StateError):
        early.check_researcher(rehearsal.researcher.party_id, 0)


def test_a_revoked_grant_serves_nothing_and_a_new_one_does() -> None:
    """Neither the old grant again nor its revocation again changes that."""
    rehearsal, outcome = study()
    curator = outcome.contexts[0].identity
    first = granted(rehearsal, outcome, 0, "smoker")
    other = granted(rehearsal, outcome, 1, "income")
    for each in (first, other):
        outcome.study.accept_grant(each, 0)
    everything = served(rehearsal, outcome)
    assert everything == {"smoker", "positions 0", "income", "positions 1"}
    for _ in range(2):
        outcome.study.accept_revocation(revoke(curator, first.body))
        assert served(rehearsal, outcome) == {"income", "positions 1"}
        with pytest.raises(StateError, match="was revoked"):
            outcome.study.accept_grant(first, 0)
    outcome.study.accept_grant(granted(rehearsal, outcome, 0, "smoker"), 0)
    assert served(rehearsal, outcome) == everything


def test_only_its_own_curator_revokes_a_grant() -> None:
    """Another curator cannot, under its own name or under the first one's; nor can the server."""
    rehearsal, outcome = study()
    first, second = (context.identity for context in outcome.contexts)
    made = granted(rehearsal, outcome, 0, "smoker")
    outcome.study.accept_grant(made, 0)
    with pytest.raises(MismatchError, match="another curator"):
        revoke(second, made.body)
    own = replace(GrantRevocation.of(made.body), curator=second.party_id)
    forged: list[tuple[GrantRevocation, PrivateIdentity, type[VeiltabError]]] = [
        (own, second, MismatchError),
        (GrantRevocation.of(made.body), second, SignatureError),
        (GrantRevocation.of(made.body), rehearsal.server, SignatureError),
        (GrantRevocation.of(made.body), rehearsal.researcher, SignatureError),
        (replace(GrantRevocation.of(made.body), study=bytes(32)), first, MismatchError),
        (replace(GrantRevocation.of(made.body), researcher=bytes(32)), first, MismatchError),
    ]
    for body, signer, error in forged:
        with pytest.raises(error):
            outcome.study.accept_revocation(sign(body, signer.signing))
    assert "smoker" in served(rehearsal, outcome)


def test_a_revocation_may_come_before_its_grant() -> None:
    """Then the grant is refused when it comes; an equal id of another curator is not."""
    rehearsal, outcome = study()
    first, second = (context.identity for context in outcome.contexts)
    made = granted(rehearsal, outcome, 0, "smoker")
    squatting = replace(GrantRevocation.of(made.body), curator=second.party_id)
    outcome.study.accept_revocation(sign(squatting, second.signing))
    outcome.study.accept_grant(made, 0)
    unsent = granted(rehearsal, outcome, 0, "age")
    outcome.study.accept_revocation(revoke(first, unsent.body))
    with pytest.raises(StateError, match="was revoked"):
        outcome.study.accept_grant(unsent, 0)
    assert "age" not in served(rehearsal, outcome)


def test_with_decoys_one_revocation_closes_a_matched_release() -> None:
    """It is served only while every curator's grant is good."""
    rehearsal = Simulator()
    outcome = rehearsal.run(terms("matched"))
    grants = [granted(rehearsal, outcome, place) for place in (0, 1)]
    for each in grants:
        outcome.study.accept_grant(each, 0)
    assert may_read(rehearsal, outcome)
    outcome.study.accept_revocation(revoke(outcome.contexts[1].identity, grants[1].body))
    assert not may_read(rehearsal, outcome)
    column = outcome.study.release().body.columns[0].chunks[0]
    with pytest.raises(NotGrantedError, match="a grant from every curator"):
        outcome.study.check_granted(rehearsal.researcher.party_id, [column], 0)
