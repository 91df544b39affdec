"""Joint statistics across organisations that may not share records, under differential privacy."""

from typing import TYPE_CHECKING

from veiltab.core.plan import Plan, plan
from veiltab.errors import VeiltabError

if TYPE_CHECKING:
    from veiltab.core.channel import GammaDiagonal
    from veiltab.core.schema import Attribute, Schema
    from veiltab.data.recode import Bins, ValueMap

__all__ = [
    "Attribute",
    "Bins",
    "GammaDiagonal",
    "Plan",
    "Schema",
    "ValueMap",
    "VeiltabError",
    "plan",
]

# Loaded on first use: planning needs none of these, and they would load NumPy.
_HOMES = {
    "Attribute": "veiltab.core.schema",
    "Bins": "veiltab.data.recode",
    "GammaDiagonal": "veiltab.core.channel",
    "Schema": "veiltab.core.schema",
    "ValueMap": "veiltab.data.recode",
}


def __getattr__(name: str) -> object:
    """Import a public name from its home module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'veiltab' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only when needed

    return getattr(import_module(_HOMES[name]), name)
