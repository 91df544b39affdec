"""Refusals: the server's problem documents as our errors, and nothing that harms a terminal."""

import json
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.answers import mocked
from tests.support.http_wire import FakeTime
from tests.support.messages import filler
from veiltab.errors import (
    ConnectionFailedError,
    StateError,
    UnauthenticatedError,
    VeiltabError,
)
from veiltab.party.answers import MAX_SHOWN, PROBLEM_TYPE, harmless, read_problem
from veiltab.party.connection import Retry

STUDY = filler("study")
RETRIED = {429, 503}


def classes(root: type[VeiltabError] = VeiltabError) -> Iterator[type[VeiltabError]]:
    """Yield every class of the error tree; other tests may have made some of their own."""
    if root.__module__ == "veiltab.errors":
        yield root
    for child in root.__subclasses__():
        yield from classes(child)


def refusal(status: int, problem: Any, **headers: str) -> VeiltabError:  # noqa: ANN401 - JSON
    """Return what a client raises if the server answers with this problem document."""

    def handler(_: httpx.Request) -> httpx.Response:
        content = json.dumps(problem).encode()
        return httpx.Response(
            status, content=content, headers={"Content-Type": PROBLEM_TYPE, **headers}
        )

    with pytest.raises(VeiltabError) as caught:
        mocked(handler, retry=Retry(attempts=1)).status(STUDY)
    return caught.value


@pytest.mark.parametrize("kind", list(classes()), ids=lambda kind: kind.__name__)
def test_every_error_of_the_tree_comes_back(kind: type[VeiltabError]) -> None:
    """With the server's words, and the class that the service raised."""
    error = refusal(
        kind.http_status, {"code": kind.code, "detail": "the detail", "hint": "the hint"}
    )
    if kind.http_status in RETRIED:
        assert type(error) is ConnectionFailedError
        assert "the detail" in error.message
        return
    assert type(error) is kind
    assert error.message == "the server says: the detail"
    assert error.hint == "the hint"


def test_unknown_codes_are_still_refusals() -> None:
    """A later server may have reasons that this client does not know."""
    error = refusal(409, {"code": "from_the_future", "detail": "the detail", "hint": "the hint"})
    assert type(error) is VeiltabError
    assert "the detail" in error.message


@pytest.mark.parametrize(
    "problem", [[], "text", None, {}, {"code": 7}, {"code": ["wrong_state"]}, {"detail": "x"}]
)
def test_what_is_no_problem_document(problem: object) -> None:
    """It has a code, or it is not ours."""
    assert isinstance(refusal(409, problem), ConnectionFailedError)


@pytest.mark.parametrize("field", ["detail", "hint"])
@pytest.mark.parametrize("value", [None, 7, "", "\x1b\x07", [], {"a": 1}])
def test_missing_words_are_replaced(field: str, value: object) -> None:
    """An error always says something, and what to do about it."""
    error = refusal(409, {"code": "wrong_state", "detail": "x", "hint": "y", field: value})
    assert type(error) is StateError
    assert len(error.hint) > 0
    assert len(error.message) > len("the server says: ")


def test_a_hostile_server_cannot_write_to_the_terminal() -> None:
    """No escape sequences, no other direction of text, no second line, and no novel."""
    evil = "ok\x1b[2J\x1b]0;title\x07\r\nerror: \u202eall is lost\u2028\x9b1m" + "x" * 10_000
    error = refusal(409, {"code": "wrong_state", "detail": evil, "hint": evil})
    for text in (error.message, error.hint):
        assert text.isprintable()
        assert "\u202e" not in text
        assert len(text) <= MAX_SHOWN + len("the server says: …")


@pytest.mark.slow
@given(text=st.text())
def test_any_text_is_made_harmless(text: str) -> None:
    """What is left is printable, not too long, and not empty."""
    shown = harmless(text, "nothing")
    assert shown.isprintable()
    assert 0 < len(shown) <= MAX_SHOWN + 1


@given(text=st.text(st.characters(categories=["L", "M", "N", "P", "S"]), min_size=1, max_size=200))
def test_plain_text_stays_as_it_is(text: str) -> None:
    """In any script."""
    assert harmless(text, "nothing") == text


@given(body=st.binary())
def test_garbage_is_no_problem_document(body: bytes) -> None:
    """Whatever the bytes are, nothing is raised."""
    assert read_problem(PROBLEM_TYPE, body) is None
    assert read_problem("text/html", b'{"code":"wrong_state"}') is None


DENIED = {"code": "unauthenticated", "detail": "too old", "hint": "sign it anew"}


@pytest.mark.parametrize(
    ("difference", "words"),
    [(3_600, "3,600 seconds ahead of"), (-7_200, "7,200 seconds behind"), (301, "ahead of")],
)
def test_clocks_that_differ_are_named(difference: int, words: str) -> None:
    """The most likely reason why a signature is refused, and one that people can put right."""
    date = formatdate(FakeTime().now - difference, usegmt=True)
    error = refusal(401, DENIED, Date=date)
    assert type(error) is UnauthenticatedError
    assert words in error.hint
    assert "clock" in error.hint


@pytest.mark.parametrize("date", [formatdate(FakeTime().now - 300, usegmt=True), "", "yesterday"])
def test_clocks_that_agree_are_not_blamed(date: str) -> None:
    """Nor those that nobody knows."""
    assert refusal(401, DENIED, Date=date).hint == "sign it anew"
    assert refusal(401, DENIED).hint == "sign it anew"


def test_only_refused_signatures_are_about_clocks() -> None:
    """Another refusal keeps its own hint."""
    date = formatdate(0, usegmt=True)
    error = refusal(409, {"code": "wrong_state", "detail": "x", "hint": "wait"}, Date=date)
    assert error.hint == "wait"
