"""Aligning and preparing: when a curator encrypts its table, and when it does not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.simulator import PAIR, LocalStudy, Simulator, holding, messages_of, tokens_of
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import AlignmentError, MismatchError, SchemaError, SignatureError
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.curator.upload import align, check_alignment, prepare_sample, prepare_table
from veiltab.protocol.in_process import Terms, take_in
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.verify import sign
from veiltab.wire.contract import Stored
from veiltab.wire.messages import Alignment
from veiltab.wire.signed import Signed

TERMS = Terms(epsilon=0.5, sample_size=20)
LEDGER = Ledger(dataset="patients", epsilon_limit=1.0)


def shared() -> tuple[Simulator, LocalStudy, PrivateIdentity, PrivateIdentity]:
    """Return an open study and its two curators."""
    rehearsal = Simulator()
    first, second = rehearsal.curators
    return rehearsal, rehearsal.study(TERMS), first, second


def alignments(rehearsal: Simulator, staged: LocalStudy) -> list[Signed[Alignment]]:
    """Let every curator publish whom it holds."""
    parties = zip(rehearsal.curators, staged.intakes, strict=True)
    return [align(staged.contract, who, intake) for who, intake in parties]


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
    assert f"curator {who + 1}: {count}" in caught.value.message
    assert ("whose ids differ: curator 1 | curator 2" in caught.value.message) == (count == 40)


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
    with pytest.raises(MismatchError, match="is not a curator"):
        check_alignment(staged.contract, [one, two, sign(stranger, rehearsal.researcher.signing)])


def test_the_table_that_is_prepared_is_the_one_that_was_aligned() -> None:
    """Fewer rows, or as many of other people, are refused before anything is encrypted."""
    rehearsal, staged, *_ = shared()
    held = alignments(rehearsal, staged)
    context, signed = staged.outcome.contexts[0], staged.outcome.contract
    me = context.identity.party_id
    for ids, count in ((range(39), 39), (range(1, 41), 40)):
        intake = take_in(staged.contract, staged.secret, holding(PAIR[0], ids), me)
        match = f"40 respondents, and not of the table's {count}"
        with pytest.raises(MismatchError, match=match):
            prepare_sample(context, signed, intake, held)
    assert not len(staged.outcome.received)


def test_a_table_is_taken_in_for_one_study() -> None:
    """Tokens of another study, even under the same secret, would match nobody's."""
    rehearsal, staged, first, _ = shared()
    held = alignments(rehearsal, staged)
    context, signed = staged.outcome.contexts[0], staged.outcome.contract
    other = replace(staged.contract, title="another study")
    intake = take_in(other, staged.secret, rehearsal.holdings[0], first.party_id)
    with pytest.raises(MismatchError, match="for another study"):
        align(staged.contract, first, intake)
    with pytest.raises(MismatchError, match="for another study"):
        prepare_sample(context, signed, intake, held)
    server = rehearsal.study(replace(TERMS, linkage="matched"))
    with pytest.raises(MismatchError, match="for another study"):
        prepare_table(server.outcome.contexts[0], server.outcome.contract, intake, MemorySpool())
    assert not len(staged.outcome.received)
    assert not len(server.outcome.received)


def test_a_table_is_taken_in_by_the_curators_own_schema() -> None:
    """The attributes of another curator, or the same in another order, are refused."""
    rehearsal, staged, first, _ = shared()
    own = rehearsal.holdings[0]
    turned = replace(own, attributes=own.attributes[::-1], codes=own.codes[::-1])
    for table in (rehearsal.holdings[1], turned):
        with pytest.raises(SchemaError, match="the table was read as"):
            take_in(staged.contract, staged.secret, table, first.party_id)


def test_a_table_is_taken_in_by_the_curator_who_uploads_it() -> None:
    """Another curator's table is not encrypted under one's own name, in neither linkage."""
    rehearsal, staged, *_ = shared()
    held = alignments(rehearsal, staged)
    context, signed = staged.outcome.contexts[0], staged.outcome.contract
    with pytest.raises(MismatchError, match="for another curator"):
        prepare_sample(context, signed, staged.intakes[1], held)
    server = rehearsal.study(replace(TERMS, linkage="matched"))
    context, signed = server.outcome.contexts[0], server.outcome.contract
    with pytest.raises(MismatchError, match="for another curator"):
        prepare_table(context, signed, server.intakes[1], MemorySpool())
    assert not len(staged.outcome.received)
    assert not len(server.outcome.received)


def test_tokens_are_bound_to_the_study() -> None:
    """The same respondents under the same secret: other tokens, and another order, elsewhere."""
    _, staged, *_ = shared()
    other = replace(staged.contract, title="another study")
    ids = messages_of(range(100))
    here, there = (
        [token.tobytes() for token in tokens_of(contract, staged.secret, ids)]
        for contract in (staged.contract, other)
    )
    assert not set(here) & set(there)
    assert np.argsort(here).tolist() != np.argsort(there).tolist()


def test_the_way_is_the_contracts() -> None:
    """A sample where rows are matched, a table where they are aligned, either for stored tables."""
    rehearsal, staged, *_ = shared()
    held = alignments(rehearsal, staged)
    intake = staged.intakes[0]
    context, signed = staged.outcome.contexts[0], staged.outcome.contract
    with pytest.raises(MismatchError, match="the respondents are aligned"):
        prepare_table(context, signed, intake, MemorySpool())
    linkage = replace(staged.contract.linkage, mode="matched")
    matched = replace(staged.contract, linkage=linkage)
    stored = replace(matched, stored=Stored(bytes(32), (bytes(32), bytes(32))))
    for other, way in ((matched, "respondents are matched$"), (stored, "from stored tables")):
        with pytest.raises(MismatchError, match=way):
            prepare_sample(context, rehearsal.sign(other), intake, held)
    with pytest.raises(MismatchError, match="from stored tables"):
        prepare_table(context, rehearsal.sign(stored), intake, MemorySpool())
    assert not len(staged.outcome.received)


def test_nothing_is_prepared_before_all_have_signed() -> None:
    """One signature of two is not a contract."""
    rehearsal, staged, *_ = shared()
    held = alignments(rehearsal, staged)
    half = Signed(staged.contract, staged.outcome.contract.signatures[:1])
    with pytest.raises(SignatureError):
        prepare_sample(staged.outcome.contexts[0], half, staged.intakes[0], held)
    table = rehearsal.study(replace(TERMS, linkage="matched"))
    half = Signed(table.contract, table.outcome.contract.signatures[1:])
    with pytest.raises(SignatureError):
        prepare_table(table.outcome.contexts[0], half, table.intakes[0], MemorySpool())
    assert not len(staged.outcome.received)
    assert not len(table.outcome.received)
