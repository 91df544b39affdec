"""A home's passphrase, kept by the keyring of the system if its owner wishes.

Nothing asks the keyring unless the home has a file that says so: a keyring may open a window.  The
file holds no secret.  In a copy of the home on another computer, the keyring does not have the
passphrase, and it is asked for.
"""

from typing import TYPE_CHECKING

from veiltab.errors import HomeError, OutputError
from veiltab.files.disk import sync_folder
from veiltab.files.private import write_private

if TYPE_CHECKING:
    from types import ModuleType

    from veiltab.party.home import Home

SERVICE = "veiltab"
MARK = "keyring"
"""The file in a home that says to ask the keyring."""

_SAFE = 1
"""Backends with a lower priority keep passwords in the clear, or nowhere at all."""


def keep(home: "Home", passphrase: str) -> str:
    """Give a passphrase that opens the home to the keyring; return what keeps it."""
    home.open(passphrase)
    keyring = _keyring()
    backend = keyring.get_keyring()
    if backend.priority < _SAFE:
        raise OutputError(
            f"there is no keyring here that keeps secrets safely: only {backend.name}",
            hint="use the keyring of a desktop session, or --passphrase-file in scripts",
        )
    try:
        keyring.set_password(SERVICE, _account(home), passphrase)
    except Exception as error:  # noqa: BLE001 - backends raise whatever their system does
        raise _refused(error) from None
    with home.lock():
        write_private(home.path / MARK, b"the passphrase is in the system's keyring\n")
    return str(backend.name)


def kept(home: "Home") -> str | None:
    """Return the passphrase if the keyring was given it, and gives it back."""
    if not is_kept(home):
        return None
    try:
        passphrase: str | None = _keyring().get_password(SERVICE, _account(home))
    except Exception:  # noqa: BLE001 - whatever is wrong with a keyring, its owner can type
        return None
    return passphrase


def is_kept(home: "Home") -> bool:
    """Tell whether this home's passphrase was given to the keyring."""
    return (home.path / MARK).exists()


def forget(home: "Home") -> None:
    """Take the passphrase out of the keyring again."""
    if not is_kept(home):
        raise HomeError(
            f"the passphrase of {home.path} is not kept by a keyring", hint="there is nothing to do"
        )
    keyring = _keyring()
    try:
        if keyring.get_password(SERVICE, _account(home)) is not None:
            keyring.delete_password(SERVICE, _account(home))
    except Exception as error:  # noqa: BLE001 - as above
        raise _refused(error) from None
    with home.lock():
        (home.path / MARK).unlink(missing_ok=True)
        sync_folder(home.path)


def _account(home: "Home") -> str:
    return home.public.party_id.hex()


def _keyring() -> "ModuleType":
    try:
        import keyring  # noqa: PLC0415 - an optional package
    except ImportError:
        raise OutputError(
            "the package 'keyring' is not installed",
            hint="install it with: pip install 'veiltab[keyring]'",
        ) from None
    return keyring


def _refused(error: Exception) -> OutputError:
    """Name the kind of failure alone: a backend's message may quote what it was given."""
    return OutputError(
        f"the system's keyring refused ({type(error).__name__})",
        hint="unlock it, or go on typing the passphrase",
    )
