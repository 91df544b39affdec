"""One-time pads: uniform, from the operating system, and with no bias."""

import numpy as np
import pytest

from tests.support.entropy import ScriptedEntropy
from tests.support.laws import assert_fits
from veiltab.crypto import pads
from veiltab.crypto.entropy import CipherEntropy, SystemEntropy
from veiltab.errors import ParameterError

SIZES = [1, 2, 3, 16, 17, 200, 256, 257, 1000, 65_535]
SPAN = 262_144


@pytest.mark.parametrize("size", [2, 3, 16, 17, 200, 257, 1000])
def test_one_time_pads_are_uniform(size: int) -> None:
    """Chi-square over all elements; 1e-9 false alarms."""
    once = pads.one_time_pad(size, 200_000, CipherEntropy.from_seed(size, "one-time"))
    assert_fits(np.bincount(once, minlength=size), np.full(size, 1 / size))


def test_one_time_pads_reject_what_would_bias_them() -> None:
    """Of 2^32 words the last 2^32 mod 200 = 96 are thrown away, and another word is read."""
    script = b"".join(
        word.to_bytes(4, "little") for word in (2**32 - 1, 205, 2**32 - 96, 2**32 - 97, 7)
    )
    entropy = ScriptedEntropy(script)
    assert pads.one_time_pad(200, 3, entropy).tolist() == [5, 199, 7]
    assert entropy.used == len(script)


def test_one_time_pads_have_the_codes_type_and_length() -> None:
    """Any number of rows, one byte a row as long as a byte suffices."""
    entropy = CipherEntropy.from_seed(1, "types")
    for size in SIZES:
        for count in (0, 1, SPAN + 1):
            pad = pads.one_time_pad(size, count, entropy)
            assert pad.size == count
            assert pad.dtype == (np.uint8 if size <= 256 else np.uint16)
            assert not count or int(pad.max()) < size


def test_one_time_pads_of_the_system_never_repeat() -> None:
    """Two preparations share nothing."""
    first = pads.one_time_pad(256, 64, SystemEntropy())
    assert first.tobytes() != pads.one_time_pad(256, 64, SystemEntropy()).tobytes()


def test_what_has_no_one_time_pad_is_refused() -> None:
    """Sizes and numbers of rows out of range are errors."""
    for size in (0, -1, 65_536):
        with pytest.raises(ParameterError):
            pads.one_time_pad(size, 1, SystemEntropy())
    with pytest.raises(ParameterError):
        pads.one_time_pad(2, -1, SystemEntropy())
