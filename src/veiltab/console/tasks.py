"""Long work that a page has started: it goes on when the page is left, and can be looked at again.

A task is one thread.  Its progress and its end stay until another task of the same name begins.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from veiltab.console.forms import Form
from veiltab.errors import StateError, VeiltabError
from veiltab.party.progress import Progress

READING = "read "
"""How the names of tasks begin that read a table for a page: what they find is forgotten with the
keys."""


class StoppedError(Exception):
    """Somebody has asked for the end of a task."""


@dataclass(slots=True)
class Task:
    """One piece of work, and how far it is.

    ``typed`` is the form that has begun it, to be shown again if it fails.
    """

    name: str
    what: str
    typed: Form = field(default_factory=lambda: Form(()))
    progress: Progress | None = None
    failure: VeiltabError | None = None
    result: object = None
    stopped: bool = False
    _stop: Event = field(default_factory=Event)
    _end: Event = field(default_factory=Event)

    @property
    def finished(self) -> bool:
        """Whether it is over, however it has ended."""
        return self._end.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, at most so long; tell whether it is over."""
        return self._end.wait(seconds)

    def report(self, progress: Progress) -> None:
        """Note how far it is; the end of the work if somebody has asked for it."""
        self.progress = progress
        if self._stop.is_set():
            raise StoppedError

    def stop(self) -> None:
        """Ask for the end, at the next report."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether somebody has asked for the end."""
        return self._stop.is_set() and not self.finished

    @property
    def percent(self) -> int | None:
        """How much of the present step is done, if that can be told."""
        progress = self.progress
        if progress is None or not progress.total:
            return None
        return min(100, 100 * progress.done // progress.total)

    def run(self, work: "Callable[[Task], object]") -> None:
        """Do the work, and keep what came of it."""
        try:
            self.result = work(self)
        except StoppedError:
            self.stopped = True
        except VeiltabError as error:
            self.failure = error
        except Exception:
            self.failure = StateError(
                "something went wrong that should not have", hint="look at the console's log"
            )
            raise
        finally:
            self._end.set()


class Tasks:
    """All tasks of a console, by name."""

    def __init__(self) -> None:
        """Begin with none."""
        self._tasks: dict[str, Task] = {}
        self._lock = Lock()

    def start(
        self, name: str, what: str, work: Callable[[Task], object], typed: Form | None = None
    ) -> Task:
        """Begin a task; one of the same name that is under way is returned instead."""
        with self._lock:
            running = self._tasks.get(name)
            if running is not None and not running.finished:
                return running
            task = self._tasks[name] = Task(name, what, typed or Form(()))
        Thread(target=task.run, args=(work,), name=name, daemon=True).start()
        return task

    def get(self, name: str) -> Task | None:
        """Return a task that was begun."""
        return self._tasks.get(name)

    def forget(self, name: str) -> None:
        """Forget a task that has ended and was looked at."""
        with self._lock:
            self._tasks.pop(name, None)

    def forget_reading(self) -> None:
        """Stop whoever reads a table for a page, and forget what was read."""
        with self._lock:
            for name in [name for name in self._tasks if name.startswith(READING)]:
                self._tasks.pop(name).stop()

    def running(self) -> list[Task]:
        """Return the tasks under way."""
        return [task for task in list(self._tasks.values()) if not task.finished]
