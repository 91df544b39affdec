"""A curator's ledgers on disk, one file per data set.

Save a ledger before the signature that it is charged for leaves the house: a study must never run
uncharged.  A file only ever gains entries and refunds; limits may change in both directions.  A
limit below what is spent means that nothing more can be signed.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from veiltab.core.schema import check_text
from veiltab.errors import BudgetError, HomeError, InputError, MalformedError, ParameterError
from veiltab.files.private import damaged, make_private_folder, parse_file, write_private
from veiltab.party.answers import FLAG
from veiltab.party.known.names import alike
from veiltab.protocol.curator.ledger import Basis, Entry, Ledger, Refund
from veiltab.remedies import Remedy
from veiltab.wire.codec import (
    MAX_INTEGER,
    MAX_TEXT,
    TEXT,
    Codec,
    Part,
    choice,
    input_errors_at,
    integer,
    items,
    load,
    malformed,
    message,
    nested,
    number,
    optional,
    part,
    wired,
)
from veiltab.wire.contract import DIGEST, Contract
from veiltab.wire.mechanism import ACCOUNTING, DELTA, EPSILON, Accounting
from veiltab.wire.signed import Message

_READABLE = 40
_TIME = integer(0, MAX_INTEGER)
_BASIS: Codec[Basis] = choice("nothing-sent", "never-granted")


@dataclass(frozen=True, slots=True)
class Note:
    """What people want to know of an entry: the study's title, and when it was signed (Unix)."""

    title: str
    at: int


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger with a note for each entry, by study."""

    ledger: Ledger
    notes: Mapping[bytes, Note] = field(default_factory=dict)

    @property
    def epsilon_left(self) -> float:
        """What is left of ε: the difference of the decimals that people wrote."""
        return float(Fraction(repr(float(self.ledger.epsilon_limit))) - self.ledger.epsilon_spent)

    @property
    def delta_left(self) -> float:
        """What is left of δ, in the same way."""
        return float(Fraction(repr(float(self.ledger.delta_limit))) - self.ledger.delta_spent)

    @property
    def overspent(self) -> bool:
        """Tell whether a limit was lowered below what is spent: nothing more can be signed."""
        return not self.ledger.supports(0.0, 0.0)


class Ledgers:
    """The folder of all ledgers; change it under the home's lock."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made when the first ledger is saved."""
        self._folder = folder

    def open_ledger(self, dataset: str) -> StoredLedger:
        """Return the ledger of a data set, or say which ones there are."""
        stored = self._read(self._path(dataset))
        if stored is None:
            names = ", ".join(repr(other.ledger.dataset) for other in self.all_ledgers())
            raise HomeError(
                f"there is no ledger for the data set {dataset!r}",
                hint=f"there are ledgers for {names}" if names else "set a budget for it first",
            )
        return stored

    def all_ledgers(self) -> list[StoredLedger]:
        """Return every ledger, by the name of its data set."""
        paths = self._folder.glob("[!.]*.json") if self._folder.is_dir() else ()
        ledgers = [stored for path in paths if (stored := self._read(path)) is not None]
        return sorted(ledgers, key=lambda stored: stored.ledger.dataset)

    def ledger_of(self, study: bytes) -> StoredLedger | None:
        """Return the ledger that a study is charged to, if any, also if that was refunded."""
        for stored in self.all_ledgers():
            if stored.ledger.entry_of(study) is not None:
                return stored
        return None

    def refund_of(self, study: bytes) -> Refund | None:
        """Return the refund of a study, also one that is not done yet."""
        stored = self.ledger_of(study)
        return None if stored is None else stored.ledger.refund_of(study)

    def check_charged(self, contract: Contract) -> None:
        """Refuse a study that no ledger of this home has paid for: data would leave uncharged.

        That happens where a ledger was restored from an old copy, or the charge was taken back.
        """
        stored = self.ledger_of(contract.study_id)
        if stored is not None:
            stored.ledger.check_not_refunded(contract.study_id)
        cost = Entry(contract.study_id, contract.epsilon, contract.delta, contract.accounting)
        if stored is not None and cost in stored.ledger.entries:
            return
        raise BudgetError(
            f"{contract.title!r} is not charged to any data set of this home: was a ledger restored"
            " from an old copy?",
            hint="sign the study again, which charges it and changes nothing else:"
            f" {Remedy.CHARGE_AGAIN.format(contract.study_id.hex()[:16])}",
        )

    def save(self, ledger: Ledger, notes: Mapping[bytes, Note] | None = None) -> StoredLedger:
        """Write a ledger, with a note for each entry that is not in the file yet.

        Entries of the file that the ledger does not have, or has in another form, are an error:
        somebody else has charged the data set in the meantime.
        """
        _check_dataset(ledger.dataset)
        path = self._path(ledger.dataset)
        stored = self._read(path) or StoredLedger(replace(ledger, entries=(), refunds=()))
        if not _continues(ledger, stored.ledger):
            raise HomeError(
                f"the ledger of {ledger.dataset!r} has changed since it was opened",
                hint="open it again and repeat the step; entries are never taken back",
            )
        new = StoredLedger(ledger, MappingProxyType({**(notes or {}), **stored.notes}))
        try:
            data = _to_file(new).canonical()
        except MalformedError as error:
            raise ParameterError(
                f"this ledger cannot be kept: {error.message}",
                hint="use ordinary numbers, and titles of one line",
            ) from error
        make_private_folder(self._folder)
        write_private(path, data)
        return new

    def set_limits(
        self,
        dataset: str,
        epsilon_limit: float,
        delta_limit: float | None = None,
        *,
        largest_epsilon: float | None = None,
        smallest_population: int | None = None,
    ) -> StoredLedger:
        """Make a ledger, or change the limits of the one there is; its entries stay.

        Limits that are ``None`` stay as they are; in a new ledger they are the strictest for δ, and
        none for the others.
        """
        _check_dataset(dataset)
        stored = self._read(self._path(dataset))
        if stored is None:
            self._check_unlike(dataset)
        ledger = (
            Ledger(dataset=dataset, epsilon_limit=epsilon_limit, delta_limit=0.0)
            if stored is None
            else stored.ledger
        )
        limits: dict[str, Any] = {
            "epsilon_limit": epsilon_limit,
            "delta_limit": delta_limit,
            "largest_epsilon": largest_epsilon,
            "smallest_population": smallest_population,
        }
        changed = {name: limit for name, limit in limits.items() if limit is not None}
        return self.save(replace(ledger, **changed))

    def _check_unlike(self, dataset: str) -> None:
        """Refuse a new data set that people could take for one there is: it would be charged twice.

        Each of the two would have a budget, for the same people.
        """
        for other in self.all_ledgers():
            name = other.ledger.dataset
            if alike(name, dataset):
                raise ParameterError(
                    f"the data set {dataset!r} looks like {name!r}, which has a budget already",
                    hint=f"write {name!r} if you mean it, or choose a name that is clearly another",
                )

    def _path(self, dataset: str) -> Path:
        """Return a file name that any disk takes: a digest, after what people can recognise."""
        readable = re.sub("[^a-z0-9]+", "-", dataset.lower())[:_READABLE].strip("-")
        digest = hashlib.sha256(dataset.encode(errors="surrogatepass")).hexdigest()[:32]
        return self._folder / f"{f'{readable}-' if readable else ''}{digest}.json"

    def _read(self, path: Path) -> StoredLedger | None:
        stored = parse_file(path, lambda data: _from_file(_LedgerFile.from_json(load(data))))
        if stored is not None and self._path(stored.ledger.dataset) != path:
            raise damaged(path)
        return stored


def _continues(ledger: Ledger, stored: Ledger) -> bool:
    """Tell whether a ledger has all that is stored, in its order; a refund may be done since."""
    refunds = ledger.refunds[: len(stored.refunds)]
    same = ledger.entries[: len(stored.entries)] == stored.entries
    return (
        same
        and len(refunds) == len(stored.refunds)
        and all(
            new in (old, replace(old, done=True))
            for old, new in zip(stored.refunds, refunds, strict=True)
        )
    )


def _limit(value: float) -> None:
    """Leave it to the ledger to refuse a limit that limits nothing."""


@part
class _Line(Part):
    """One entry of a ledger, with its note."""

    accounting: Accounting = wired(ACCOUNTING)
    at: int = wired(_TIME)
    delta: float = wired(DELTA)
    epsilon: float = wired(EPSILON)
    study: bytes = wired(DIGEST)
    title: str = wired(TEXT)


@part
class _LogEnd(Part):
    """How far a study's audit log went when the study was refunded."""

    hash: bytes = wired(DIGEST)
    length: int = wired(integer(0, MAX_INTEGER))


@part
class _RefundLine(Part):
    """A refund of one of the entries."""

    at: int = wired(_TIME)
    basis: Basis = wired(_BASIS)
    done: bool = wired(FLAG)
    log: _LogEnd | None = wired(optional(nested(_LogEnd)))
    reason: str = wired(TEXT)
    study: bytes = wired(DIGEST)


@message
class _LedgerFile(Message):
    """A ledger as it is written."""

    kind: ClassVar[str] = "home-ledger"

    dataset: str = wired(TEXT)
    delta_limit: float = wired(number(_limit))
    entries: tuple[_Line, ...] = wired(items(nested(_Line)))
    epsilon_limit: float = wired(number(_limit))
    largest_epsilon: float | None = wired(optional(number(_limit)))
    refunds: tuple[_RefundLine, ...] = wired(items(nested(_RefundLine)))
    smallest_population: int = wired(integer(0, MAX_INTEGER))

    def check(self) -> None:
        """Refuse a study that comes twice, and a refund of what was not charged."""
        charged, refunded = ([line.study for line in part] for part in (self.entries, self.refunds))
        for name, studies in (("entries", charged), ("refunds", refunded)):
            if len(set(studies)) != len(studies):
                raise malformed(name, "a study comes twice")
        if not set(refunded) <= set(charged):
            raise malformed("refunds", "a study was refunded and not charged")


def _to_file(stored: StoredLedger) -> _LedgerFile:
    ledger = stored.ledger
    lines = []
    for entry in ledger.entries:
        note = stored.notes.get(entry.study)
        if note is None:
            raise ParameterError(
                f"the entry of study {entry.study.hex()} has no note",
                hint="save it with the study's title and the time of signing",
            )
        accounting = ACCOUNTING.read(entry.accounting, "accounting")
        lines.append(
            _Line(accounting, note.at, entry.delta, entry.epsilon, entry.study, note.title)
        )
    return _LedgerFile(
        dataset=ledger.dataset,
        delta_limit=ledger.delta_limit,
        entries=tuple(lines),
        epsilon_limit=ledger.epsilon_limit,
        largest_epsilon=ledger.largest_epsilon,
        refunds=tuple(
            _RefundLine(
                refund.at,
                refund.basis,
                refund.done,
                None if refund.log is None else _LogEnd(refund.log[1], refund.log[0]),
                refund.reason,
                refund.study,
            )
            for refund in ledger.refunds
        ),
        smallest_population=ledger.smallest_population,
    )


def _from_file(file: _LedgerFile) -> StoredLedger:
    with input_errors_at("limits"):
        ledger = Ledger(
            dataset=file.dataset,
            epsilon_limit=file.epsilon_limit,
            delta_limit=file.delta_limit,
            largest_epsilon=file.largest_epsilon,
            smallest_population=file.smallest_population,
            entries=tuple(
                Entry(line.study, line.epsilon, line.delta, line.accounting)
                for line in file.entries
            ),
            refunds=tuple(
                Refund(
                    study=line.study,
                    reason=line.reason,
                    at=line.at,
                    basis=line.basis,
                    log=None if line.log is None else (line.log.length, line.log.hash),
                    done=line.done,
                )
                for line in file.refunds
            ),
        )
    notes = {line.study: Note(line.title, line.at) for line in file.entries}
    return StoredLedger(ledger, MappingProxyType(notes))


def _check_dataset(dataset: str) -> None:
    """Refuse a name that could not be shown on one line."""
    try:
        check_text(dataset, "the data set's name")
    except InputError as error:
        raise ParameterError(error.message, hint=error.hint) from error
    if len(dataset) > MAX_TEXT:
        raise ParameterError(
            f"the data set's name has {len(dataset):,} characters",
            hint=f"use at most {MAX_TEXT:,}",
        )
