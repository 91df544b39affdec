"""Invitations: the one-time code that an operator hands over, and the file that carries it.

A code is typed by people: sixteen letters and digits in groups of four, such as
``7K3M-QX9T-02HD-WZ4B``.  Fifteen of them are random (75 bits); the last one is a check, so that a
slip is found before anything is sent.
"""

from typing import ClassVar

from veiltab.core.entropy import Entropy, random_bytes
from veiltab.errors import InvitationError
from veiltab.wire.codec import MAX_INTEGER, TEXT, integer, message, wired
from veiltab.wire.signed import Message

SYMBOLS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Digits and letters without I, L and O, which look like 1 and 0, and without U."""

CODE_LENGTH = 16
_GROUP = 4
_RANDOM_BYTES = 10
_BITS, _POLYNOMIAL = 5, 0b100101  # x⁵ + x² + 1, which is primitive
_ALIKE = str.maketrans("ILO", "110", " \t-‐‑‒–—.")
_VALUES = {symbol: value for value, symbol in enumerate(SYMBOLS)}


def draw_code(entropy: Entropy) -> str:
    """Draw a new code, in groups as people are shown it."""
    drawn = int.from_bytes(random_bytes(_RANDOM_BYTES, entropy))
    values = [drawn >> (_BITS * place) & 31 for place in range(CODE_LENGTH - 1)]
    values.append(_times_x(_remainder(values)))
    return group("".join(SYMBOLS[value] for value in values))


def group(code: str) -> str:
    """Write a code in groups of four."""
    return "-".join(code[start : start + _GROUP] for start in range(0, len(code), _GROUP))


def read_code(typed: str) -> str:
    """Return the sixteen symbols of a code as it was typed, or refuse it without repeating it.

    Case, spaces and hyphens do not matter, and I, L and O are read as 1, 1 and 0.
    """
    code = typed.strip().upper().translate(_ALIKE)
    if len(code) != CODE_LENGTH or not _VALUES.keys() >= set(code):
        raise InvitationError(
            f"this is not the code of an invitation: it has {CODE_LENGTH} letters and digits, in"
            f" groups of {_GROUP}, and no U",
            hint="type the code that the server's operator gave you; nothing was sent",
        )
    if _remainder([_VALUES[symbol] for symbol in code]):
        raise InvitationError(
            "there is a slip in the code: its last character does not fit the others",
            hint="compare it with what the server's operator gave you; nothing was sent",
        )
    return code


def looks_like_code(text: str) -> bool:
    """Tell whether a text was probably meant as a code: then no message may repeat it."""
    code = text.strip().upper().translate(_ALIKE)
    return len(code) == CODE_LENGTH and _VALUES.keys() >= set(code)


def _remainder(values: list[int]) -> int:
    """Return the value at x of the polynomial with these coefficients, in the field of 32 elements.

    It is 0 for a code.  One wrong symbol, or two that have changed places, change it always.
    """
    remainder = 0
    for value in values:
        remainder = _times_x(remainder) ^ value
    return remainder


def _times_x(value: int) -> int:
    doubled = value << 1
    return doubled ^ _POLYNOMIAL if doubled >> _BITS else doubled


@message
class Invitation(Message):
    """What an operator mails to a party: where the server is, who it must be, and the code.

    ``name`` is for whom it is, ``server`` what the server is called, and ``expires`` the time in
    Unix seconds from which the code is refused.
    """

    kind: ClassVar[str] = "invitation"

    name: str = wired(TEXT)
    url: str = wired(TEXT)
    server: str = wired(TEXT)
    fingerprint: str = wired(TEXT)
    code: str = wired(TEXT)
    expires: int = wired(integer(0, MAX_INTEGER))

    def check(self) -> None:
        """Refuse a code that cannot be one."""
        read_code(self.code)

    def __repr__(self) -> str:
        """Show for whom it is and which server it is of, and nothing of the code."""
        return f"Invitation(name={self.name!r}, server={self.server!r})"
