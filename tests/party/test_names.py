"""Which names people could take for one another."""

import pytest

from tests.support.cases import for_each
from veiltab.party.known.names import alike, look, readable

LOOK_ALIKES = {
    "case": ("City hospital", "CITY Hospital"),
    "spaces": ("City hospital", " City  hospital "),
    "a no-break space": ("City hospital", "City\N{NO-BREAK SPACE}hospital"),
    "no space": ("City hospital", "Cityhospital"),
    "a zero-width space": ("City hospital", "City\N{ZERO WIDTH SPACE} hospital"),
    "a joiner": ("City hospital", "Ci\N{ZERO WIDTH JOINER}ty hospital"),
    "a word joiner": ("City hospital", "Ci\N{WORD JOINER}ty hospital"),
    "a soft hyphen": ("City hospital", "City hos\N{SOFT HYPHEN}pital"),
    "an invisible letter": ("City hospital", "City hospital\N{HANGUL FILLER}"),
    "a variation selector": ("City hospital", "City\N{VARIATION SELECTOR-16} hospital"),
    "punctuation": ("Dr. Rivera", "Dr Rivera"),
    "dashes": ("A-B", "A\N{NON-BREAKING HYPHEN}B"),
    "NFC and NFD": ("Zoë", "Zoe\N{COMBINING DIAERESIS}"),
    "an accent": ("City hospital", "Ci\N{COMBINING DOT BELOW}ty hospital"),
    "a stroke": ("Lodz", "Łódź"),
    "a dotless i": ("Tax office", "Tax offıce"),
    "small capitals": ("city", "ᴄɪᴛʏ"),
    "Cyrillic": ("Copeck Bank", "Сореск Ваnk"),
    "Greek": ("NATO", "ΝΑΤΟ"),
    "Greek in small letters": ("νατο", "ΝΑΤΟ"),
    "Armenian": ("Soho", "Տօհօ"),
    "Cherokee": ("LAW", "ᏞᎪᎳ"),
    "Lisu": ("BUS", "ꓐꓴꓢ"),
    "the digit one": ("City hospital", "City hospita1"),
    "a capital I": ("City hospital", "City hospitaI"),
    "a capital I in another case": ("City hospital", "CITY hospitaI"),
    "a bar": ("City hospital", "City hospita|"),
    "zero": ("Oslo", "0slo"),
    "r and n": ("Modern", "Modem"),
    "full width": ("City hospital", "Ｃｉｔｙ　ｈｏｓｐｉｔａｌ"),
    "mathematical letters": ("City", "\N{MATHEMATICAL BOLD CAPITAL C}ity"),
    "a ligature": ("Office", "Oﬃce"),
    "ß": ("Straße", "STRASSE"),
    "an emoji's style": ("🏥", "🏥\N{VARIATION SELECTOR-16}"),
}


@pytest.mark.parametrize(("name", "other"), LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_names_that_look_alike(name: str, other: str) -> None:
    """In either order."""
    assert alike(name, other)
    assert alike(other, name)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("City hospital", "City hospice"),
        ("City hospital", "City hospitals"),
        ("Ward 1", "Ward 2"),
        ("Curator 1", "Curator 10"),
        ("東京", "京東"),
        ("กา", "กิ"),
        ("עיר", "עור"),
        ("🏥", "🏦"),
        ("...", "!!!"),
    ],
)
def test_names_that_do_not(name: str, other: str) -> None:
    """Honest parties whose names differ meet no refusal, in any script."""
    assert not alike(name, other)


def test_what_nobody_would_see_is_written_out() -> None:
    """Any other name is shown as it is."""
    assert readable("City\N{ZERO WIDTH SPACE} hospital\N{NO-BREAK SPACE}") == (
        r"City\u200b hospital\xa0"
    )
    assert readable("Krankenhaus Süd 東京") == "Krankenhaus Süd 東京"


@for_each(
    "pair",
    [("yes", "Yes"), ("a b", "ab"), ("a b", "a\N{NO-BREAK SPACE}b"), ("copeck", "соресk")],
)
def test_categories_that_look_the_same(pair: tuple[str, str]) -> None:
    """By case, spaces, or letters of another script."""
    assert look(pair[0]) == look(pair[1])


@for_each(
    "pair",
    [("A", "A-"), ("-1", "1"), ("1.5", "15"), ("IT", "LT"), ("0", "O"), ("<40", ">40")],
)
def test_categories_that_only_resemble_each_other(pair: tuple[str, str]) -> None:
    """Grades, numbers and countries differ by little, and are not the same."""
    assert look(pair[0]) != look(pair[1])
