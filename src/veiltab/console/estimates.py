"""The estimates that a researcher has opened in the console, by study or by file."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar, cast

from veiltab.party.grants import ended_attributes
from veiltab.party.session import Session

if TYPE_CHECKING:  # a third of the time that a console takes to start
    from veiltab.estimates import Estimate

MOST = 4
"""How many are kept in memory; the one that was used longest ago goes first."""

MOST_ANSWERS = 6
"""How many tables and tests of an estimate are kept, so that its next page need not wait."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Missing:
    """An attribute of the study that cannot be explored, and whom to ask for it."""

    attribute: str
    curator: str
    why: str


@dataclass(slots=True, eq=False)
class Opened:
    """An estimate, how Python gets the same one, and what it lacks."""

    estimate: "Estimate"
    code: str
    missing: tuple[Missing, ...] = ()
    _answers: dict[Hashable, object] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def ask(self, question: Hashable, compute: Callable[[], T]) -> T:
        """Return the answer to a question; it is computed once, and kept for the next pages."""
        with self._lock:
            if question not in self._answers:
                self._answers[question] = compute()
            answer = self._answers.pop(question)
            self._answers[question] = answer
            while len(self._answers) > MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
        return cast("T", answer)


def open_study(session: Session, study_id: str, files: Sequence[str] = ()) -> Opened:
    """Fetch and decrypt what the grants allow, and note what they do not.

    ``files`` are grants that curators have handed over directly, as one-time pads must be.
    """
    study = session.study(study_id)
    estimate = study.estimate(grants=files, partial=True)
    ended = {
        name: f"its grant has {one.ended}"
        for one, names in ended_attributes(study.grants()).items()
        for name in names
    }
    home = str(session.home.path)
    given = f"grants={list(files)!r}, " if files else ""
    code = f"estimate = vt.Home({home!r}).connect().study({study_id!r})"
    code += f".estimate({given}partial=True)"
    return Opened(estimate, code, _missing(estimate, ended, "not granted yet"))


def open_file(path: Path) -> Opened:
    """Open a saved estimate."""
    from veiltab.estimates import Estimate  # noqa: PLC0415 - see above

    estimate = Estimate.load(path)
    code = f"estimate = vt.Estimate.load({str(path)!r})"
    return Opened(estimate, code, _missing(estimate, {}, "not in this file"))


def _missing(estimate: "Estimate", ended: dict[str, str], otherwise: str) -> tuple[Missing, ...]:
    return tuple(
        Missing(name, curator, ended.get(name, otherwise))
        for name, curator in estimate.provenance.holders.items()
        if name not in estimate.schema.names
    )


@dataclass(slots=True)
class OpenEstimates:
    """Estimates by key: the id of a study, or a digest of a file's path.

    They are as private as the keys: when those are locked, all are forgotten.  Where files are is
    remembered, those of grants too, so that their pages open again; nothing of what is in them is.
    """

    _opened: dict[str, Opened] = field(default_factory=dict)
    _paths: dict[str, Path] = field(default_factory=dict)
    _grants: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _times_forgotten: int = 0

    @property
    def since(self) -> int:
        """What tells a time before all were forgotten from a time after it."""
        return self._times_forgotten

    def get(self, key: str) -> Opened | None:
        """Return one that is open."""
        with self._lock:
            opened = self._opened.pop(key, None)
            if opened is not None:
                self._opened[key] = opened
            return opened

    def keep(self, key: str, opened: Opened, since: int) -> None:
        """Keep one for the pages to come, unless the keys were locked while it was fetched."""
        with self._lock:
            if since != self._times_forgotten:
                return
            self._opened.pop(key, None)
            self._opened[key] = opened
            while len(self._opened) > MOST:
                del self._opened[next(iter(self._opened))]

    def open_file(self, path: Path) -> str:
        """Open a saved estimate, and return its key."""
        since, whole = self.since, path.expanduser().absolute()
        key = f"file-{sha256(str(whole).encode()).hexdigest()[:16]}"
        self.keep(key, open_file(whole), since)
        self._paths[key] = whole
        return key

    def grants(self, key: str) -> tuple[str, ...]:
        """Return the grant files that a study is opened with."""
        return self._grants.get(key, ())

    def use_grants(self, key: str, files: Sequence[str]) -> None:
        """Open a study with these grant files from now on; each must be one."""
        from veiltab.party.researcher import as_grant  # noqa: PLC0415 - see above

        for file in files:
            as_grant(file)
        with self._lock:
            self._grants[key] = tuple(files)
            self._opened.pop(key, None)

    def path(self, key: str) -> Path | None:
        """Return the file that a key stands for, if it was open once."""
        return self._paths.get(key)

    def forget(self) -> None:
        """Close all of them."""
        with self._lock:
            self._times_forgotten += 1
            self._opened.clear()
