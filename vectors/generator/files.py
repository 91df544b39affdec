"""Vector files: what they look like, and where the randomness in them comes from."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from veiltab.crypto.entropy import CipherEntropy

FOLDER = Path(__file__).parents[1]
SEED = 1

Case: TypeAlias = dict[str, Any]
Document: TypeAlias = dict[str, Any]
Builder: TypeAlias = Callable[[], Document]

_LINE = 100


def document(about: str, cases: list[Case], **shared: Any) -> Document:
    """Put cases under one heading; ``shared`` is what all of them refer to."""
    names = [case["name"] for case in cases]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"cases have the same name: {sorted(repeated)}")
    return {"about": about, **shared, "cases": cases}


def case(name: str, expect: object, **inputs: Any) -> Case:
    """Make a case: what goes in, and what must come out."""
    return {"name": name, **inputs, "expect": expect}


def bad(name: str, code: str, **inputs: Any) -> Case:
    """Make a case that must be refused with the error of this code."""
    return case(f"bad_{name}", {"error": code}, **inputs)


def filler(label: str, size: int = 32) -> bytes:
    """Return bytes that look random and depend on the label alone."""
    return hashlib.shake_256(f"veiltab vectors: {label}".encode()).digest(size)


def entropy(label: str) -> CipherEntropy:
    """Return a source that gives the same bytes in every run."""
    return CipherEntropy.from_seed(SEED, f"vectors: {label}")


def render(found: Document) -> bytes:
    """Write a document as ASCII, short values on one line, so that changes can be read."""
    return (_render(found, 0) + "\n").encode("ascii")


def path_of(name: str) -> Path:
    """Return where a document is."""
    return FOLDER / f"{name}.json"


def load(name: str) -> Document:
    """Read a document that was written before."""
    found: Document = json.loads(path_of(name).read_bytes())
    return found


def _render(value: object, depth: int) -> str:
    flat = json.dumps(value)
    if depth + len(flat) <= _LINE or _is_plain(value):
        return flat
    margin = " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_render(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(margin + part for part in parts) + "\n" + " " * depth + "}"
    assert isinstance(value, list)  # noqa: S101 - all that is left
    parts = [_render(item, depth + 1) for item in value]
    return "[\n" + ",\n".join(margin + part for part in parts) + "\n" + " " * depth + "]"


def _is_plain(value: object) -> bool:
    """Tell whether a value is best left on one line, however long it is."""
    if isinstance(value, list):
        return all(isinstance(item, int) for item in value)
    return not isinstance(value, dict)
