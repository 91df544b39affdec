"""Which names people could take for one another: a name proves nothing, but people go by it.

Two names are alike if one of their folded forms is the same.  A form has no case, spaces,
punctuation, accents or invisible characters, and one letter for all that look like it.  No table of
look-alikes is complete; whoever is new is shown as not verified, whatever their name looks like.
"""

import re
import unicodedata
from functools import lru_cache

_LATIN = re.compile(
    "LATIN (?:(?:SMALL|CAPITAL) )?LETTER (?:DOTLESS |SMALL CAPITAL |SCRIPT |SMALL )?"
    "([A-Z]|AE|OE)(?: WITH .+)?"
)
"""Names of letters that are a plain one with a stroke, a hook or a tail, or a small capital."""

_LIKE_LATIN = {
    # Cyrillic
    **dict(zip("АВЕЅІЈКМНОРСТУХҮԚԜЬҺӀЗ", "ABESIJKMHOPCTYXYQWbhl3", strict=True)),
    **dict(zip("авеѕіјкмнорстухүԛԝьһӏзгпԁѵ", "abesijkmhopctyxyqwbhl3rndv", strict=True)),
    # Greek
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹ", "ABEZHIKMNOPTYXC", strict=True)),
    **dict(zip("αβγεηικνορτυχωϲϳ", "abyenikvoptuxwcj", strict=True)),
    # Armenian
    **dict(zip("ՕՏՍԼօսհոցզյ", "OSULouhngqj", strict=True)),
    # Cherokee
    **dict(zip("ᎠᎡᎢᎥᎪᎫᎬᎳᎷᎻᎽᏀᏃᏒᏔᏕᏙᏚᏞᏟᏢᏦᏴ", "DRTiAJEWMHYGZRWSVSLCPKB", strict=True)),
    # Lisu
    **dict(zip("ꓐꓑꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ", "BPDTGKJCZFMNLSRVHWXYAEIOU", strict=True)),
    # Letters for sounds, and a line
    **dict(zip("ɑɩǀ|∣", "ailll", strict=True)),
}
_MERGED = str.maketrans({"i": "l", "1": "l", "0": "o", "m": "rn", "w": "vv"})
"""Small letters that stand for each other: I and l, 1 and l, 0 and O, m and rn, w and vv."""

_ACCENTS = re.compile(
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"  # over and under letters
    "\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\ufe00-\ufe0f\U000e0100-\U000e01ef]"  # invisible
)


def alike(name: str, other: str) -> bool:
    """Tell whether people could take one name for the other."""
    return not _forms(name).isdisjoint(_forms(other))


def look(text: str) -> str:
    """Return a form that texts share which look the same but for case and spaces.

    Letters of other scripts count as the Latin ones that they look like.  Punctuation and accents
    count, and so do small differences such as that of I and l: ``A`` and ``A-``, or ``IT`` and
    ``LT``, are different categories.
    """
    plain = unicodedata.normalize("NFKC", text)
    latin = "".join(_LIKE_LATIN.get(letter, letter) for letter in plain).casefold()
    return "".join(letter for letter in latin if unicodedata.category(letter)[0] not in "ZC")


@lru_cache(maxsize=4096)
def _forms(name: str) -> frozenset[str]:
    """Return the folded forms: a letter may look like another one in one of its cases only."""
    return frozenset(_folded(case) or name for case in (name, name.upper(), name.lower()))


def _folded(name: str) -> str:
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", name))
    latin = "".join(map(_latin, plain)).casefold()
    # Letters, marks, numbers and symbols count; punctuation, separators and formats do not.
    kept = (letter for letter in latin if unicodedata.category(letter)[0] in "LMNS")
    return "".join(kept).translate(_MERGED)


def _latin(letter: str) -> str:
    """Return the Latin letter that a letter looks like, or the letter itself."""
    if letter in _LIKE_LATIN:
        return _LIKE_LATIN[letter]
    plain = _LATIN.fullmatch(unicodedata.name(letter, ""))
    return letter if plain is None else plain[1]


def readable(name: str) -> str:
    """Return a name as it can be printed: characters that nobody would see are written out."""
    return name if name.isprintable() else "".join(map(_visible, name))


def _visible(letter: str) -> str:
    return letter if letter.isprintable() else ascii(letter)[1:-1]
