"""Joint statistics across organisations that may not share records, under differential privacy.

Before a study
    ``plan``            the best sample size and noise for a promise, and the error to expect
    ``simulate``        an estimate from one simulated release of a table of counts
    ``rehearse``        a whole study in this process, with tables as the curators have them
    ``plan_overlap``    an ``OverlapPlan``: how far off a count of people in common would be

Taking part, over the network
    ``Home``            the folder of one identity: ``create``, ``register``, ``set_budget``
    ``Home.connect``    a ``Session`` with the server: ``propose`` a study, or find a ``study``
    ``Study``           ``sign``, ``check``, ``push``, ``wait``, ``grant``, ``estimate``,
                        ``publish``, ``audit``; on a vault ``answer`` in place of ``push``
    ``OverlapEstimate``  how many people curators have in common, by ``Study.overlap``
    ``Vault``           tables stored once for many studies: ``sign``, ``push``, ``close``

After a release
    ``Estimate``        tables, shares, ratios and tests, each with its error; ``load`` and ``save``
    ``Quantity``        one estimated number with its interval
    ``ModelFit``        a regression or log-linear model: coefficients, predictions, contrasts
    ``WeightedQuantity``  the same with survey weights, and what their bins leave open
    ``CategoryQuantile``  the category in which a quantile lies
    ``HypothesisTest``  the answer of a test: a statistic and its p-value
    ``CalibratedEstimate``  an estimate that agrees with margins known from elsewhere
    ``compare``, ``pool``  two releases or more: a ``Comparison``, a ``PooledEstimate``

Tables
    ``open_table``      a file, a database or a data frame, as ``push`` and ``rehearse`` read it
    ``Attribute``, ``Schema``     columns as a study sees them: names and categories
    ``Bins``, ``ValueMap``, ``Recode``   how raw values become categories
    ``IdColumns``       which columns are the ids, and how dates are written in them
    ``encode_table``, ``decode_cells``   from a data frame to codes, and back
    ``CountTable``, ``read_counts``      a table of counts, for ``simulate``
    ``adult_table``, ``adult_records``   the UCI Adult data, which is built in

Running a server
    ``create_app``      the service as an ASGI application; ``veiltab serve`` is the usual way

Whatever goes wrong is a ``VeiltabError`` with a ``code``, a ``message`` and a ``hint``; the module
``errors`` has a class for each kind.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veiltab import errors
    from veiltab.core.overlap import OverlapEstimate, OverlapPlan, plan_overlap
    from veiltab.core.plan import Plan, plan
    from veiltab.core.schema import Attribute, CountTable, Schema
    from veiltab.data.counts import adult_records, adult_table, read_counts
    from veiltab.data.encoding import decode_cells, encode_table
    from veiltab.data.recode import Bins, IdColumns, Recode, ValueMap
    from veiltab.data.tables import open_table
    from veiltab.errors import VeiltabError
    from veiltab.estimates import (
        CalibratedEstimate,
        CategoryQuantile,
        Comparison,
        Estimate,
        HypothesisTest,
        ModelFit,
        PooledEstimate,
        Quantity,
        WeightedQuantity,
        compare,
        pool,
    )
    from veiltab.hosting import create_app
    from veiltab.party.home import Home
    from veiltab.party.session import Session
    from veiltab.party.study import Study
    from veiltab.party.vaults.vault import Vault
    from veiltab.rehearsal import rehearse, simulate

__version__ = "0.1.0"

__all__ = [
    "Attribute",
    "Bins",
    "CalibratedEstimate",
    "CategoryQuantile",
    "Comparison",
    "CountTable",
    "Estimate",
    "Home",
    "HypothesisTest",
    "IdColumns",
    "ModelFit",
    "OverlapEstimate",
    "OverlapPlan",
    "Plan",
    "PooledEstimate",
    "Quantity",
    "Recode",
    "Schema",
    "Session",
    "Study",
    "ValueMap",
    "Vault",
    "VeiltabError",
    "WeightedQuantity",
    "__version__",
    "adult_records",
    "adult_table",
    "compare",
    "create_app",
    "decode_cells",
    "encode_table",
    "errors",
    "open_table",
    "plan",
    "plan_overlap",
    "pool",
    "read_counts",
    "rehearse",
    "simulate",
]

# Each name is imported when it is first used: a plan needs no NumPy, and an estimate no web server.
_MODULES = {
    "Attribute": "core.schema",
    "Bins": "data.recode",
    "CategoryQuantile": "estimates",
    "CalibratedEstimate": "estimates",
    "Comparison": "estimates",
    "CountTable": "core.schema",
    "Estimate": "estimates",
    "Home": "party.home",
    "ModelFit": "estimates",
    "HypothesisTest": "estimates",
    "IdColumns": "data.recode",
    "OverlapEstimate": "core.overlap",
    "OverlapPlan": "core.overlap",
    "Plan": "core.plan",
    "PooledEstimate": "estimates",
    "Quantity": "estimates",
    "Recode": "data.recode",
    "Schema": "core.schema",
    "Session": "party.session",
    "Study": "party.study",
    "ValueMap": "data.recode",
    "Vault": "party.vaults.vault",
    "VeiltabError": "errors",
    "WeightedQuantity": "estimates",
    "adult_records": "data.counts",
    "adult_table": "data.counts",
    "compare": "estimates",
    "create_app": "hosting",
    "decode_cells": "data.encoding",
    "encode_table": "data.encoding",
    "open_table": "data.tables",
    "plan": "core.plan",
    "plan_overlap": "core.overlap",
    "pool": "estimates",
    "read_counts": "data.counts",
    "rehearse": "rehearsal",
    "simulate": "rehearsal",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return import_module("veiltab.errors")
    if name not in _MODULES:
        raise AttributeError(f"module 'veiltab' has no attribute {name!r}")
    value = getattr(import_module(f"veiltab.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
