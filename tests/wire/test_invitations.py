"""The codes of invitations, as people type them."""

from itertools import combinations

import pytest

from tests.support.cases import for_each
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import InvitationError
from veiltab.wire.invitations import (
    SYMBOLS,
    Invitation,
    draw_code,
    group,
    looks_like_code,
    read_code,
)

CODES = [draw_code(CipherEntropy.from_seed(seed, "codes")) for seed in range(20)]


def test_codes_have_a_form_that_people_can_read_out() -> None:
    """Four groups of four, without letters that look like digits; fifteen symbols are random."""
    assert len(set(CODES)) == len(CODES)
    for code in CODES:
        assert [len(part) for part in code.split("-")] == [4, 4, 4, 4]
        assert set(code) <= {*SYMBOLS, "-"}
        assert group(read_code(code)) == code
    assert not set("ILOU") & set(SYMBOLS)
    # Every symbol but the last one is drawn evenly: 400 draws at each of 15 places.
    entropy = CipherEntropy.from_seed(1, "many")
    drawn = [read_code(draw_code(entropy)) for _ in range(400)]
    for place in range(15):
        assert len({code[place] for code in drawn}) == len(SYMBOLS)  # fails once in 10⁴ seeds


@for_each("code", CODES)
def test_case_spaces_and_hyphens_do_not_matter(code: str) -> None:
    """Nor does an O for a zero, or an I or L for a one."""
    plain = code.replace("-", "")
    alike = plain.replace("0", "o").replace("1", "l")
    for typed in (
        *(code.lower(), f"  {code}\n", plain, " ".join(plain), alike, plain.replace("1", "I")),
        *(code.replace("-", "\N{EN DASH}"), code.replace("-", "\N{NON-BREAKING HYPHEN}")),
    ):
        assert read_code(typed) == plain


def test_every_single_slip_and_every_exchange_is_found() -> None:
    """Before anything is sent; the error does not repeat what was typed."""
    code = read_code(CODES[0])
    slips = [
        code[:place] + symbol + code[place + 1 :]
        for place in range(16)
        for symbol in SYMBOLS
        if symbol != code[place]
    ]
    for first, second in combinations(range(16), 2):
        if code[first] != code[second]:
            symbols = list(code)
            symbols[first], symbols[second] = symbols[second], symbols[first]
            slips.append("".join(symbols))
    for slip in slips:
        with pytest.raises(InvitationError, match="there is a slip in the code") as caught:
            read_code(slip)
        assert slip not in caught.value.message + caught.value.hint


@for_each("typed", ["", "-", "7K3M", "U" * 16, "7K3M-QX9T-02HD-WZ4B-0", "ä" * 16, "0" * 40])
def test_what_is_no_code_is_refused(typed: str) -> None:
    """With its form, and not with what was typed."""
    with pytest.raises(InvitationError, match="this is not the code of an invitation"):
        read_code(typed)


def test_a_code_is_told_from_the_name_of_a_file() -> None:
    """One with a slip is a code too."""
    assert looks_like_code(CODES[0])
    assert looks_like_code("ABCD-EFGH-JKMN-PQRS")
    assert not looks_like_code("tax-office.json")
    assert not looks_like_code("invitation.json")


def test_an_invitation_is_shown_without_its_code() -> None:
    """Whatever shows one, in a log or to whoever looks for a fault, shows nobody the way in."""
    about = {"name": "Tax office", "url": "https://stats.example.org", "server": "Statistics"}
    sent = Invitation(**about, fingerprint="1" * 30, code=CODES[0], expires=1)
    assert repr(sent) == "Invitation(name='Tax office', server='Statistics')"
    assert Invitation.from_json(sent.to_json()) == sent
