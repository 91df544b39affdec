"""Aligning and preparing: when a curator encrypts its table, and when it does not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.studies import Staged, messages_of, pair, signed_by_all, stage
from veiltab.core.schema import Codes
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.linkage import token_order
from veiltab.errors import (
    AlignmentError,
    LinkageError,
    MismatchError,
    SchemaError,
    SignatureError,
)
from veiltab.roles.curator.ledger import Ledger
from veiltab.roles.curator.prepare import (
    align,
    check_alignment,
    make_tokens,
    prepare_sample,
    prepare_table,
)
from veiltab.roles.signatures import sign
from veiltab.simulation.protocol import Rehearsal, Terms
from veiltab.wire.alignment import Alignment
from veiltab.wire.contract import Stored
from veiltab.wire.signed import Signed

TERMS = Terms(epsilon=0.5, sample_size=20)
LEDGER = Ledger(dataset="patients", epsilon_limit=1.0)


def shared() -> tuple[Rehearsal, Staged, PrivateIdentity, PrivateIdentity]:
    """Return an open study and its two curators."""
    rehearsal = pair()
    first, second = rehearsal.curators
    return rehearsal, stage(rehearsal, TERMS), first, second


def alignments(rehearsal: Rehearsal, staged: Staged) -> list[Signed[Alignment]]:
    """Let every curator publish whom it holds."""
    parties = zip(rehearsal.curators, staged.tokens, strict=True)
    return [align(staged.contract, who, staged.secret, found) for who, found in parties]


def test_alignment() -> None:
    """Equal populations agree whatever the order of the rows; the counts are the answer."""
    rehearsal, staged, _, _ = shared()
    first, second = alignments(rehearsal, staged)
    assert first.body.digest == second.body.digest
    assert check_alignment(staged.contract, [first, second]) == 40
    assert check_alignment(staged.contract, [second, first]) == 40


@pytest.mark.parametrize(
    "change", [{"population": 41}, {"digest": bytes(32)}, {"population": 39, "digest": bytes(32)}]
)
@pytest.mark.parametrize("who", [0, 1])
def test_any_difference_stops_all(change: dict[str, Any], who: int) -> None:
    """In the count or in the digest, of the first curator or of the last."""
    rehearsal, staged, *_ = shared()
    held = alignments(rehearsal, staged)
    held[who] = sign(replace(held[who].body, **change), rehearsal.curators[who].signing)
    with pytest.raises(AlignmentError, match="do not hold the same respondents") as caught:
        check_alignment(staged.contract, held)
    count = change.get("population", 40)
    assert f"'curator {who + 1}' holds {count}" in caught.value.message


def test_every_curator_must_be_aligned_in_this_study() -> None:
    """A missing one, another study's, a stranger's, and one that another has signed."""
    rehearsal, staged, first, second = shared()
    one, two = alignments(rehearsal, staged)
    for missing in ([one], [two], [], [one, one]):
        with pytest.raises(AlignmentError, match="has not said"):
            check_alignment(staged.contract, missing)
    other = sign(replace(two.body, study=bytes(32)), second.signing)
    with pytest.raises(MismatchError, match="another study"):
        check_alignment(staged.contract, [one, other])
    with pytest.raises(SignatureError):
        check_alignment(staged.contract, [one, sign(two.body, first.signing)])
    stranger = replace(two.body, curator=rehearsal.researcher.party_id)
    with pytest.raises(MismatchError, match="is no curator"):
        check_alignment(staged.contract, [one, two, sign(stranger, rehearsal.researcher.signing)])


def test_the_table_that_is_prepared_is_the_one_that_was_aligned() -> None:
    """Fewer rows, or as many of other people, are refused before anything is encrypted."""
    rehearsal, staged, *_ = shared()
    held = alignments(rehearsal, staged)
    desk, codes = staged.outcome.desks[0], rehearsal.holdings[0].codes
    signed, found = staged.outcome.contract, staged.tokens[0]
    with pytest.raises(MismatchError, match="40 respondents, and not of the table's 39"):
        prepare_sample(desk, signed, found[:-1], codes, held, secret=staged.secret)
    others = found ^ np.uint8(1)
    with pytest.raises(MismatchError, match="40 respondents, and not of the table's 40"):
        prepare_sample(desk, signed, others, codes, held, secret=staged.secret)
    assert not len(staged.outcome.received)


def test_repeated_respondents_are_refused() -> None:
    """With the rows in which they stand, counting from 1."""
    _, staged, *_ = shared()
    data = np.frombuffer(b"abcab", dtype=np.uint8)
    with pytest.raises(LinkageError, match=r"4 rows share an id .* rows 1, 2, 4, 5"):
        make_tokens(staged.contract, staged.secret, data, np.arange(6))
    ids = messages_of(range(12))
    assert len(make_tokens(staged.contract, staged.secret, ids.data, ids.offsets)) == 12


def test_tokens_are_bound_to_the_study() -> None:
    """The same respondents under the same secret: other tokens, and another order, elsewhere."""
    _, staged, *_ = shared()
    other = replace(staged.contract, title="another study")
    ids = messages_of(range(100))
    here, there = (
        make_tokens(contract, staged.secret, ids.data, ids.offsets)
        for contract in (staged.contract, other)
    )
    assert not {row.tobytes() for row in here} & {row.tobytes() for row in there}
    assert token_order(here).tolist() != token_order(there).tolist()


def test_the_way_is_the_contracts() -> None:
    """A sample where the server samples, a table where curators do, either for stored tables."""
    rehearsal, staged, *_ = shared()
    held = alignments(rehearsal, staged)
    found, codes = staged.tokens[0], rehearsal.holdings[0].codes
    desk, signed = staged.outcome.desks[0], staged.outcome.contract
    with pytest.raises(MismatchError, match="the curators sample"):
        prepare_table(desk, signed, found, codes)
    server = replace(staged.contract, sampling=replace(staged.contract.sampling, by="server"))
    stored = replace(server, stored=Stored(bytes(32), (bytes(32), bytes(32))))
    for other, way in ((server, "the server sample$"), (stored, "from stored tables")):
        with pytest.raises(MismatchError, match=way):
            prepare_sample(
                desk,
                signed_by_all(rehearsal, other),
                found,
                codes,
                held,
                secret=staged.secret,
            )
    with pytest.raises(MismatchError, match="from stored tables"):
        prepare_table(desk, signed_by_all(rehearsal, stored), found, codes)
    assert not len(staged.outcome.received)


def test_nothing_is_prepared_before_all_have_signed() -> None:
    """One signature of two is not a contract."""
    rehearsal, staged, *_ = shared()
    held = alignments(rehearsal, staged)
    found, codes = staged.tokens[0], rehearsal.holdings[0].codes
    half = Signed(staged.contract, staged.outcome.contract.signatures[:1])
    with pytest.raises(SignatureError):
        prepare_sample(staged.outcome.desks[0], half, found, codes, held, secret=staged.secret)
    table = stage(rehearsal, replace(TERMS, sampler="server"))
    half = Signed(table.contract, table.outcome.contract.signatures[1:])
    with pytest.raises(SignatureError):
        prepare_table(table.outcome.desks[0], half, table.tokens[0], codes)
    assert not len(staged.outcome.received)
    assert not len(table.outcome.received)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda codes: codes[:1],
        lambda codes: [*codes, codes[0]],
        lambda codes: [codes[0][:-1], codes[1]],
        lambda codes: [codes[0], np.append(codes[1], codes[1][:1])],
        lambda codes: [codes[0], codes[1] + np.uint8(1)],
        lambda codes: [codes[0].astype(np.float64), codes[1]],
    ],
    ids=["a column less", "one more", "a row less", "a row more", "a code too large", "floats"],
)
def test_codes_must_be_the_attributes(spoil: Any) -> None:  # noqa: ANN401 - a spoiler of lists
    """In the group any number has a place, so a wrong code would become another category."""
    rehearsal, staged, *_ = shared()
    codes: list[Codes] = spoil(list(rehearsal.holdings[0].codes))
    held = alignments(rehearsal, staged)
    with pytest.raises(SchemaError):
        prepare_sample(
            staged.outcome.desks[0],
            staged.outcome.contract,
            staged.tokens[0],
            codes,
            held,
            secret=staged.secret,
        )
    server = stage(rehearsal, replace(TERMS, sampler="server"))
    with pytest.raises(SchemaError):
        prepare_table(server.outcome.desks[0], server.outcome.contract, server.tokens[0], codes)
    assert not len(staged.outcome.received)
    assert not len(server.outcome.received)
