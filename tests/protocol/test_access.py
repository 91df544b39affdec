"""What a researcher checks of contract and release before it decrypts anything (spec 11)."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.simulator import Simulator
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import LinkageMode
from veiltab.core.privacy import largest_keep_threshold
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import MessageError, MismatchError, PromiseError, SignatureError
from veiltab.protocol.in_process import Outcome, Terms
from veiltab.protocol.researcher import Access, open_access
from veiltab.protocol.verify import cosign, sign
from veiltab.wire.messages import Release
from veiltab.wire.signed import Signed


def study(linkage: LinkageMode = "aligned", **changes: Any) -> tuple[Simulator, Outcome]:
    """Return a released study whose contract has some fields changed."""
    rehearsal = Simulator()
    terms = Terms(epsilon=1.0, sample_size=20, linkage=linkage)
    return rehearsal, rehearsal.study(terms, **changes).finish()


def opened(
    rehearsal: Simulator,
    outcome: Outcome,
    release: Release | None = None,
    signer: PrivateIdentity | None = None,
) -> Access:
    """Open a release as the server, or somebody else, has signed it."""
    body = outcome.study.release().body if release is None else release
    signed = sign(body, (signer or rehearsal.server).signing)
    grants = rehearsal.grants(outcome)
    return open_access(rehearsal.researcher, outcome.contract, signed, grants, now=0)


def changed(release: Release, **changes: Any) -> Release:
    """Return the release with some fields changed."""
    return replace(release, **changes)


def test_the_release_as_it_is() -> None:
    """The plan is rebuilt from the release's own numbers, and keeps the promise to the last bit."""
    rehearsal, outcome = study()
    plan = opened(rehearsal, outcome).plan
    assert (plan.population_size, plan.sample_size, plan.epsilon) == (40, 20, 1.0)
    assert plan.keep_threshold == largest_keep_threshold(40, 20, 120, 1.0)


def test_a_threshold_that_breaks_the_promise_is_refused() -> None:
    """One step of the threshold too much, which is a part in 10^17, and nothing is decrypted."""
    rehearsal, outcome = study()
    release = outcome.study.release().body
    assert release.keep_threshold is not None
    for step in (1, 2, 10**6):
        better = replace(release, keep_threshold=release.keep_threshold + step * release.cells)
        with pytest.raises(PromiseError, match="does not keep its promise"):
            opened(rehearsal, outcome, better)
    almost_no_noise = replace(release, keep_threshold=DRAW_RANGE - release.cells)
    with pytest.raises(PromiseError):
        opened(rehearsal, outcome, almost_no_noise)


def test_more_noise_than_promised_is_allowed() -> None:
    """A server may add noise: it costs accuracy, which the plan shows, and no privacy."""
    rehearsal, outcome = study()
    release = outcome.study.release().body
    assert release.keep_threshold is not None
    noisier = replace(release, keep_threshold=release.keep_threshold - release.cells)
    assert opened(rehearsal, outcome, noisier).plan.keep_threshold == noisier.keep_threshold


def test_the_promise_is_that_of_the_release_size() -> None:
    """A threshold that is right for a larger population is wrong for the stated one."""
    rehearsal, outcome = study()
    release = outcome.study.release().body
    for population in (39, 20):
        with pytest.raises(PromiseError):
            opened(rehearsal, outcome, replace(release, population=population))


@pytest.mark.parametrize(
    "changes", [{"epsilon": 1.0000000000000002}, {"epsilon": 0.5}, {"epsilon": 50.0}]
)
def test_the_release_states_the_contracts_epsilon(changes: dict[str, Any]) -> None:
    """Whatever threshold stands beside it."""
    rehearsal, outcome = study()
    release = changed(outcome.study.release().body, **changes)
    with pytest.raises(PromiseError, match="other parameters than the contract"):
        opened(rehearsal, outcome, release)


def test_the_sizes_are_the_contracts_where_it_names_them() -> None:
    """A larger population would allow less noise; a contract that names n pins it down."""
    rehearsal, outcome = study(population=40)
    release = outcome.study.release().body
    opened(rehearsal, outcome, release)
    for changes in ({"population": 41}, {"rows": 19}, {"rows": 21}):
        with pytest.raises(PromiseError, match="other parameters than the contract"):
            opened(rehearsal, outcome, changed(release, **changes))


def test_a_release_belongs_to_its_contract() -> None:
    """Another study's, with other curators, other cells, or other columns, is refused."""
    rehearsal, outcome = study()
    release = outcome.study.release().body
    first, second = release.uploads
    columns = release.columns
    renamed = (replace(columns[0], attribute="shoe size"), *columns[1:])
    positions = tuple(replace(u, positions=columns[0].chunks) for u in release.uploads)
    for changes in (
        {"study": bytes(32)},
        {"cells": 60},
        {"cells": 240},
        {"uploads": (second, first)},
        {"uploads": (first,)},
        {"uploads": positions},
        {"columns": columns[::-1]},
        {"columns": columns[:-1]},
        {"columns": renamed},
    ):
        threshold = DRAW_RANGE - 240 * 2**56  # one that fits any of these numbers of cells
        with pytest.raises(MismatchError):
            opened(rehearsal, outcome, changed(release, keep_threshold=threshold, **changes))


def test_positions_stand_where_the_server_sampled_afresh_and_nowhere_else() -> None:
    """Without them the pads of other rows would be subtracted, and nobody would notice."""
    rehearsal, outcome = study("matched")
    release = outcome.study.release().body
    without = tuple(replace(upload, positions=None) for upload in release.uploads)
    with pytest.raises(MismatchError, match="does not belong to the contract"):
        opened(rehearsal, outcome, replace(release, uploads=without))


def test_only_the_server_signs_releases() -> None:
    """Not a curator, nor the researcher."""
    rehearsal, outcome = study()
    for signer in (*rehearsal.curators, rehearsal.researcher):
        with pytest.raises(SignatureError):
            opened(rehearsal, outcome, signer=signer)


def test_every_curator_must_have_signed_the_contract() -> None:
    """A missing signature, or one too many, or none at all."""
    rehearsal, outcome = study()
    contract, release = outcome.contract, outcome.study.release()
    grants = rehearsal.grants(outcome)
    for signed in (
        Signed(contract.body, contract.signatures[:1]),
        Signed(contract.body, contract.signatures[1:]),
        Signed(contract.body, ()),
        cosign(contract, rehearsal.server.signing),
    ):
        with pytest.raises(SignatureError):
            open_access(rehearsal.researcher, signed, release, grants, now=0)


def test_a_release_of_a_twin_study_is_refused() -> None:
    """The same parties, terms and data: only the nonce differs, and with it everything."""
    rehearsal, outcome = study()
    twin = rehearsal.study(Terms(epsilon=1.0, sample_size=20)).finish()
    release = twin.study.release()
    with pytest.raises(MessageError):
        open_access(rehearsal.researcher, outcome.contract, release, [], now=0)
    with pytest.raises(MessageError):
        open_access(rehearsal.researcher, twin.contract, release, rehearsal.grants(outcome), now=0)
