"""What the pages of one console share: whose it is, what is under way, and what to tell whom."""

from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from veiltab.console.estimates import OpenEstimates
from veiltab.console.forms import Form, Typed
from veiltab.console.keys import ConsoleParty
from veiltab.console.once import Once
from veiltab.console.tasks import Tasks

if TYPE_CHECKING:  # what a console loads once it answers
    from veiltab.console.mapping import ChosenTable
    from veiltab.server.context import ServiceContext


Thing = TypeVar("Thing")


@dataclass(slots=True)
class Waiting(Generic[Thing]):
    """What waits for the next page of each browser, such as the message that a study was signed."""

    _waiting: dict[str, list[Thing]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def leave(self, browser: str, thing: Thing) -> None:
        """Keep this for the next page."""
        with self._lock:
            self._waiting.setdefault(browser, []).append(thing)

    def take(self, browser: str) -> list[Thing]:
        """Return what waits, once."""
        with self._lock:
            return self._waiting.pop(browser, [])


@dataclass(slots=True, kw_only=True)
class Shared:
    """What every console has: what to tell whom, and which forms were carried out."""

    messages: Waiting[str] = field(default_factory=Waiting)
    kept: Waiting[Typed] = field(default_factory=Waiting)
    once: Once = field(default_factory=Once)


@dataclass(slots=True)
class ConsoleState(Shared):
    """The state behind all pages of a party."""

    party: ConsoleParty
    menu: tuple[tuple[str, str], ...] = (
        ("/", "Studies"),
        ("/explore", "Explorer"),
        ("/plan", "Planner"),
        ("/ledger", "Ledger"),
        ("/identity", "Identity"),
    )
    tasks: Tasks = field(default_factory=Tasks)
    tables: "dict[str, ChosenTable]" = field(default_factory=dict)
    estimates: OpenEstimates = field(default_factory=OpenEstimates)
    proposal: Form | None = None
    """What was typed into the proposal of a study that is not sent yet."""

    def __post_init__(self) -> None:
        """Let estimates and tables be forgotten with the keys."""
        self.party.when_locked = self._forget

    def _forget(self) -> None:
        self.estimates.forget()
        self.tables.clear()
        self.tasks.forget_reading()


@dataclass(slots=True)
class OperatorState(Shared):
    """The state behind the pages of a server's operator.

    ``log`` is the file that the server's log goes to, if there is one, and ``metrics_port`` where
    the server answers for its metrics, or 0.  ``url`` is where parties find the server, as the
    operator has typed it last.
    """

    server: "ServiceContext"
    log: Path | None = None
    metrics_port: int = 0
    url: str = ""
    menu: tuple[tuple[str, str], ...] = (
        ("/", "Overview"),
        ("/studies", "Studies"),
        ("/parties", "Parties"),
        ("/invitations", "Invitations"),
        ("/requests", "Requests"),
        ("/log", "Log"),
    )
