"""A demonstration without processes: plans and simulated releases stand in for its commands."""

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from veiltab.core.designs import release_design
from veiltab.core.plan import Plan, plan
from veiltab.core.resampling import draw_decoys
from veiltab.data.counts import adult_table
from veiltab.demo.demonstration import Demonstration
from veiltab.demo.operator import ServerFiles
from veiltab.demo.parties import make_parties, make_study_terms
from veiltab.demo.processes import Processes
from veiltab.demo.results import (
    AgentView,
    Cell,
    Column,
    DemoResults,
    LedgerChange,
    PublishedCopy,
    Reading,
    SecondResearcher,
    ServerView,
    StoredResult,
    StudyResult,
)

TABLE = adult_table(24)
CATEGORIES = tuple(product(*(attribute.categories for attribute in TABLE.schema.attributes)))
WHO = (
    *("researcher", "researcher and server", "researcher and curator", "server and curator"),
    "readers of published copies",
)
LEDGER = {
    "dataset": "Register",
    "epsilon_limit": 3.0,
    "epsilon_left": 1.5,
    "epsilon_spent": 1.5,
    "delta_limit": 2e-6,
    "delta_spent": 1e-6,
}


def _study(title: str, chosen: Plan) -> tuple[StudyResult, Reading]:
    """Simulate a study's estimate, and what server and researcher would open together."""
    generator = np.random.default_rng(45_222)
    design = release_design(chosen)
    shares = design.estimate(design.draw(TABLE.counts, 1, generator)[0])
    errors = np.sqrt(design.total.of_sets(np.maximum(shares, 0), 1 / TABLE.counts.size))
    columns = zip(CATEGORIES, TABLE.distribution, shares, errors, strict=True)
    cells = tuple(Cell(each, float(t), float(s), float(e)) for each, t, s, e in columns)
    law, coin = chosen.mechanism.decoys, chosen.coin_probability
    if law is None or coin is None:
        with_server, decoys = None, (0.0, 0.0)
        rows = generator.multivariate_hypergeometric(TABLE.counts, chosen.sample_size or 0)
    else:
        with_server, decoys = chosen.epsilon, (float(law.mean), float(law.variance) ** 0.5)
        rows = generator.binomial(TABLE.counts, coin)
        rows = rows + draw_decoys(law, 1, rows.shape, generator)
    promises = (chosen.epsilon, with_server, chosen.epsilon_with_curator, 0.0, chosen.epsilon)
    coalitions = tuple(
        {"who": who, "epsilon": epsilon, "delta": chosen.delta if who == WHO[0] else 0.0}
        for who, epsilon in zip(WHO, promises, strict=True)
    )
    names = TABLE.schema.names
    people, opened = tuple(TABLE.counts.tolist()), tuple(rows.tolist())
    reading = Reading(
        title, chosen.mechanism_name, with_server, names, CATEGORIES, people, opened, decoys
    )
    return StudyResult(title, "5d" * 32, chosen.as_dict(), coalitions, names, cells), reading


@cache
def demo_results(delta: float = 1e-6) -> DemoResults:
    """Return results as a demonstration with this δ would have them."""
    pairs = []
    for terms in make_study_terms(0.5, delta):
        chosen = plan(
            population_size=TABLE.population_size,
            domain_size=TABLE.schema.domain_size,
            epsilon=terms.epsilon,
            delta=terms.delta,
            mechanism=terms.mechanism,
        )
        pairs.append(_study(terms.title, chosen))
    studies, readings = (tuple(each) for each in zip(*pairs, strict=True))
    close, marginal = studies[1], TABLE.marginal(["education", "marital"])
    parts = tuple(product(*(attribute.categories for attribute in marginal.schema.attributes)))
    entries = [("proposed", "proposed"), ("signed", "proposed"), ("published", "released")]
    return DemoResults(
        studies=studies,
        holders={"Registry office": ("education", "marital"), "Tax office": ("gender", "salary")},
        server=ServerView(
            received=(3246, 2002, 2002, 2001),
            received_later=(),
            released=(3246, 2002, 2002, 2001),
            ids_found=0,
            column=Column(
                "education",
                TABLE.schema.attributes[0].categories,
                (20444, 20935, 3843),
                (5341, 5372, 5374),
                0.94,
            ),
            entries=tuple(
                {"sequence": number, "name": "Registry office", "event": event, "state": state}
                for number, (event, state) in enumerate(entries)
            ),
            head="a1" * 32,
            verified_by=("Registry office", "Tax office", "Dr. Rivera", "Dr. Okafor"),
        ),
        readings=readings,
        published=PublishedCopy(close.title, close.plan, close.names, "c0" * 32, close.cells),
        second=SecondResearcher(
            name="Dr. Okafor",
            granted=("education", "marital"),
            cells=tuple(
                Cell(categories, share, share, 0.001)
                for categories, share in zip(parts, marginal.distribution.tolist(), strict=True)
            ),
            asked=("education", "marital", "salary"),
            error="you have no grant for: 'salary' (Tax office)",
            hint="ask those curators",
        ),
        stored=StoredResult(
            "Adult from the vault",
            "7e" * 32,
            studies[0].plan,
            TABLE.population_size,
            tuple(
                AgentView(name, 1222, ("new pads", "grant"))
                for name in ("Registry office", "Tax office")
            ),
            studies[0].cells,
        ),
        ledgers=(LedgerChange("Registry office", LEDGER, LEDGER),),
        commands=60,
        seconds=20.0,
    )


def finished_demonstration(folder: Path, delta: float = 1e-6) -> Demonstration:
    """Return a demonstration that has gone through all steps, with a few of its commands."""
    results = demo_results(delta)
    processes = Processes()
    processes.stop()
    demo = Demonstration(processes, make_parties(folder), make_study_terms(0.5, delta), TABLE)
    titles = [terms.title for terms in demo.terms]
    processes.history += [
        ("Tax office", "veiltab id new --name 'Tax office' --no-passphrase --json"),
        ("Registry office", "veiltab plan --population 45222 --cells 24 --epsilon 0.5 --json"),
        *(("Tax office", f"veiltab study show '{title}' --json") for title in titles),
        *(("Tax office", f"veiltab push '{title}' --table table.csv --json") for title in titles),
        ("Dr. Rivera", f"veiltab publish '{titles[1]}' --json"),
        ("Tax office", "veiltab vault push 'Adult, stored' --table table.csv --id person --json"),
        ("Tax office", "veiltab agent run --policy policy.toml"),
    ]
    demo.url = "http://127.0.0.1:8470"
    demo.plans = [study.plan for study in results.studies]
    demo.studies = [study.study for study in results.studies]
    demo.coalitions = [study.coalitions for study in results.studies]
    demo.received = results.server.received
    demo.files = ServerFiles((), results.server.released, 0)
    demo.column = results.server.column
    demo.results = list(results.studies)
    demo.readings = list(results.readings)
    demo.second, demo.published = results.second, results.published
    demo.stored = results.stored
    return demo
