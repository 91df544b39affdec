"""Grants: what each one opens, and everything that a researcher refuses (spec 11)."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.simulator import Simulator, regrant, reseal, sanitized
from veiltab.core.schema import CountTable
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.sealing import seal
from veiltab.errors import (
    DigestError,
    ExpiredError,
    MalformedError,
    MismatchError,
    NotGrantedError,
    SchemaError,
    SealError,
    SignatureError,
)
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.grant import grant
from veiltab.protocol.in_process import Outcome, Terms
from veiltab.protocol.researcher import Access, count_records, decrypt, open_access
from veiltab.protocol.verify import seal_context
from veiltab.wire.contract import PadMode
from veiltab.wire.messages import SignedGrant

EXPIRES = 1_000
PADS: tuple[PadMode, ...] = ("stream", "one-time")
modes = pytest.mark.parametrize("mode", PADS)


def study(mode: PadMode = "stream", seed: int = 1) -> tuple[Simulator, Outcome]:
    """Return the ordinary study, released."""
    rehearsal = Simulator(seed=seed)
    terms = Terms(epsilon=2.0, sample_size=30, pads=mode, linkage="matched")
    return rehearsal, rehearsal.run(terms)


def granted(
    rehearsal: Simulator, outcome: Outcome, curator: int, attributes: Sequence[str] | None = None
) -> SignedGrant:
    """Let a curator grant attributes to the researcher."""
    to = public_identity(rehearsal.researcher)
    context, prepared = outcome.contexts[curator], outcome.prepared[curator]
    return grant(context, outcome.contract.body, prepared, to, attributes, expires=EXPIRES)


def opened(rehearsal: Simulator, outcome: Outcome, *grants: SignedGrant, now: int = 0) -> Access:
    """Let the researcher open these grants."""
    release = outcome.study.release()
    return open_access(rehearsal.researcher, outcome.contract, release, grants, now=now)


@modes
@pytest.mark.parametrize(("curator", "names"), [(0, ("smoker", "age")), (1, ("income", "region"))])
def test_one_curators_grant_gives_its_marginal(
    curator: int, names: tuple[str, ...], mode: PadMode
) -> None:
    """The table of that curator alone, which is the sum of the joint one over all others."""
    rehearsal, outcome = study(mode)
    joint = count_records(rehearsal.access(outcome), outcome.released)
    access = opened(rehearsal, outcome, granted(rehearsal, outcome, curator))
    own = count_records(access, outcome.released)
    assert own.schema.names == names
    marginal = CountTable(joint.schema, joint.counts).marginal(names)
    assert own.counts.tolist() == marginal.counts.tolist()


@modes
def test_asking_for_more_names_what_is_missing_and_whom_to_ask(mode: PadMode) -> None:
    """The joint table needs every curator; the error says which attributes and whose."""
    rehearsal, outcome = study(mode)
    access = opened(rehearsal, outcome, granted(rehearsal, outcome, 0, ["age"]))
    every = ["smoker", "age", "income", "region"]
    for ask in (count_records, lambda *a: list(decrypt(*a))):
        with pytest.raises(NotGrantedError) as caught:
            ask(access, outcome.released, every)
        message = caught.value.message
        assert "'smoker' (curator 1)" in message
        assert "'income' (curator 2)" in message
        assert "'region' (curator 2)" in message
        assert "'age'" not in message
        assert caught.value.hint.endswith("'age'")


@modes
def test_without_a_grant_nothing_decrypts(mode: PadMode) -> None:
    """Not one attribute, asked for or not."""
    rehearsal, outcome = study(mode)
    access = opened(rehearsal, outcome)
    for names in (None, ["age"], []):
        with pytest.raises(NotGrantedError):
            count_records(access, outcome.released, names)
        with pytest.raises(NotGrantedError):
            next(decrypt(access, outcome.released, names))
    with pytest.raises(NotGrantedError, match="age"):
        count_records(access, outcome.released)
    with pytest.raises(SchemaError, match="'shoe size'"):
        count_records(access, outcome.released, ["shoe size"])


@modes
def test_grants_of_single_attributes(mode: PadMode) -> None:
    """Attributes have separate pads: each grant opens its own, and together they open all."""
    rehearsal, outcome = study(mode)
    whole = sanitized(rehearsal.access(outcome), outcome.released)
    singles = [
        granted(rehearsal, outcome, curator, [name])
        for curator, names in enumerate((("smoker", "age"), ("income", "region")))
        for name in names
    ]
    for single, name in zip(singles, whole, strict=True):
        found = sanitized(opened(rehearsal, outcome, single), outcome.released)
        assert list(found) == [name]
        np.testing.assert_array_equal(found[name], whole[name])
    together = sanitized(opened(rehearsal, outcome, *singles[::-1]), outcome.released)
    assert list(together) == list(whole)


def test_attributes_are_granted_in_the_contracts_order() -> None:
    """However they are named; unknown ones, another curator's, and none at all are refused."""
    rehearsal, outcome = study()
    assert granted(rehearsal, outcome, 0, ["age", "smoker"]).body.attributes == ("smoker", "age")
    for names in (["income"], ["age", "shoe size"]):
        with pytest.raises(SchemaError, match="you have no attribute"):
            granted(rehearsal, outcome, 0, names)
    with pytest.raises(SchemaError, match="at least one attribute"):
        granted(rehearsal, outcome, 0, [])


def test_a_grant_ends_when_it_says() -> None:
    """Valid in the last second before it expires, and no longer from then on."""
    rehearsal, outcome = study()
    whole = granted(rehearsal, outcome, 0)
    opened(rehearsal, outcome, whole, now=EXPIRES - 1)
    for now in (EXPIRES, EXPIRES + 1, 2**40):
        with pytest.raises(ExpiredError, match="'curator 1' has expired"):
            opened(rehearsal, outcome, whole, now=now)


def test_a_grant_of_another_study_is_refused() -> None:
    """Replayed as it is, or with a new signature that names this study: its seal stays bound."""
    rehearsal, outcome = study()
    other = rehearsal.run(Terms(epsilon=2.0, sample_size=30, linkage="matched"))
    replayed = granted(rehearsal, other, 0)
    with pytest.raises(MismatchError, match="another study"):
        opened(rehearsal, outcome, replayed)
    moved = regrant(
        replayed,
        rehearsal.curators[0],
        study=outcome.contract.body.study_id,
        upload_digest=outcome.prepared[0].message.digest,
    )
    with pytest.raises(SealError):
        opened(rehearsal, outcome, moved)


def test_a_grant_of_another_upload_is_refused() -> None:
    """The pads belong to one upload; the other curator's is another one too."""
    rehearsal, outcome = study()
    whole = granted(rehearsal, outcome, 0)
    for digest in (bytes(32), outcome.prepared[1].message.digest):
        with pytest.raises(MismatchError, match="another upload"):
            opened(rehearsal, outcome, regrant(whole, rehearsal.curators[0], upload_digest=digest))


def test_a_grant_of_another_researcher_is_refused() -> None:
    """As it is, and readdressed by the curator without sealing it anew."""
    rehearsal, outcome = study()
    whole = granted(rehearsal, outcome, 0)
    stranger = PrivateIdentity.create("stranger", CipherEntropy.from_seed(9, "stranger"))
    release = outcome.study.release()
    with pytest.raises(MismatchError, match="another researcher"):
        open_access(stranger, outcome.contract, release, [whole], now=0)
    readdressed = regrant(whole, rehearsal.curators[0], researcher=stranger.party_id)
    with pytest.raises(SealError):
        open_access(stranger, outcome.contract, release, [readdressed], now=0)


def test_only_the_contracts_researchers_are_granted_anything() -> None:
    """The curator does not seal, the stranger cannot open, and the server does not keep it."""
    rehearsal = Simulator()
    named = (public_identity(rehearsal.researcher),)
    terms = Terms(epsilon=2.0, sample_size=30)
    outcome = rehearsal.study(terms, researchers=named).finish()
    stranger = PrivateIdentity.create("stranger", CipherEntropy.from_seed(9, "stranger"))
    contract, release = outcome.contract, outcome.study.release()
    to = public_identity(stranger)
    with pytest.raises(NotGrantedError, match="is not a researcher"):
        grant(outcome.contexts[0], contract.body, outcome.prepared[0], to, expires=EXPIRES)
    with pytest.raises(NotGrantedError, match="is not a researcher"):
        open_access(stranger, contract, release, [], now=0)
    whole = granted(rehearsal, outcome, 0)
    opened(rehearsal, outcome, whole)
    forged = regrant(whole, rehearsal.curators[0], researcher=stranger.party_id)
    with pytest.raises(NotGrantedError, match="is not a researcher"):
        outcome.study.accept_grant(forged, now=0)


@modes
def test_a_header_has_no_pads(mode: PadMode) -> None:
    """What the server may have in one-time mode opens nothing."""
    rehearsal, outcome = study(mode)
    with pytest.raises(SealError, match="only a header"):
        opened(rehearsal, outcome, granted(rehearsal, outcome, 0).header())


def test_overlapping_grants_are_refused() -> None:
    """The same attribute from two grants: also if both are the same."""
    rehearsal, outcome = study()
    whole = granted(rehearsal, outcome, 0)
    single = granted(rehearsal, outcome, 0, ["age"])
    for grants in ((whole, single), (single, whole), (whole, whole)):
        with pytest.raises(MismatchError, match=r"'age'.* granted twice"):
            opened(rehearsal, outcome, *grants)


@modes
def test_tampered_pads_are_noticed(mode: PadMode) -> None:
    """Every byte of the sealed part counts: against the digest, and against the seal itself."""
    rehearsal, outcome = study(mode)
    whole = granted(rehearsal, outcome, 0)
    assert whole.sealed is not None
    for position in range(0, len(whole.sealed), 3):
        sealed = bytearray(whole.sealed)
        sealed[position] ^= 1 << position % 8
        with pytest.raises(DigestError):
            opened(rehearsal, outcome, SignedGrant(whole.signed, bytes(sealed)))
        with pytest.raises(SealError):
            opened(rehearsal, outcome, reseal(whole, rehearsal.curators[0], bytes(sealed)))
    for sealed_part in (b"", whole.sealed[:-1], whole.sealed + b"\x00"):
        with pytest.raises(SealError):
            opened(rehearsal, outcome, reseal(whole, rehearsal.curators[0], sealed_part))


@modes
def test_another_amount_of_pads_is_refused(mode: PadMode) -> None:
    """A curator who seals too little, too much or nonsense gives no access at all."""
    rehearsal, outcome = study(mode)
    whole = granted(rehearsal, outcome, 0)
    body = whole.body
    context = seal_context(body.study, body.curator, body.researcher, body.grant_id)
    right = outcome.prepared[0].pads.material([0, 1])
    wrong = [b"", right[:-1], right + b"\x00", right[: len(right) // 2]]
    if mode == "one-time":  # 64 bytes are always two keys, but not always pads
        wrong += [b"\xff" * len(right), right[:8] + b"\xff" * (len(right) - 8)]
    for material in wrong:
        sealed = seal(material, rehearsal.researcher.sealing.public, "grant", context)
        with pytest.raises(MalformedError):
            opened(rehearsal, outcome, reseal(whole, rehearsal.curators[0], sealed))


def test_pads_of_fewer_rows_than_the_upload_are_noticed() -> None:
    """One-time pads that do not reach a released position are no pads for it."""
    rehearsal, outcome = study("one-time")
    whole = granted(rehearsal, outcome, 0, ["smoker"])
    body = whole.body
    context = seal_context(body.study, body.curator, body.researcher, body.grant_id)
    for material in (bytes(8), (1).to_bytes(8, "big") + b"\x01"):  # no rows, and one row
        sealed = seal(material, rehearsal.researcher.sealing.public, "grant", context)
        access = opened(rehearsal, outcome, reseal(whole, rehearsal.curators[0], sealed))
        with pytest.raises(MismatchError, match="no pads for"):
            count_records(access, outcome.released)


def test_a_grant_must_fit_the_contract() -> None:
    """Signed by its curator, with the contract's pads, and its own attributes in order."""
    rehearsal, outcome = study()
    whole = granted(rehearsal, outcome, 0)
    first, second = rehearsal.curators
    with pytest.raises(SignatureError):
        opened(rehearsal, outcome, regrant(whole, second))
    with pytest.raises(MismatchError, match="is not a curator"):
        opened(rehearsal, outcome, regrant(whole, first, curator=rehearsal.researcher.party_id))
    for changes in (
        {"pads": "one-time"},
        {"attributes": ("age", "smoker")},
        {"attributes": ("income",)},
        {"attributes": ("smoker", "age", "shoe size")},
    ):
        with pytest.raises(MismatchError, match="does not fit the contract"):
            opened(rehearsal, outcome, regrant(whole, first, **changes))
