"""Every public function, and each method of what researchers work with, is shown and really run."""

import inspect
import re

import pytest

import veiltab as vt
from tests.docs.test_examples import LONG, PLAYED
from tests.support.documents import DOCUMENTS, blocks

WORKED_WITH = (
    *(vt.Estimate, vt.CalibratedEstimate, vt.PooledEstimate, vt.Comparison, vt.ModelFit),
    *(vt.Quantity, vt.WeightedQuantity, vt.CategoryQuantile, vt.HypothesisTest),
    *(vt.Plan, vt.OverlapPlan, vt.OverlapEstimate),
    *(vt.Home, vt.Session, vt.Study, vt.Vault),
    *(vt.Attribute, vt.Schema, vt.Bins, vt.ValueMap, vt.Recode, vt.IdColumns, vt.CountTable),
)
"""What is returned by, or given to, the functions."""

FOR_PROGRAMS = {
    "add_noise": "what a server does",
    "check_identity": "what commands call on a home",
    "count_design": "what errors are computed from",
    "design": "what errors are computed from",
    "not_estimable": "makes the answers that are none",
    **dict.fromkeys(("find_study", "find_vault", "locate", "lock"), "what commands call on a home"),
    **dict.fromkeys(
        ("follow_server", "forget_server", "keep_authority", "meet_server", "pin_server"),
        "what sessions and commands call on a home",
    ),
    **dict.fromkeys(("intended", "preview"), "what the console calls with a form"),
    "publisher": "what publish calls",
    "with_publication": "what publish calls",
}
"""Methods that nobody calls by hand, and what they are for."""


def shown() -> str:
    """Return all Python of the documentation that the tests run."""
    run = (document for document in DOCUMENTS if document not in PLAYED | LONG)
    listed = (block for document in run for block in blocks(document))
    return "".join(b.text for b in listed if b.language == "python" and b.remark is None)


def methods(kind: type) -> set[str]:
    """Return the public methods of a class."""
    return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}


def test_every_public_function_has_an_example_that_runs() -> None:
    """Under the name that users give the package."""
    functions = {name for name in vt.__all__ if inspect.isfunction(getattr(vt, name))}
    assert functions - set(re.findall(r"\bvt\.(\w+)\(", shown())) == set()


@pytest.mark.parametrize("kind", WORKED_WITH)
def test_every_method_has_an_example_that_runs(kind: type) -> None:
    """But for those that only programs call."""
    called = set(re.findall(r"\.(\w+)\(", shown()))
    assert methods(kind) - called - set(FOR_PROGRAMS) == set()


def test_the_list_of_what_only_programs_call_is_not_stale() -> None:
    """Each name on it is still a method."""
    assert set(FOR_PROGRAMS) <= set().union(*map(methods, WORKED_WITH))
