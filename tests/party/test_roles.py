"""A step that is not one's own is refused, with who does it, and what one does oneself."""

from collections.abc import Callable
from unittest import mock

import pytest

from tests.support.messages import HOSPITAL, RESEARCHER, TAX_OFFICE, plain_contract
from veiltab.errors import NotFoundError, RoleError
from veiltab.party.study import Study
from veiltab.wire.contract import PublicIdentity
from veiltab.wire.signed import Signed

STEPS: dict[str, Callable[[Study], object]] = {
    "sign it": lambda study: study.sign(),
    "push a table to it": lambda study: study.push("table.csv"),
    "answer it": lambda study: study.answer(),
    "grant it to researchers": lambda study: study.grant("somebody"),
    "revoke grants": lambda study: study.revoke("somebody"),
    "end it": lambda study: study.abort("no need"),
    "read its number": lambda study: study.overlap(),
}


def study_of(me: PublicIdentity) -> Study:
    """Return a study as one of its parties sees it."""
    context = mock.MagicMock()
    context.home.public = me
    context.contract.return_value = Signed(plain_contract(researchers=(RESEARCHER,)), ())
    context.server.abort.side_effect = NotFoundError("no such study for you", hint="none")
    return Study(context, bytes(32))


@pytest.mark.parametrize("doing", STEPS)
def test_a_researcher_does_nothing_of_the_curators(doing: str) -> None:
    """Before anything is read, asked or charged; and it is told what it can do."""
    with pytest.raises(RoleError) as caught:
        STEPS[doing](study_of(RESEARCHER))
    curators = f"{HOSPITAL.identity.name!r}, {TAX_OFFICE.identity.name!r}"
    assert f" {doing}, and you are not one of them: {curators}" in caught.value.message
    assert caught.value.hint.startswith("as a researcher you wait for the curators to sign, push")


def test_a_study_that_is_not_there_is_not_there_for_a_curator() -> None:
    """Only what a researcher was told instead of its role is said in other words."""
    with pytest.raises(NotFoundError, match="no such study for you"):
        study_of(HOSPITAL.identity).abort("no need")


def test_a_check_is_for_curators_too() -> None:
    """With the words of a push, whose table it would be."""
    with pytest.raises(RoleError, match="push a table to it, and you are not one of them"):
        study_of(RESEARCHER).check("table.csv")


@pytest.mark.parametrize("step", ["estimate", "publish"])
def test_a_curator_estimates_nothing(step: str) -> None:
    """The contract names the researchers, and so does the message."""
    with pytest.raises(RoleError) as caught:
        getattr(study_of(HOSPITAL.identity), step)()
    assert f" estimate it, and you are not one of them: {RESEARCHER.name!r}" in caught.value.message
    assert caught.value.hint.startswith("as a curator you sign, push and grant")
