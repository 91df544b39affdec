"""What parties refuse where there are decoys: before an upload, at the server, and at the end."""

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import pytest

from tests.support.decoys import decoy_terms, terms
from tests.support.messages import filler
from tests.support.simulator import LocalStudy, Simulator, Stage, tokens_of
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric, LinkageMode
from veiltab.core.privacy import expm1_below
from veiltab.errors import (
    AlignmentError,
    MalformedError,
    MismatchError,
    NotGrantedError,
    PromiseError,
    SignatureError,
    StateError,
)
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.upload import (
    align,
    check_alignment,
    needs_alignment,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.in_process import LATER, Terms, take_in
from veiltab.protocol.researcher import open_access, publication
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.verify import (
    may_see_release,
    plan_for,
    sign,
    verify_publication,
    verify_release,
)
from veiltab.wire.contract import Stored
from veiltab.wire.mechanism import DecoyTerms, PaperTerms
from veiltab.wire.messages import Alignment, Release, SignedGrant
from veiltab.wire.packing import chunk_count
from veiltab.wire.signed import Signed

LINKAGES: tuple[LinkageMode, ...] = ("aligned", "matched")
linkages = pytest.mark.parametrize("linkage", LINKAGES)


def opened(linkage: LinkageMode, **changes: Any) -> tuple[Simulator, LocalStudy]:
    """Return an open study with decoys."""
    rehearsal = Simulator()
    return rehearsal, rehearsal.study(terms(linkage, **changes))


def alignments(rehearsal: Simulator, staged: LocalStudy) -> list[Signed[Alignment]]:
    """Let every curator say what it holds."""
    parties = zip(rehearsal.curators, staged.intakes, strict=True)
    return [align(staged.contract, who, intake) for who, intake in parties]


def test_an_alignment_says_what_the_contract_asks_for() -> None:
    """Nobody is told how many respondents a curator holds where the server matches."""
    for linkage, mechanism, stated in (
        ("aligned", None, (True, True, False)),
        ("aligned", decoy_terms(), (True, True, True)),
        ("matched", decoy_terms(), (False, False, True)),
    ):
        rehearsal, staged = opened(linkage, mechanism=mechanism)  # type: ignore[arg-type]
        assert needs_alignment(staged.contract)
        held = alignments(rehearsal, staged)
        for signed in held:
            body = signed.body
            present = tuple(x is not None for x in (body.digest, body.population, body.decoys))
            assert present == stated
        population = 40 if stated[1] else None
        assert check_alignment(staged.contract, held) == population
    _, staged = opened("matched", mechanism=None)
    assert not needs_alignment(staged.contract)


@linkages
@pytest.mark.parametrize("who", [0, 1])
def test_other_decoys_stop_all(linkage: LinkageMode, who: int) -> None:
    """A curator whose program left decoys out, or who has another secret, is found."""
    rehearsal, staged = opened(linkage)
    held = alignments(rehearsal, staged)
    signing = rehearsal.curators[who].signing
    held[who] = sign(replace(held[who].body, decoys=filler("other")), signing)
    with pytest.raises(AlignmentError, match="not invented the same decoys") as caught:
        check_alignment(staged.contract, held)
    assert "'curator 1'; 'curator 2' differ" in caught.value.message
    assert "secret" in caught.value.hint
    prepare = prepare_sample if linkage == "aligned" else _prepare_table
    with pytest.raises(AlignmentError, match="not invented the same decoys"):
        prepare(staged.outcome.contexts[0], staged.outcome.contract, staged.intakes[0], held)
    assert not len(staged.outcome.received)


def _prepare_table(context: Any, signed: Any, intake: Any, held: Any) -> object:  # noqa: ANN401
    return prepare_table(context, signed, intake, MemorySpool(), held)


@linkages
def test_the_form_of_an_alignment_is_the_contracts(linkage: LinkageMode) -> None:
    """More than was asked for would tell a secret, and less would compare nothing."""
    rehearsal, staged = opened(linkage)
    first, second = alignments(rehearsal, staged)
    tells = {"digest": filler("x"), "population": 40}
    forms: tuple[dict[str, Any], ...] = (
        {"decoys": None, **tells},
        tells if linkage == "matched" else {"digest": None, "population": None},
    )
    for change in forms:
        other = sign(replace(second.body, **change), rehearsal.curators[1].signing)
        with pytest.raises(MismatchError, match="not of the form"):
            check_alignment(staged.contract, [first, other])


def test_without_decoys_an_alignment_has_no_digest_of_them() -> None:
    """The paper's mechanism has nothing to compare there."""
    rehearsal, staged = opened("aligned", mechanism=None)
    first, second = alignments(rehearsal, staged)
    other = sign(replace(second.body, decoys=filler("x")), rehearsal.curators[1].signing)
    with pytest.raises(MismatchError, match="not of the form"):
        check_alignment(staged.contract, [first, other])


@linkages
def test_a_table_is_prepared_with_the_decoys_that_were_compared(linkage: LinkageMode) -> None:
    """Another secret gives other decoys; all alignments agree, and the table does not."""
    rehearsal, staged = opened(linkage)
    held = alignments(rehearsal, staged)
    me = rehearsal.curators[0].party_id
    other = take_in(staged.contract, filler("another secret"), rehearsal.holdings[0], me)
    prepare = prepare_sample if linkage == "aligned" else _prepare_table
    with pytest.raises(MismatchError, match="the alignment was of"):
        prepare(staged.outcome.contexts[0], staged.outcome.contract, other, held)
    if linkage == "matched":
        with pytest.raises(AlignmentError, match="has not said"):
            prepare(staged.outcome.contexts[0], staged.outcome.contract, staged.intakes[0], ())
    assert not len(staged.outcome.received)


@linkages
def test_a_message_in_front_of_the_others_does_not_stand_for_them(linkage: LinkageMode) -> None:
    """A server can put one before the real ones that fits the table, with anybody's name."""
    rehearsal, staged = opened(linkage)
    held = alignments(rehearsal, staged)
    me = rehearsal.curators[0]
    other = take_in(staged.contract, filler("another secret"), rehearsal.holdings[0], me.party_id)
    invented = replace(
        align(staged.contract, me, other).body, curator=rehearsal.curators[1].party_id
    )
    prepare = prepare_sample if linkage == "aligned" else _prepare_table
    with pytest.raises(MismatchError, match="the alignment was of"):
        prepare(
            staged.outcome.contexts[0],
            staged.outcome.contract,
            other,
            [sign(invented, me.signing), *held],
        )


def test_the_population_is_the_contracts_where_it_states_one() -> None:
    """Before anything is uploaded."""
    rehearsal, staged = opened("aligned", population=41)
    with pytest.raises(MismatchError, match="states 41 respondents, not 40"):
        check_alignment(staged.contract, alignments(rehearsal, staged))


def test_uploads_of_different_lengths_do_not_join() -> None:
    """Nobody is told the lengths; the study ends."""
    rehearsal, staged = opened("aligned")
    first, second = staged.prepare()
    fewer = replace(second.message.body, rows=second.message.body.rows - 1)
    study = staged.outcome.study
    study.upload(first.message)
    other = sign(fewer, rehearsal.curators[1].signing)
    study.take_upload(other)  # its packed chunks would not fit, which is another refusal
    with pytest.raises(MismatchError, match=r"the same number of rows$") as caught:
        study.release()
    assert not any(character.isdigit() for character in caught.value.message)
    assert study.state == "aborted"


def test_the_server_refuses_whoever_takes_no_part() -> None:
    """A program that uploads the whole table, without the coin, is found by its tokens."""
    rehearsal, staged = opened("matched")
    first, _ = staged.prepare()
    tokens = tokens_of(staged.contract, staged.secret, rehearsal.holdings[0].ids)
    high = tokens.view(">u8")[:, 0]
    body, store = first.message.body, staged.outcome.received
    sent = store.get((body.tokens or ())[0])
    whole = tokens[int(high.argmax())].tobytes() + sent[16:]
    forged = sign(replace(body, tokens=(store.put(whole),)), rehearsal.curators[0].signing)
    with pytest.raises(MismatchError, match="somebody who takes no part"):
        staged.outcome.study.upload(forged)
    staged.outcome.study.upload(first.message)


def test_the_server_refuses_an_implausible_number_of_rows() -> None:
    """An aligned upload of nearly nobody, or of many more than there can be."""
    rehearsal, staged = opened("aligned", mechanism=decoy_terms(DRAW_RANGE // 2), epsilon=2.0)
    first, _ = staged.prepare()
    for rows in (0, 1000):
        columns = tuple(
            replace(column, chunks=column.chunks[: chunk_count(rows)])
            for column in first.message.body.columns
        )
        changed = replace(first.message.body, rows=rows, columns=columns)
        with pytest.raises(MismatchError, match="another number of rows"):
            staged.outcome.study.upload(sign(changed, rehearsal.curators[0].signing))


def test_a_table_by_rank_has_rows() -> None:
    """Without decoys, no curator uploads an empty table."""
    rehearsal, staged = opened("matched", mechanism=None)
    first, _ = staged.prepare()
    body = first.message.body
    columns = tuple(replace(column, chunks=()) for column in body.columns)
    empty = replace(body, rows=0, columns=columns, tokens=())
    with pytest.raises(MismatchError, match="no rows"):
        staged.outcome.study.upload(sign(empty, rehearsal.curators[0].signing))


def released(linkage: LinkageMode, **changes: Any) -> tuple[Simulator, LocalStudy, Release]:
    """Return a released study."""
    rehearsal = Simulator()
    staged = rehearsal.study(terms(linkage, **changes), Stage.RELEASED)
    return rehearsal, staged, staged.outcome.study.release().body


@linkages
@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.6},
        {"epsilon": 0.7000000000000001},
        {"delta": 1e-6},
        {"accounting": "pure-1", "keep_threshold": 2**64 - 120, "population": 10**6},
        {"keep_threshold": 2**64 - 120},
    ],
)
def test_a_release_states_the_contracts_numbers(
    linkage: LinkageMode, change: dict[str, Any]
) -> None:
    """Promise, accounting and noise are the contract's."""
    rehearsal, staged, release = released(linkage)
    changed = sign(replace(release, **change), rehearsal.server.signing)
    with pytest.raises(PromiseError, match="other parameters than the contract"):
        verify_release(staged.contract, changed)


def test_a_release_says_the_population_exactly_where_it_is_known() -> None:
    """Where it is matched, nobody knows it; where it is aligned, everybody does."""
    for linkage, wrong in (("aligned", None), ("matched", 40)):
        rehearsal, staged, release = released(linkage)  # type: ignore[arg-type]
        changed = sign(replace(release, population=wrong), rehearsal.server.signing)
        with pytest.raises(PromiseError, match="other parameters"):
            verify_release(staged.contract, changed)
    rehearsal, staged, release = released("aligned", population=40)
    changed = sign(replace(release, population=41), rehearsal.server.signing)
    with pytest.raises(PromiseError, match="another number of respondents"):
        verify_release(staged.contract, changed)


@linkages
def test_an_implausible_number_of_rows_is_refused(linkage: LinkageMode) -> None:
    """A release of a large table without a single row: its decoys are missing."""
    law = Geometric(DRAW_RANGE * 9 // 10)
    rehearsal, staged, release = released(linkage, mechanism=decoy_terms(law=law))
    assert verify_release(staged.contract, sign(release, rehearsal.server.signing))[0] == release
    columns = tuple(replace(column, chunks=()) for column in release.columns)
    uploads = tuple(
        replace(each, positions=None if each.positions is None else ()) for each in release.uploads
    )
    empty = replace(release, rows=0, columns=columns, uploads=uploads)
    with pytest.raises(PromiseError, match="a release of 0 rows"):
        verify_release(staged.contract, sign(empty, rehearsal.server.signing))


def test_a_contract_that_breaks_its_promise_cannot_exist() -> None:
    """By one unit in the last place: of the coin, of the ratio, of ε."""
    contract, _ = Simulator().propose(terms())
    too_much = r"^mechanism: the coin .* spends more than epsilon"
    eta = expm1_below(contract.epsilon)
    coin = int(DRAW_RANGE * (eta / 2) / (1 + eta / 2))  # β = qη/(1 + qη), with q = ½
    ratio = ceil(Fraction(coin, DRAW_RANGE - coin) / eta * DRAW_RANGE)  # q = β/((1 − β)η)
    for mechanism in (decoy_terms(coin), decoy_terms(coin, Geometric(ratio))):
        assert replace(contract, mechanism=mechanism).decoys == mechanism
    for mechanism in (decoy_terms(coin + 1), decoy_terms(coin, Geometric(ratio - 1))):
        with pytest.raises(MalformedError, match=too_much):
            replace(contract, mechanism=mechanism)
    with pytest.raises(MalformedError, match=too_much):
        replace(contract, mechanism=decoy_terms(coin), epsilon=0.6999999999999999)


def test_stored_tables_have_no_decoys() -> None:
    """A server that sees rows in many studies could tell which are decoys."""
    contract, _ = Simulator().propose(terms("matched"))
    stored = Stored(filler("vault"), (filler("upload 0"), filler("upload 1")))
    with pytest.raises(MalformedError, match=r"^mechanism: stored tables have no decoys"):
        replace(contract, stored=stored)
    replace(contract, stored=stored, mechanism=PaperTerms(None), accounting="pure-1")


@pytest.mark.parametrize(
    ("linkage", "mechanism", "seen"),
    [
        ("matched", decoy_terms(), False),
        ("aligned", decoy_terms(), True),
        ("matched", None, True),
    ],
)
def test_curators_of_a_matched_study_see_no_release(
    linkage: LinkageMode, mechanism: DecoyTerms | None, *, seen: bool
) -> None:
    """They know the decoys, so the number of rows would tell them the overlap."""
    rehearsal = Simulator()
    contract, _ = rehearsal.propose(terms(linkage, mechanism=mechanism))
    for curator in rehearsal.curators:
        assert may_see_release(contract, curator.party_id) is seen
    assert may_see_release(contract, rehearsal.researcher.party_id)
    assert may_see_release(contract, rehearsal.server.party_id)


@linkages
def test_the_plan_is_the_contracts_alone(linkage: LinkageMode) -> None:
    """Whoever and however many the respondents are: only the population is filled in."""
    contract, _ = Simulator().propose(terms(linkage))
    plan = plan_for(contract, None if linkage == "matched" else 123)
    assert plan.population_size == (None if linkage == "matched" else 123)
    assert replace(plan, population_size=None) == contract.decoy_plan
    if linkage == "aligned":
        with pytest.raises(MismatchError, match="not known"):
            plan_for(contract, None)


def granted(linkage: LinkageMode = "aligned", **changes: Any) -> tuple[Simulator, LocalStudy, Any]:
    """Return a study whose server keeps all grants, and what the researcher publishes of it."""
    rehearsal = Simulator()
    staged = rehearsal.study(terms(linkage, **changes), Stage.GRANTED)
    study = staged.outcome.study
    for grant in staged.grants:
        study.accept_grant(grant, now=0)
    access = open_access(
        rehearsal.researcher, staged.outcome.contract, study.release(), staged.grants, now=0
    )
    signed = publication(access, rehearsal.researcher, ["income", "smoker"], filler("counts"))
    return rehearsal, staged, signed


@linkages
def test_a_publication_is_kept_once(linkage: LinkageMode) -> None:
    """The same again changes nothing, another one is refused, also after a restart."""
    rehearsal, staged, signed = granted(linkage)
    study, body = staged.outcome.study, signed.body
    assert (body.epsilon, body.attributes) == (0.7, ("income", "smoker"))
    assert body.release == study.release().digest
    study.accept_publication(signed, now=0)
    study.accept_publication(signed, now=LATER + 1)
    other = sign(replace(body, counts=filler("others")), rehearsal.researcher.signing)
    with pytest.raises(StateError, match="another copy"):
        study.accept_publication(other, now=0)
    resumed = type(study).resume(
        study._context,
        study.contract,
        study.state,
        release=study.release(),
        grants=staged.grants,
        publications=[signed],
    )
    with pytest.raises(StateError, match="another copy"):
        resumed.accept_publication(other, now=0)
    resumed.accept_publication(signed, now=0)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"study": bytes(32)}, MismatchError),
        ({"release": bytes(32)}, MismatchError),
        ({"attributes": ("nothing",)}, MismatchError),
        ({"epsilon": 0.8}, PromiseError),
        ({"epsilon": 0.6999999999999999}, PromiseError),
    ],
)
def test_a_publication_is_of_this_release(
    change: dict[str, Any], error: type[MismatchError]
) -> None:
    """Another study, release, attribute or noise than the contract's is refused."""
    rehearsal, staged, signed = granted()
    changed = sign(replace(signed.body, **change), rehearsal.researcher.signing)
    with pytest.raises(error):
        staged.outcome.study.accept_publication(changed, now=0)


def test_whoever_publishes_was_granted_it() -> None:
    """A stranger, a curator, an attribute that was not granted, and a grant that has expired."""
    rehearsal, staged, signed = granted()
    study, body = staged.outcome.study, signed.body
    curator = rehearsal.curators[0]
    by_curator = sign(replace(body, researcher=curator.party_id), curator.signing)
    with pytest.raises(NotGrantedError, match="cannot be its researcher"):
        study.accept_publication(by_curator, now=0)
    stranger = sign(replace(body, researcher=filler("stranger")), rehearsal.researcher.signing)
    with pytest.raises(NotGrantedError, match="no grant of yours"):
        study.accept_publication(stranger, now=0)
    with pytest.raises(NotGrantedError, match="no grant of yours"):
        study.accept_publication(signed, now=LATER)
    del study._grants[staged.grants[1].body.grant_id]
    with pytest.raises(NotGrantedError, match="covers 'income'"):
        study.accept_publication(signed, now=0)


@linkages
def test_one_curator_alone_cannot_let_somebody_see_whom_all_hold(linkage: LinkageMode) -> None:
    """It could be the curator itself, under another name; where it may see the release, so be it.

    An expired grant of the others does not count.
    """
    rehearsal, staged, _ = granted(linkage)
    study, researcher = staged.outcome.study, rehearsal.researcher.party_id
    held = study.release().body
    chunks = [held.columns[0].chunks[0], *(held.uploads[0].positions or ())[:1]]
    study.check_researcher(researcher, 0)
    study.check_granted(researcher, chunks, 0)
    other = staged.grants[1]
    late = replace(other.body, expires=1)
    for kept in (None, SignedGrant(sign(late, rehearsal.curators[1].signing), other.sealed)):
        study._grants.pop(other.body.grant_id, None)
        if kept is not None:
            study._grants[other.body.grant_id] = kept
        if linkage == "aligned":
            study.check_researcher(researcher, 2)
            study.check_granted(researcher, chunks, 2)
            continue
        with pytest.raises(NotGrantedError, match=r"every curator; .* from: curator 2$"):
            study.check_researcher(researcher, 2)
        with pytest.raises(NotGrantedError, match=r"every curator; .* from: curator 2$"):
            study.check_granted(researcher, chunks, 2)


def test_a_named_researcher_signs_with_its_own_key() -> None:
    """If the contract names the researcher, its key is known."""
    rehearsal, staged, signed = granted()
    named = replace(staged.contract, researchers=(public_identity(rehearsal.researcher),))
    release = staged.outcome.study.release()
    body = replace(signed.body, study=named.study_id)
    assert verify_publication(named, release, sign(body, rehearsal.researcher.signing)) == body
    with pytest.raises(SignatureError):
        verify_publication(named, release, sign(body, rehearsal.server.signing))


def test_by_the_papers_mechanism_a_published_copy_has_the_contracts_epsilon() -> None:
    """There is one promise only."""
    rehearsal = Simulator()
    staged = rehearsal.study(Terms(epsilon=1.5, sample_size=20), Stage.GRANTED)
    access = rehearsal.access(staged.outcome)
    signed = publication(access, rehearsal.researcher, ["age"], filler("counts"))
    assert signed.body.epsilon == 1.5
    assert verify_publication(staged.contract, access.signed, signed) == signed.body
