"""The home of one identity: its keys, the server that it trusts, its ledgers and its studies."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from veiltab.core.entropy import Entropy
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import LOCKED, PrivateIdentity, check_passphrase, fingerprint
from veiltab.errors import (
    DamagedFileError,
    HomeError,
    InputError,
    MalformedError,
    ParameterError,
    ServerChangedError,
)
from veiltab.files.disk import check_new, drop_unfinished, write_output
from veiltab.files.private import (
    check_private_folder,
    locked,
    make_private_folder,
    parse_file,
    write_private,
)
from veiltab.party.keyfile import load_identity, save_identity
from veiltab.party.known.fingerprints import check_digits, check_same_server
from veiltab.party.known.known import KnownParties
from veiltab.party.ledgers import Ledgers, StoredLedger
from veiltab.party.progress import OnProgress, ignore_progress
from veiltab.party.study_folder import StudyFolder
from veiltab.party.vaults.folder import VaultFolder
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.keys import extends
from veiltab.remedies import Remedy
from veiltab.wire import titles as titles_of
from veiltab.wire.codec import TEXT, dump, load, message, nested, wired
from veiltab.wire.contract import PublicIdentity
from veiltab.wire.invitations import read_code
from veiltab.wire.rotation import ROTATIONS, Rotation
from veiltab.wire.signed import Message, Signed

if TYPE_CHECKING:
    from veiltab.data.recode import Recode, Rule
    from veiltab.party.checking import Preview
    from veiltab.party.connection import Retry
    from veiltab.party.session import Session
    from veiltab.protocol.curator.table import Duplicates

CA_FILE = "ca.pem"
"""In a home: the authority of a server whose certificate the system does not know."""

LARGEST_IDENTITY = 1 << 16

LOCK_WAIT = 5.0
"""Seconds that a command waits for another one in the same home."""

_ID = re.compile("[0-9a-f]{64}")


@message
class PinnedServer(Message):
    """The one server that this home speaks to: where it is, and who it must be."""

    kind: ClassVar[str] = "home-server"

    url: str = wired(TEXT)
    identity: PublicIdentity = wired(nested(PublicIdentity))
    rotations: tuple[Signed[Rotation], ...] = wired(ROTATIONS)


class Home:
    """The directory of one identity; one object of it serves one thread.

    Make the identity with :meth:`create`, become known to a server with :meth:`register`, give
    each data set a budget with :meth:`set_budget`, and work on studies with :meth:`connect`.
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        """Name the directory, by default ``$VEILTAB_HOME`` or ``~/.veiltab``; nothing is made."""
        self.path = Home.locate(None if path is None else _expanded(Path(path)), os.environ)
        self._held = False

    @staticmethod
    def locate(option: Path | None, environ: Mapping[str, str]) -> Path:
        """Return the path of the home: the option, ``$VEILTAB_HOME``, or ``~/.veiltab``."""
        if option is not None:
            return option.absolute()
        if environ.get("VEILTAB_HOME"):
            return Path(environ["VEILTAB_HOME"]).absolute()
        if not environ.get("HOME"):
            raise HomeError(
                "the home has no default path: neither VEILTAB_HOME nor HOME is set",
                hint="name it with --home or VEILTAB_HOME",
            )
        return (Path(environ["HOME"]) / ".veiltab").absolute()

    def __repr__(self) -> str:
        """Show the path."""
        return f"Home({str(self.path)!r})"

    @property
    def exists(self) -> bool:
        """Tell whether there is an identity."""
        return self.key_file.exists()

    @property
    def locked(self) -> bool:
        """Tell whether opening the identity takes a passphrase."""
        self.check_identity()
        return parse_file(self.key_file, lambda data: load(data).get("kind") == LOCKED) is True

    @contextmanager
    def lock(self, wait: float = LOCK_WAIT) -> Iterator[None]:
        """Keep other commands from changing this home; may be nested."""
        if self._held:
            yield
            return
        check_private_folder(self.path)
        with locked(self.path / "lock", wait):
            self._held = True
            try:
                drop_unfinished(self.path)  # such as a second name of the key, after a crash
                yield
            finally:
                self._held = False

    def create(
        self, name: str, passphrase: str | None = None, entropy: Entropy | None = None
    ) -> PrivateIdentity:
        """Draw a new identity and save it; a home has one, and it is never replaced.

        Its keys come from ``entropy``, by default the operating system's.
        """
        entropy = SystemEntropy() if entropy is None else entropy
        if passphrase is not None:
            check_passphrase(passphrase)
        identity = PrivateIdentity.create(name, entropy)
        make_private_folder(self.path)
        with self.lock():
            if self.exists:
                raise HomeError(
                    f"there is an identity in {self.path} already",
                    hint="choose another home; a key that is overwritten cannot be made again",
                )
            # First: whenever there is a key, what others may know of it can be shown.
            self._write_public(identity)
            save_identity(identity, self.key_file, passphrase, entropy)
        return identity

    def check_identity(self) -> None:
        """Refuse a home without an identity, and say how to make one."""
        check_private_folder(self.path)
        if not self.exists:
            raise HomeError(
                f"there is no identity in {self.path}",
                hint=f"make one first, or {Remedy.ITS_HOME}",
            )

    def open(self, passphrase: str | None = None) -> PrivateIdentity:
        """Read the identity; ``passphrase`` is not used if it is not locked."""
        self.check_identity()
        if self.next_key.exists():
            raise HomeError(
                "new keys were made, and the server may or may not know them yet",
                hint="finish it with: veiltab id rotate",
            )
        identity = load_identity(self.key_file, passphrase)
        stored = parse_file(self._public, _read_identity)
        if stored is None:
            with self.lock():
                self._write_public(identity)
        elif stored != public_identity(identity):
            raise DamagedFileError(
                f"{self._public} and {self.key_file} belong to different identities",
                hint="restore both from the same copy; delete identity.json if the key is right",
            )
        return identity

    @property
    def public(self) -> PublicIdentity:
        """What others may know of this identity; no passphrase is needed."""
        self.check_identity()
        identity = parse_file(self._public, _read_identity)
        if identity is None:
            raise HomeError(
                f"{self._public} is missing", hint="open the identity once: it is written again"
            )
        return identity

    def write_public(self, path: str | PathLike[str]) -> None:
        """Write a new file with what others need to name this party in a study file."""
        check_new(Path(path))
        write_output(Path(path), f"{identity_text(self.public)}\n".encode())

    @property
    def fingerprint(self) -> str:
        """What people compare by telephone: thirty digits that stand for this identity's keys."""
        return fingerprint(self.public.party_id)

    @property
    def server(self) -> PinnedServer | None:
        """The server that this home speaks to, if it has one yet."""
        check_private_folder(self.path)
        return parse_file(self._server, lambda data: PinnedServer.from_json(load(data)))

    def pin_server(self, url: str, identity: PublicIdentity) -> PinnedServer:
        """Remember a server; any other than the one that is pinned already is refused."""
        with self.lock():
            trusted = self.server
            if trusted is not None:
                check_same_server(url, identity, trusted.identity)
            rotations = () if trusted is None else trusted.rotations
            pinned = PinnedServer(url=url, identity=identity, rotations=rotations)
            if pinned != trusted:
                write_private(self._server, pinned.canonical())
        return pinned

    def meet_server(self, shown: PublicIdentity, rotations: Sequence[Signed[Rotation]]) -> None:
        """Refuse any other server than the pinned one, before anything is sent to it.

        Newer keys are in order if they follow those that are known; they are remembered once the
        server has signed with them.  A new name is remembered: it proves nothing.
        """
        trusted = self.server
        if trusted is None:
            return
        check_same_server(trusted.url, shown, trusted.identity)
        _check_follows(trusted, rotations)
        if shown != trusted.identity:
            self.pin_server(trusted.url, shown)

    def follow_server(self, rotations: Sequence[Signed[Rotation]]) -> None:
        """Remember the newest keys of the server, which has signed with them.

        They are verified already.  A server that goes back to an older key, or whose keys have
        changed in two ways, is refused: somebody may have stolen a key that it has replaced.
        """
        trusted = self.server
        if trusted is None or rotations == trusted.rotations:
            return
        _check_follows(trusted, rotations)
        with self.lock():
            write_private(self._server, replace(trusted, rotations=tuple(rotations)).canonical())

    def rotate(
        self,
        passphrase: str | None = None,
        retry: "Retry | None" = None,
        entropy: Entropy | None = None,
    ) -> PrivateIdentity:
        """Draw new keys, tell the server, and use them from now on; the fingerprint stays.

        The old keys are kept: they open what was sealed to them before.  If this is broken off,
        the next call finishes it.
        """
        from veiltab.party import rotation  # noqa: PLC0415 - it is made of homes

        return rotation.rotate(self, passphrase, entropy or SystemEntropy(), retry)

    def write_revocation(
        self,
        path: str | PathLike[str],
        passphrase: str | None = None,
        reason: str = "revoked by its owner",
    ) -> None:
        """Write a certificate to a new file: whoever has it can revoke this identity, for good."""
        from veiltab.party import rotation  # noqa: PLC0415 - it is made of homes

        certificate = rotation.make_certificate(self, passphrase, reason)
        rotation.write_certificate(certificate, Path(path))

    def revoke(self, passphrase: str | None = None, reason: str = "revoked by its owner") -> None:
        """Tell the server that nobody may trust this identity any more: for good."""
        from veiltab.party import rotation  # noqa: PLC0415 - it is made of homes

        rotation.revoke(self, rotation.make_certificate(self, passphrase, reason))

    def forget_server(self) -> None:
        """Trust no server any more, so that another one can be pinned on purpose."""
        with self.lock():
            self._server.unlink(missing_ok=True)

    @property
    def authority(self) -> Path | None:
        """The certificates of a server's own authority, if the system's are not to be used."""
        path = self.path / CA_FILE
        return path if path.exists() else None

    def keep_authority(self, certificates: bytes | None) -> None:
        """Save the certificates to trust for this home's server; with ``None``, the system's."""
        with self.lock():
            if certificates is None:
                (self.path / CA_FILE).unlink(missing_ok=True)
            else:
                write_private(self.path / CA_FILE, certificates)

    def register(
        self,
        server: str | PathLike[str],
        invitation: str | None = None,
        *,
        fingerprint: str,
        passphrase: str | None = None,
        ca_file: str | PathLike[str] | None = None,
        replace: bool = False,
    ) -> PinnedServer:
        """Register with a server, by an invitation from its operator.

        ``server`` is the file that the operator has sent, or the server's URL, with the code as
        ``invitation``.  ``fingerprint`` is what the operator has told you: a server with another
        one is refused.  With ``replace`` a server that was known before is forgotten.
        """
        from veiltab.party import registration  # noqa: PLC0415 - it is made of homes

        self.check_identity()  # before a server is asked
        check_digits(fingerprint)
        code = None if invitation is None else read_code(invitation)
        authority = None if ca_file is None else Path(ca_file)
        met = registration.meet(self, server, ca_file=authority, replace=replace)
        met.check_fingerprint(fingerprint)
        code = code or met.code
        if code is None:
            raise ParameterError(
                "a URL needs the code of an invitation too",
                hint="give the code, or the operator's file instead of the URL",
            )
        return met.finish(self.open(passphrase), code)

    def connect(self, passphrase: str | None = None, retry: "Retry | None" = None) -> "Session":
        """Open a session with the server that this home is registered with.

        ``retry`` says how long to try a server that does not answer; five minutes by default.
        """
        from veiltab.party import session  # noqa: PLC0415 - sessions are made of homes

        return session.connect(self, self.open(passphrase), retry)

    @property
    def ledgers(self) -> Ledgers:
        """The privacy budgets of the data sets."""
        return Ledgers(self.path / "ledgers")

    @property
    def known(self) -> KnownParties:
        """The parties that this home knows, and which of them were verified."""
        self.check_identity()
        return KnownParties(self)

    def budgets(self) -> list[StoredLedger]:
        """Return the privacy budget of each data set, and what it was spent on."""
        self.check_identity()
        return self.ledgers.all_ledgers()

    def set_budget(
        self,
        dataset: str,
        epsilon: float,
        *,
        delta: float | None = None,
        largest_epsilon: float | None = None,
        smallest_population: int | None = None,
    ) -> StoredLedger:
        """Give a data set a privacy budget, or change the one it has.

        What is spent stays spent, and limits that are not given stay as they are.
        """
        self.check_identity()
        with self.lock():
            return self.ledgers.set_limits(
                dataset,
                epsilon,
                delta,
                largest_epsilon=largest_epsilon,
                smallest_population=smallest_population,
            )

    def check(
        self,
        file: str | PathLike[str],
        table: object,
        ids: str | Sequence[str] = (),
        *,
        recode: "Recode | Mapping[str, Rule] | str | PathLike[str] | None" = None,
        duplicates: "Duplicates | None" = None,
        query: str | None = None,
        dataset: str | None = None,
        offenders: str | PathLike[str] | None = None,
        progress: OnProgress = ignore_progress,
    ) -> "Preview":
        """Check a table against a study file, before the study is proposed; nobody is asked.

        :meth:`Study.check` does the same for a study that was proposed, and explains the arguments.
        """
        from veiltab.party import checking  # noqa: PLC0415 - it is made of homes

        return checking.check_file(
            self,
            Path(file),
            table,
            ids,
            recode=recode,
            duplicates=duplicates,
            query=query,
            dataset=dataset,
            offenders_file=None if offenders is None else Path(offenders),
            progress=progress,
        )

    def study(self, study_id: bytes) -> StudyFolder:
        """Return the folder of one study, which need not exist yet."""
        return StudyFolder(self.path / "studies" / study_id.hex(), study_id)

    def studies(self) -> list[bytes]:
        """Return the ids of all studies that this home knows."""
        return self._ids("studies")

    def find_study(
        self,
        text: str,
        listed: Iterable[tuple[bytes, str]] = (),
        unseen: Callable[[], Iterable[tuple[bytes, str]]] = tuple,
    ) -> bytes:
        """Find the one study whose title begins like this, or whose id starts with these digits.

        An exact title counts first, and one in other case next.  ``listed`` are ids and titles
        from elsewhere, such as the server's list, and ``unseen`` returns others, which count if
        nothing else matches.
        """
        titles = {study: self.study(study).title() for study in self.studies()} | dict(listed)
        return _find(text, titles, unseen, "study", "studies")

    def vault(self, vault_id: bytes) -> VaultFolder:
        """Return the folder of one vault, which need not exist yet."""
        return VaultFolder(self.path / "vaults" / vault_id.hex(), vault_id)

    def vaults(self) -> list[bytes]:
        """Return the ids of all vaults that this home knows."""
        return self._ids("vaults")

    def find_vault(
        self,
        text: str,
        listed: Iterable[tuple[bytes, str]] = (),
        unseen: Callable[[], Iterable[tuple[bytes, str]]] = tuple,
    ) -> bytes:
        """Find a vault, as :meth:`find_study` does a study."""
        titles = {vault: self.vault(vault).title() for vault in self.vaults()} | dict(listed)
        return _find(text, titles, unseen, "vault", "vaults")

    def _ids(self, name: str) -> list[bytes]:
        check_private_folder(self.path)
        folder = self.path / name
        names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
        return [bytes.fromhex(name) for name in names if _ID.fullmatch(name)]

    @property
    def key_file(self) -> Path:
        """The file with the private keys."""
        return self.path / "identity.key"

    @property
    def next_key(self) -> Path:
        """The file with keys that are about to take the place of the others."""
        return self.path / "identity.next.key"

    @property
    def _public(self) -> Path:
        return self.path / "identity.json"

    @property
    def _server(self) -> Path:
        return self.path / "server.json"

    def _write_public(self, identity: PrivateIdentity) -> None:
        write_private(self._public, dump(public_identity(identity).to_json()))


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # no user of this computer has that name
        raise HomeError(
            f"there is no home in {path}: nobody on this computer has that name",
            hint="write the whole path, or ~/ for a folder of your own",
        ) from None


def identity_text(identity: PublicIdentity) -> str:
    """Return a public identity as people hand it over: JSON on several lines."""
    return json.dumps(identity.to_json(), ensure_ascii=False, indent=2)


def read_identity(path: Path) -> PublicIdentity:
    """Read a file that ``veiltab id show --public`` has written."""
    try:
        with path.open("rb") as file:
            return parse_identity(file.read(LARGEST_IDENTITY), str(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="check the path") from error


def parse_identity(data: bytes, name: str) -> PublicIdentity:
    """Read the content of such a file; ``name`` is how errors call it."""
    try:
        return PublicIdentity.from_json(json.loads(data))
    except (ValueError, RecursionError, MalformedError) as error:
        raise InputError(
            f"{name} is not a public identity",
            hint=f"ask that party for {Remedy.IDENTITY_FILE}",
        ) from error


def _check_follows(trusted: PinnedServer, rotations: Sequence[Signed[Rotation]]) -> None:
    """Refuse a server that has gone back to an older key, or changed it in another way."""
    if not extends(rotations, trusted.rotations):
        raise ServerChangedError(
            f"THE SERVER HAS CHANGED: {trusted.url} works with a key that it had replaced, or with"
            " one that does not follow the keys known here",
            hint="send nothing: somebody may have stolen an old key of the server, or its operator"
            " has restored an old copy; ask them by telephone",
        )


def _read_identity(data: bytes) -> PublicIdentity:
    return PublicIdentity.from_json(load(data))


def _find(
    text: str,
    titles: titles_of.Titles,
    unseen: Callable[[], Iterable[tuple[bytes, str]]],
    what: str,
    many: str,
) -> bytes:
    """Return the one id that matches, or say which ones there are."""
    matches, every = titles_of.find(text, titles, unseen)
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = titles_of.candidates({scope: every[scope] for scope in matches}, most=None)
        whole = text.strip() in (every[scope] for scope in matches)  # there is no more of it
        more = "give " if whole else f"give more of the {what}'s title, or "
        raise HomeError(
            f"{len(matches):,} {many} match {text!r}{shown}",
            hint=f"{more}at least {titles_of.SHORTEST_PREFIX} digits of its id",
        )
    raise HomeError(
        f"no {what} matches {text!r}{titles_of.candidates(every)}",
        hint=f"give the beginning of a {what}'s title, or at least {titles_of.SHORTEST_PREFIX}"
        " digits of its id",
    )
