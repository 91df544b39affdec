"""The words of this field, and what they mean in a few plain ones."""

from tests.support.documents import ROOT
from tests.support.explained import JARGON
from veiltab.report.glossary import WORDS, meanings

PAGE = (ROOT / "docs" / "glossary.md").read_text("utf-8").lower()


def test_every_word_that_readers_stumble_over_is_there() -> None:
    """Each once, on one line of a narrow terminal; the glossary page says more of it."""
    assert {word.name for word in WORDS} == set(JARGON)
    assert len({word.meaning for word in WORDS}) == len(WORDS)
    longest = max(len(word.name) for word in WORDS)
    for word in WORDS:
        assert longest + 3 + len(word.meaning) <= 80, word.name
        assert word.is_in(word.name)
        assert word.is_in(PAGE), word.name


def test_what_a_text_says_itself_is_not_said_again() -> None:
    """Nor what was said before; and the words of an explanation are explained."""
    (coin,) = (word for word in WORDS if word.name == "coin")
    assert list(meanings("kept by a coin")) == ["coin"]
    assert meanings(f"kept by a coin,\n{coin.meaning}") == {}
    assert meanings("kept by a coin", {"coin"}) == {}
    assert list(meanings("decoys-1")) == ["decoys", "coin", "decoys-1"]
    assert meanings("a study without any of them") == {}
