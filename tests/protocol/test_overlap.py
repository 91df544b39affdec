"""Overlap counts by the roles alone: what is counted, told, refused and forgotten."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.support.overlaps import (
    ROUND,
    counters,
    decoy_numbers,
    decoys_in_common,
    overlap_terms,
    planned_terms,
)
from tests.support.simulator import LocalStudy, Simulator, Stage, attribute, tokens_of
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric, WeightTable
from veiltab.core.overlap import OverlapEstimate
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import (
    AlignmentError,
    BudgetError,
    MalformedError,
    MismatchError,
    NotGrantedError,
    SignatureError,
)
from veiltab.protocol.curator.agreement import public_identity, sign_contract, unsigned
from veiltab.protocol.curator.grant import grant
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.curator.upload import align, check_alignment
from veiltab.protocol.in_process import LATER, Terms
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.verify import may_see_release, plan_for, sign, verify_overlap, verify_release
from veiltab.wire.contract import Contract, CuratorTerms, Linkage
from veiltab.wire.messages import Overlap
from veiltab.wire.states import State

TERMS = overlap_terms()
POPULATIONS = {
    "two that overlap": (range(60), range(40, 100)),
    "the same people": (range(50), range(50)),
    "nobody in common": (range(30), range(30, 60)),
    "one person": (range(80), [7]),
    "three": (range(60), range(20, 80), range(0, 100, 2)),
}


def counted(parties: Simulator, terms: Terms = TERMS) -> LocalStudy:
    """Take a count up to the upload of everybody."""
    return parties.study(terms, Stage.UPLOADED)


def taking_part(study: LocalStudy) -> int:
    """Count the people in common whose coin lets them take part, as a curator could not."""
    assert study.contract.overlap is not None
    coin = study.contract.overlap.coin_threshold
    tables = [set(map(bytes, tokens)) for tokens in study.tokens]
    common = set.intersection(*tables)
    return sum(int.from_bytes(token[:8], "big") < coin for token in common)


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_number_is_that_of_people_decoys_and_noise(name: str) -> None:
    """Exactly: those in common who take part, the decoys that all hold, and what is drawn."""
    parties = counters(*POPULATIONS[name])
    study = counted(parties)
    contract = study.contract
    expected = taking_part(study) + decoys_in_common(contract, study.secret)
    study.outcome.study._context = replace(
        study.outcome.study._context, entropy=CipherEntropy.from_seed(8, "noise")
    )
    told = study.outcome.study.count()
    noise = contract.overlap_plan.add_noise(0, CipherEntropy.from_seed(8, "noise"))
    assert told.body.number == expected + noise
    estimate = OverlapEstimate(expected + noise, contract.overlap_plan)
    assert verify_overlap(contract, told) == estimate
    assert told.body.uploads == tuple(prepared.message.digest for prepared in study.prepared)


def test_every_pattern_of_presence_has_decoys() -> None:
    """2ᵏ − 1 of them; a curator uploads those in whose pattern it is, and they match alike."""
    parties = counters(range(9), range(9, 18), range(18, 27), seed=3)
    study = counted(parties)
    numbers = decoy_numbers(study.contract, study.secret)
    patterns = [p for p in product((0, 1), repeat=3) if p != (1, 1, 1)]  # 1 is absence, last digit
    assert len(numbers) == len(patterns) == 7
    assert decoys_in_common(study.contract, study.secret) == numbers[0]
    for place, prepared in enumerate(study.prepared):
        coin = ROUND.coin_threshold
        people = sum(int.from_bytes(bytes(t)[:8], "big") < coin for t in study.tokens[place])
        own = sum(n for n, pattern in zip(numbers, patterns, strict=True) if not pattern[place])
        assert prepared.message.body.rows == people + own
        assert prepared.message.body.columns == ()


def test_the_number_is_drawn_once() -> None:
    """Asked again, and taken up again from what was kept, it is the same; noise is not redrawn."""
    study = counted(counters(range(50), range(20, 70)))
    server = study.outcome.study
    context, contract, uploads = server._context, server.contract, list(server.uploads.values())

    def again(entropy: CipherEntropy, **kept: Any) -> ServerStudy:
        state = State.RELEASED if kept else State.UPLOADED
        return ServerStudy.resume(
            replace(context, entropy=entropy), contract, state, uploads, **kept
        )

    first = again(CipherEntropy.from_seed(5, "key")).count()
    assert again(CipherEntropy.from_seed(5, "key")).count() == first
    assert again(CipherEntropy.from_seed(6, "other"), overlap=first).count() == first
    others = {
        again(CipherEntropy.from_seed(seed, "other")).count().body.number for seed in range(8)
    }
    assert len(others) > 1  # so the above says something


def test_tokens_are_deleted_once_the_number_is_told() -> None:
    """The server keeps the number, and nothing that it was counted from."""
    study = counted(counters(range(50), range(20, 70)))
    assert len(study.outcome.received) > 0
    study.outcome.study.finish()
    study.outcome.study.forget_unreleased()
    assert study.outcome.study.state is State.RELEASED
    assert len(study.outcome.received) == len(study.outcome.released) == 0


def test_tokens_of_two_counts_have_nothing_in_common() -> None:
    """Each has its own secret and its own key: a server cannot link it to another study."""
    parties = counters(range(200), range(200))
    first, second = counted(parties), counted(parties)
    tokens = [set(map(bytes, study.tokens[0])) for study in (first, second)]
    assert not tokens[0] & tokens[1]
    # Not even under the same secret: the study's id is in the key.
    same = tokens_of(second.contract, first.secret, parties.holdings[0].ids)
    assert not tokens[0] & set(map(bytes, same))


def test_a_count_has_no_rows_to_release_or_to_grant() -> None:
    """No release message, no grant, no plan of a table; its curators may see the number."""
    parties = counters(range(50), range(20, 70))
    study = counted(parties)
    contract, server = study.contract, study.outcome.study
    with pytest.raises(MismatchError, match="one number, and no rows"):
        server.release()
    server.finish()
    with pytest.raises(MismatchError, match="one number, and no rows"):
        server.check_researcher(parties.researcher.party_id, now=0)
    context, prepared = study.outcome.contexts[0], study.prepared[0]
    with pytest.raises(NotGrantedError, match="not a researcher"):
        grant(context, contract, prepared, public_identity(parties.researcher), expires=LATER)
    with pytest.raises(MismatchError, match="one number"):
        plan_for(contract, 50)
    assert may_see_release(contract, context.identity.party_id)


def test_a_release_of_rows_is_none_of_a_count() -> None:
    """A server that answers a count with rows, of whatever study, is refused."""
    rows = Simulator(curators=2).study(stage=Stage.RELEASED)
    count = counted(counters(range(5), range(5)))
    contract = replace(count.contract, server=rows.contract.server)
    with pytest.raises(MismatchError, match="does not belong"):
        verify_release(contract, rows.outcome.study.release())


def test_a_number_of_another_count_or_another_signer_is_refused() -> None:
    """The signature is the contract's server's, and the number is of this study."""
    parties = counters(range(50), range(20, 70))
    study = counted(parties)
    told = study.outcome.study.count()
    for other in (
        replace(told.body, study=bytes(32)),
        replace(told.body, uploads=(*told.body.uploads, bytes(32))),
    ):
        with pytest.raises(MismatchError, match="not of this overlap count"):
            verify_overlap(study.contract, sign(other, parties.server.signing))
    with pytest.raises(SignatureError, match="signed by"):
        verify_overlap(study.contract, sign(told.body, parties.curators[0].signing))


def test_decoys_left_out_are_found_before_anything_is_uploaded() -> None:
    """The curators compare keyed digests of the decoys, as in every study with decoys."""
    parties = counters(range(50), range(20, 70))
    study = parties.study(TERMS, Stage.OPEN)
    other = replace(ROUND, decoys=Geometric(DRAW_RANGE // 2 + 1))
    careless = parties.study(overlap_terms(other), Stage.OPEN)
    good = align(study.contract, parties.curators[0], study.intakes[0])
    assert good.body.population is None
    assert good.body.digest is None  # nobody is told whom, or how many, a curator holds
    digest = careless.intakes[1].decoy_digest
    bad = replace(good.body, curator=parties.curators[1].party_id, decoys=digest)
    with pytest.raises(AlignmentError, match="same decoys"):
        check_alignment(study.contract, [good, sign(bad, parties.curators[1].signing)])


def test_a_token_twice_ends_the_count() -> None:
    """Whether or not others hold it; no second upload can take its place."""
    parties = counters(range(50), range(20, 70))
    study = parties.study(TERMS, Stage.PREPARED)
    received = study.outcome.received
    body = study.prepared[0].message.body
    assert body.tokens is not None
    tokens = np.frombuffer(received.get(body.tokens[0]), dtype=np.uint8).reshape(-1, 16).copy()
    tokens[1] = tokens[0]
    twice = replace(body, tokens=(received.put(tokens.tobytes()),))
    study.outcome.study.upload(sign(twice, parties.curators[0].signing))
    study.outcome.study.upload(study.prepared[1].message)
    with pytest.raises(MismatchError, match="same token twice"):
        study.outcome.study.count()
    assert study.outcome.study.state is State.ABORTED


BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "values": ("attributes", {"attributes": (attribute("smoker", 2),)}),
    "aligned": ("linkage", {"linkage": Linkage.by_ids()}),
    "by rows": ("linkage", {"linkage": Linkage.by_rows("matched")}),
    "any researcher": ("researchers", {"researchers": None}),
    "delta": ("delta", {"delta": 1e-6}),
    "population": ("population", {"population": 10}),
    "one-time pads": ("pads", {"pads": "one-time"}),
    "another accounting": ("accounting", {"accounting": "decoys-1"}),
    "a smaller epsilon": ("mechanism", {"epsilon": 0.4}),
    "a certain coin": ("mechanism", {"mechanism": replace(ROUND, coin_threshold=DRAW_RANGE)}),
    "too little noise": (
        "mechanism",
        {"mechanism": replace(ROUND, noise_threshold=ROUND.noise_threshold - 1)},
    ),
    "a law that ends": (
        "mechanism",
        {"mechanism": replace(ROUND, decoys=WeightTable((DRAW_RANGE,)))},
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_contract_that_tells_more_cannot_exist(name: str) -> None:
    """Whatever would have values, several answers, or a broken promise."""
    path, changes = BAD[name]
    good, _ = counters(range(5), range(5)).propose(TERMS)
    if "attributes" in changes:
        first, *others = good.curators
        changes = {"curators": (CuratorTerms(first.identity, changes["attributes"]), *others)}
    with pytest.raises(MalformedError, match=path):
        replace(good, **changes)


def test_a_count_needs_another_curator() -> None:
    """Alone, there is nobody to have anybody in common with; with nine, too many patterns."""
    for curators in (1, 9):
        with pytest.raises(MalformedError, match="2 and 8 curators"):
            counters(*[range(5)] * curators).propose(TERMS)


def test_every_other_contract_still_needs_attributes() -> None:
    """An empty list of attributes is for overlap counts alone."""
    contract, _ = Simulator().propose()
    first, *others = contract.curators
    with pytest.raises(MalformedError, match=r"curators\[0\].attributes"):
        replace(contract, curators=(CuratorTerms(first.identity, ()), *others))


def test_a_smallest_population_is_not_asked_of_a_count() -> None:
    """It is about values of few people; the limits of ε hold."""
    parties = counters(range(5), range(5))
    contract, _ = parties.propose(TERMS)
    policy = Ledger(dataset="people", epsilon_limit=2.0, smallest_population=5_000)
    _, charged = sign_contract(unsigned(contract), parties.curators[0], policy)
    assert [entry.accounting for entry in charged.entries] == ["overlap-1"]
    with pytest.raises(BudgetError, match="exceeds what is left"):
        sign_contract(unsigned(contract), parties.curators[0], replace(policy, epsilon_limit=0.5))
    with pytest.raises(BudgetError, match="the most that the policy"):
        sign_contract(unsigned(contract), parties.curators[0], replace(policy, largest_epsilon=0.5))


def test_the_messages_survive_writing_and_reading() -> None:
    """Contract, upload and number are what they were."""
    study = counted(counters(range(50), range(20, 70)))
    told = study.outcome.study.count()
    assert Overlap.loads(told.dumps()) == told
    assert Contract.loads(study.outcome.contract.dumps()) == study.outcome.contract


@pytest.mark.slow
def test_estimates_come_out_right() -> None:
    """40 whole counts of 200 people in common, at ε = 1.

    The mean of their errors is within 4.5 of its standard errors, and at least 33 intervals of 95%
    hold the truth: a correct program fails once in more than 10,000 seeds.
    """
    runs, people = 40, 200
    terms = planned_terms(people, 1.0)
    estimates = [
        counted(counters(range(300), range(100, 500), seed=seed), terms).outcome.study.count()
        for seed in range(runs)
    ]
    parties = counters(range(300), range(100, 500))
    plan = parties.propose(terms)[0].overlap_plan
    found = [OverlapEstimate(told.body.number, plan) for told in estimates]
    errors = [estimate.unbiased - people for estimate in found]
    assert abs(np.mean(errors)) < 4.5 * plan.standard_error(people) / runs**0.5
    held = [low <= people <= high for low, high in (e.interval() for e in found)]
    assert sum(held) >= 33
