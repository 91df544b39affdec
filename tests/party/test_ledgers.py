"""Ledgers on disk: nothing is lost, nothing is taken back, and damage is noticed."""

import json
import os
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import for_each
from tests.support.message_strategies import TEXTS
from veiltab.errors import BudgetError, HomeError, ParameterError
from veiltab.files.private import write_private
from veiltab.party.ledgers import Ledgers, Note
from veiltab.protocol.curator.ledger import Entry, Ledger

NOTE = Note("Smoking and income", 1_700_000_000)
STUDY = bytes(range(32))


@pytest.fixture
def ledgers(tmp_path: Path) -> Ledgers:
    """Return a folder of ledgers that does not exist yet."""
    return Ledgers(tmp_path / "ledgers")


def only_file(folder: Path) -> Path:
    """Return the one file in the folder of ledgers."""
    (path,) = (folder / "ledgers").iterdir()
    return path


ENTRIES = st.lists(
    st.builds(
        Entry,
        st.binary(min_size=32, max_size=32),
        st.floats(5e-324, 50),
        st.sampled_from([0.0, 1e-30, 1e-6, 0.01]),
        st.sampled_from(["pure-1", "shuffle-1"]),
    ),
    max_size=4,
    unique_by=lambda entry: entry.study,
)


@pytest.mark.slow
@given(
    st.builds(
        Ledger,
        dataset=TEXTS,
        epsilon_limit=st.floats(5e-324, 1e6),
        delta_limit=st.floats(0, 0.999),
        largest_epsilon=st.none() | st.floats(5e-324, 50),
        smallest_population=st.integers(1, 2**53 - 1),
        entries=st.builds(tuple, ENTRIES),
    ),
    st.builds(Note, TEXTS, st.integers(0, 2**53 - 1)),
)
def test_every_ledger_comes_back(
    tmp_path_factory: pytest.TempPathFactory, ledger: Ledger, note: Note
) -> None:
    """Every field to the last bit, with its notes; any name of a data set."""
    ledgers = Ledgers(tmp_path_factory.mktemp("home") / "ledgers")
    saved = ledgers.save(ledger, {entry.study: note for entry in ledger.entries})
    found = ledgers.open_ledger(ledger.dataset)
    assert found.ledger == ledger
    assert dict(found.notes) == dict(saved.notes) == {e.study: note for e in ledger.entries}
    assert [each.ledger for each in ledgers.all_ledgers()] == [ledger]


@pytest.mark.parametrize(
    "dataset", ["../../etc/passwd", "a/b", ".", "..", ".hidden", "患者", "x" * 1000, "A", "a", " "]
)
def test_names_of_data_sets_never_leave_the_folder(
    ledgers: Ledgers, tmp_path: Path, dataset: str
) -> None:
    """The name in the file counts; the file's own name is plain and short."""
    ledgers.set_limits(dataset, 1.0)
    name = only_file(tmp_path).name
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    assert len(name) < 100
    assert ledgers.open_ledger(dataset).ledger.dataset == dataset


def test_files_are_private(ledgers: Ledgers, tmp_path: Path) -> None:
    """Whatever the umask says."""
    before = os.umask(0)
    try:
        ledgers.set_limits("patients", 1.0)
    finally:
        os.umask(before)
    path = only_file(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_charges_are_found_by_study(ledgers: Ledgers) -> None:
    """The ledger that a study is charged to, and none for another study."""
    ledgers.set_limits("staff", 1.0)
    patients = ledgers.set_limits("patients", 1.0).ledger
    ledgers.save(patients.charge(STUDY, 0.5, 0.0, None), {STUDY: NOTE})
    found = ledgers.ledger_of(STUDY)
    assert found is not None
    assert found.ledger.dataset == "patients"
    assert found.notes[STUDY] == NOTE
    assert ledgers.ledger_of(bytes(32)) is None
    assert [each.ledger.dataset for each in ledgers.all_ledgers()] == ["patients", "staff"]


def test_changing_limits_keeps_entries_and_notes(ledgers: Ledgers) -> None:
    """In both directions; below what is spent, nothing more can be signed."""
    start = ledgers.set_limits("patients", 1.0).ledger
    charged = ledgers.save(start.charge(STUDY, 0.5, 0.0, None), {STUDY: NOTE})
    raised = ledgers.set_limits("patients", 2.0, 1e-6, largest_epsilon=1.0, smallest_population=9)
    assert raised.ledger.entries == charged.ledger.entries
    assert (raised.ledger.epsilon_limit, raised.ledger.delta_limit) == (2.0, 1e-6)
    assert not raised.overspent
    lowered = ledgers.set_limits("patients", 0.25)
    assert lowered.overspent
    assert ledgers.open_ledger("patients") == lowered
    assert dict(lowered.notes) == {STUDY: NOTE}
    with pytest.raises(BudgetError, match="exceeds"):
        lowered.ledger.charge(bytes(32), 1e-9, 0.0, 9)
    assert lowered.ledger.charge(STUDY, 0.5, 0.0, None) is lowered.ledger


def test_an_entry_is_never_lost(ledgers: Ledgers) -> None:
    """A command that read the ledger before another one charged it must read it again."""
    stale = ledgers.set_limits("patients", 1.0).ledger
    ledgers.save(stale.charge(STUDY, 0.5, 0.0, None), {STUDY: NOTE})
    for late in (stale, stale.charge(bytes(32), 0.5, 0.0, None)):
        with pytest.raises(HomeError, match="has changed since"):
            ledgers.save(late, {bytes(32): NOTE})
    assert ledgers.ledger_of(STUDY) is not None


def test_an_entry_needs_a_note(ledgers: Ledgers) -> None:
    """People must be able to tell what a charge was for; nothing is written without."""
    start = ledgers.set_limits("patients", 1.0).ledger
    with pytest.raises(ParameterError, match="no note"):
        ledgers.save(start.charge(STUDY, 0.5, 0.0, None))
    assert ledgers.ledger_of(STUDY) is None


def test_an_unknown_data_set(ledgers: Ledgers) -> None:
    """The error lists those that there are."""
    with pytest.raises(HomeError, match="no ledger for the data set 'staff'") as caught:
        ledgers.open_ledger("staff")
    assert "set a budget" in caught.value.hint
    ledgers.set_limits("patients", 1.0)
    with pytest.raises(HomeError) as caught:
        ledgers.open_ledger("staff")
    assert "'patients'" in caught.value.hint


@pytest.mark.parametrize("dataset", ["", "two\nlines", "x" * 1001, "a\ud800"])
def test_names_that_cannot_be_shown(ledgers: Ledgers, dataset: str) -> None:
    """One printable line, as for everything that people compare."""
    with pytest.raises(ParameterError, match="the data set's name"):
        ledgers.set_limits(dataset, 1.0)


@pytest.mark.parametrize(
    ("limit", "problem"), [(float("nan"), "cannot have"), (-1.0, "cannot have"), (1e300, "kept")]
)
def test_limits_that_are_none(ledgers: Ledgers, limit: float, problem: str) -> None:
    """They are refused before anything is written."""
    with pytest.raises(ParameterError, match=problem):
        ledgers.set_limits("patients", limit)
    assert ledgers.all_ledgers() == []


def test_every_cut_and_every_change_of_meaning_is_noticed(ledgers: Ledgers, tmp_path: Path) -> None:
    """A damaged ledger stops everything: its sum could be too low."""
    start = ledgers.set_limits("patients", 1.0).ledger
    ledgers.save(start.charge(STUDY, 0.5, 0.0, None), {STUDY: NOTE})
    path = only_file(tmp_path)
    content = path.read_bytes()
    fields = json.loads(content)
    damaged = [content[:end] for end in range(0, len(content), 5)] + [
        rfc8785.dumps(fields | change)
        for change in (
            {"dataset": "staff"},
            {"entries": fields["entries"] * 2},
            {"epsilon_limit": 0},
            {"epsilon_limit": "1"},
            {"more": None},
        )
    ]
    for data in damaged:
        write_private(path, data)
        with pytest.raises(HomeError, match="is damaged") as caught:
            ledgers.all_ledgers()
        assert path.name in caught.value.message


@for_each("other", ["patients 2025", "Patients  2025", "Pаtients 2025", "Patients-2025"])
def test_a_data_set_that_looks_like_another_has_no_budget_of_its_own(
    ledgers: Ledgers, other: str
) -> None:
    """The same people would have two budgets; the error names the one there is."""
    ledgers.set_limits("Patients 2025", 3.0)
    with pytest.raises(ParameterError, match="looks like 'Patients 2025'"):
        ledgers.set_limits(other, 3.0)
    assert len(ledgers.all_ledgers()) == 1
    ledgers.set_limits("Patients 2025", 4.0)
    ledgers.set_limits("Patients 2026", 4.0)
    (ledgers._path("Patients 2026")).unlink()
