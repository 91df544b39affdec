"""A pad never meets two plaintexts: everything that a curator can prepare, tried against it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tests.support.chunks import read_column, write_positions
from tests.support.simulator import LocalStudy, Simulator, holding
from veiltab.core.mechanism import LinkageMode
from veiltab.core.schema import Codes
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.pads import StreamPad
from veiltab.errors import StateError
from veiltab.protocol.curator.upload import Prepared, align, prepare_sample, prepare_table
from veiltab.protocol.in_process import Holding, Terms, take_in
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.verify import sign
from veiltab.wire.contract import PadMode
from veiltab.wire.messages import Repad, Upload

ROWS, SIZE = 600, 97
SIZES = {"left": SIZE, "right": SIZE}
"""Two attributes of the same size: their pads must differ as well."""

modes = pytest.mark.parametrize("mode", ["stream", "one-time"])
AnyPrepared = Prepared[Upload] | Prepared[Repad]


def curator(seed: int = 1) -> Simulator:
    """Return one curator with a table of its own."""
    return Simulator(
        holdings=[holding(SIZES, range(ROWS))], entropy=CipherEntropy.from_seed(seed, "fresh pads")
    )


def table(codes: Sequence[Codes]) -> Holding:
    """Return the same respondents with other codes."""
    return replace(holding(SIZES, range(ROWS)), codes=codes)


def terms(mode: PadMode, linkage: LinkageMode = "aligned") -> Terms:
    """Sample everybody, so that every preparation has the same rows."""
    return Terms(epsilon=1.0, sample_size=ROWS, pads=mode, linkage=linkage)


def prepared(staged: LocalStudy, codes: Sequence[Codes]) -> Prepared[Upload]:
    """Prepare these codes for a study, through what a curator's program would call."""
    (context,), signed = staged.outcome.contexts, staged.outcome.contract
    intake = take_in(signed.body, staged.secret, table(codes), context.identity.party_id)
    if staged.contract.matched:
        return prepare_table(context, signed, intake, MemorySpool())
    aligned = [align(signed.body, context.identity, intake)]
    return prepare_sample(context, signed, intake, aligned)


def pads_of(made: AnyPrepared) -> list[Codes]:
    """Return the pads of both attributes."""
    return [made.pads.span(index, slice(0, ROWS)) for index in range(2)]


def assert_all_different(columns: Sequence[Codes]) -> None:
    """Fail if two pads agree in more rows than chance allows: 6 standard deviations."""
    chance = 1 / SIZE
    most = ROWS * (chance + 6 * (chance * (1 - chance) / ROWS) ** 0.5)
    for left, right in combinations(columns, 2):
        assert int((left == right).sum()) < most


@modes
@pytest.mark.parametrize("linkage", ["aligned", "matched"])
def test_two_preparations_share_no_pad(mode: PadMode, linkage: LinkageMode) -> None:
    """The same data for the same study twice: another id, other pads, other ciphertext."""
    rehearsal = curator()
    staged = rehearsal.study(terms(mode, linkage))
    (one,), (two,) = staged.prepare(), staged.prepare()
    assert one.message.body.upload_id != two.message.body.upload_id
    assert_all_different([*pads_of(one), *pads_of(two)])
    attributes = rehearsal.holdings[0].attributes
    columns = [
        read_column(column.chunks, attribute, ROWS, staged.outcome.received)
        for made in (one, two)
        for attribute, column in zip(attributes, made.message.body.columns, strict=True)
    ]
    assert_all_different(columns)


@modes
def test_nothing_that_a_curator_can_do_repeats_a_pad(mode: PadMode) -> None:
    """Other data, other studies, both architectures, a vault, and new pads for stored rows."""
    rehearsal = curator()
    own = rehearsal.holdings[0].codes
    other = [((column + 1) % SIZE).astype(column.dtype) for column in own]
    made: list[AnyPrepared] = []
    for linkage in ("aligned", "matched", "aligned"):
        staged = rehearsal.study(terms(mode, "matched" if linkage == "matched" else "aligned"))
        made += [prepared(staged, codes) for codes in (own, other, own)]
    deposit = rehearsal.deposit()
    vault = deposit.vault
    context = staged.outcome.contexts[0]
    intake = take_in(vault.body, deposit.secret, table(other), context.identity.party_id)
    again = prepare_table(context, vault, intake, MemorySpool())
    made.append(again)
    for _ in range(2):
        contract = rehearsal.stored_contract(terms(mode, "matched"), deposit)
        outcome = rehearsal._open(contract)
        stored = deposit.stored[0]
        (request,) = outcome.study.draw_from(vault, [stored.upload], deposit.tables).values()
        answer = stored.repad(outcome.contexts[0], outcome.contract, request, outcome.received)
        made.append(answer)
        rows = write_positions(np.arange(ROWS), outcome.received)
        forced = sign(replace(request.body, positions=rows), rehearsal.server.signing)
        with pytest.raises(StateError):  # the same new pads for other rows
            stored.repad(outcome.contexts[0], outcome.contract, forced, outcome.received)
        same = stored.repad(outcome.contexts[0], outcome.contract, request, outcome.received)
        assert same.message == answer.message
    assert len(made) == 12
    kept = [StreamPad(key, SIZE).rows(0, ROWS) for key in deposit.stored[0]._pads.keys]
    assert_all_different([*kept, *(pad for each in made for pad in pads_of(each))])
    assert len({each.pads.upload_id for each in made}) == len(made)
    assert len({each.pads.material([0]) for each in made}) == len(made)


@modes
def test_the_server_never_holds_two_ciphertexts_of_one_upload(mode: PadMode) -> None:
    """A second preparation is not taken in the place of the first, whatever was changed."""
    rehearsal = curator()
    staged = rehearsal.study(terms(mode))
    first = prepared(staged, rehearsal.holdings[0].codes)
    staged.outcome.study.upload(first.message)
    second = prepared(staged, rehearsal.holdings[0].codes)
    renamed = replace(second.message.body, upload_id=first.message.body.upload_id)
    for message in (second.message, sign(renamed, rehearsal.curators[0].signing)):
        with pytest.raises(StateError, match="another upload already"):
            staged.outcome.study.upload(message)


def test_a_repeated_source_of_randomness_gives_other_pads_in_another_study() -> None:
    """Should a machine be restored with old entropy: stream keys are bound to the study."""
    rehearsal = curator()
    made = []
    for _ in range(2):
        staged = rehearsal.study(terms("stream"))
        restored = CipherEntropy.from_seed(1, "a snapshot of the machine")
        staged.outcome.contexts = [replace(staged.outcome.contexts[0], entropy=restored)]
        made.append(prepared(staged, rehearsal.holdings[0].codes))
    assert made[0].pads.upload_id == made[1].pads.upload_id
    assert_all_different([pad for each in made for pad in pads_of(each)])
