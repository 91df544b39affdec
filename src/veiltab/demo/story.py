"""Prints the demonstration for people: numbered steps, in plain text if there is no terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from veiltab.cli.output import count, print_rows
from veiltab.demo.demonstration import Demonstration
from veiltab.demo.processes import DemoParty
from veiltab.demo.results import Cell, DemoResults, Reading, StudyResult, exponent

PAIR = 2
"""How many studies there are without δ."""

RARE = 5
"""How many of the rarest cells are shown of what server and researcher could read."""

TWO_ERRORS = 2
"""About 95% of the estimates should be within so many standard errors of the truth."""

Coalition = Mapping[str, Any]
"""As ``veiltab study show --json`` prints it."""


class Story:
    """Prints each step of a demonstration after it has been done."""

    def __init__(self, screen: "Console", demonstration: "Demonstration") -> None:
        """Print on this screen."""
        self._screen = screen
        self._demo = demonstration
        self._step = 0

    def begin(self) -> None:
        """Print what is going to happen."""
        table = self._demo.table
        ways = "the paper's way, with decoys"
        ways += ", and with decoys and a δ" if len(self._demo.terms) > PAIR else ""
        self._say(
            "Whole studies on this machine: real processes, real keys, real HTTP.",
            f"{table.population_size:,} people, four attributes, {table.schema.domain_size} cells:"
            " the paper's Adult table.  Two offices hold two attributes each.  Neither may see"
            " the other's, and the server that joins them may see none.",
            f"The same study is run with the same ε, side by side: {ways}.",
        )

    def enrolled(self) -> None:
        """Print the parties and the plans."""
        parties, people = self._demo.parties, f"{self._demo.table.population_size:,} people"
        self._head("Five parties, each with keys of its own")
        rows = [("server", parties.server.name, f"listens on {self._demo.url}")]
        for curator in parties.curators:
            names = " and ".join(curator.attributes)
            rows.append(("curator", curator.party.name, f"{names} of {people}"))
        only = " and ".join(parties.registry.attributes)
        rows += [("researcher", parties.rivera.name, "to be granted everything")]
        rows += [("researcher", parties.okafor.name, f"to be granted {only}")]
        print_rows(self._screen, ("part", "name", "has"), rows)
        self._commands("id", parties.tax.party)
        self._commands("server invite", to=parties.tax.party.name)
        self._commands("register", parties.tax.party)
        self._plans()

    def _plans(self) -> None:
        self._head("The plans: what is done to the records, and how far off the estimate will be")
        self._commands("plan")
        names = ("study", "ε", "δ", "rows", "decoys", "kept", "RMSE")
        rows = [
            (
                terms.title,
                f"{plan['epsilon']:g}",
                exponent(plan["delta"]),
                f"{plan['expected_rows']:,.0f}",
                f"{plan['decoys']['expected']:,.0f}" if plan["decoys"] else "none",
                f"{100 * plan['keep_probability']:.1f}%",
                f"{plan['rmse']:.5f}",
            )
            for terms, plan in zip(self._demo.terms, self._demo.plans, strict=True)
        ]
        print_rows(self._screen, names, rows, numbers=len(names) - 1)
        self._say(
            "Decoys are records that the curators invent; rows and decoys are expected numbers."
            "  “Kept” is the share of the rows that the server leaves as they are; the others"
            " become random.  RMSE is the error (ℓ₂) to expect for the hardest data."
        )

    def agreed(self) -> None:
        """Print what the second curator read before it signed."""
        demo = self._demo
        self._head("The curators agree")
        self._commands("study propose")
        self._commands("study show")
        self._say("The Tax office reads what each coalition would learn of a person (ε):")
        names = ("who", *(terms.title for terms in demo.terms))
        rows = [(who, *(_promise(c) for c in same)) for who, same in _by_who(demo.coalitions)]
        print_rows(self._screen, names, rows, numbers=len(demo.terms))
        self._commands("study sign")
        self._say("Each signature was charged to a privacy budget before it left.")

    def pushed(self) -> None:
        """Print the uploads, and what the server could see of them."""
        self._head("The curators push, the server joins and perturbs")
        self._commands("push")
        self._say(
            "The curators compare keyed digests of their respondents and of their decoys, put both"
            " into the same secret order, and send them encrypted and without ids."
        )
        self._head("What the server saw")
        self._received()
        column, files = self._demo.column, self._demo.files
        self._say(
            f"Evenly spread, as random values are (χ² test: p = {column.p_value:.2f})."
            f"  Of the {self._demo.table.population_size:,} ids, {files.ids_found or 'none'} can be"
            " found in its files.",
            f"After the release: {count(len(files.received), 'chunk')} of unperturbed ciphertext,"
            f" and {count(len(files.released), 'perturbed column')}, still encrypted.",
        )

    def _received(self) -> None:
        demo, column = self._demo, self._demo.column
        self._say(
            f"For {demo.examined[0].title!r}: {count(len(demo.received), 'chunk')},"
            f" {sum(demo.received):,} bytes.  One is {column.attribute!r}, encrypted:"
        )
        total, sent = sum(column.table), sum(column.received)
        rows = [
            (name, f"{100 * in_table / total:.1f}%", f"{100 * on_server / sent:.1f}%")
            for name, in_table, on_server in zip(
                column.categories, column.table, column.received, strict=True
            )
        ]
        names = (column.attribute, "in the table", "on the server")
        print_rows(self._screen, names, rows, numbers=2)

    def estimated(self) -> None:
        """Print what the researchers could see."""
        demo = self._demo
        self._head(f"What {demo.parties.rivera.name} finds, granted by both curators")
        self._commands("grant", to=demo.parties.rivera.name)
        self._commands("estimate", demo.parties.rivera)
        print_rows(self._screen, *_joint_table(demo.results), numbers=1 + len(demo.results))
        self._screen.print()
        names = ("the whole table", "ℓ₂ error", "predicted", f"within {TWO_ERRORS} std. errors")
        rows = [
            (
                each.title,
                f"{each.l2_error:.5f}",
                f"{each.predicted_rmse:.5f}",
                f"{each.within(TWO_ERRORS)} of {len(each.cells)} cells",
            )
            for each in demo.results
        ]
        print_rows(self._screen, names, rows, numbers=3)
        self._second()

    def _second(self) -> None:
        demo, second = self._demo, self._demo.second
        self._head(f"What {second.name} finds, granted by {demo.parties.registry.party.name} alone")
        self._commands("grant", to=second.name)
        self._commands("estimate", demo.parties.okafor)
        rows = [(*cell.categories, _percent(cell.truth), _estimate(cell)) for cell in second.cells]
        names = (*second.granted, "truth, in %", "estimate")
        print_rows(self._screen, names, rows, numbers=2)
        self._say(f"The other command, with {second.asked[-1]!r}, was refused:")
        self._say(f"  error: {second.error}", f"  hint: {second.hint}")

    def published(self) -> None:
        """Print the published copy, and what server and researcher could read together."""
        demo, copy = self._demo, self._demo.published
        self._head("What everybody else may read: a published copy")
        self._commands("publish")
        own = next(each for each in demo.results if each.title == copy.title)
        self._say(
            "A curator knows the decoys and could subtract them.  So what leaves the researcher's"
            f" hands has noise of its own, for ε = {copy.epsilon:g} against all who only read it.",
        )
        rows = [
            (name, f"{each.l2_error:.5f}", f"{each.predicted_rmse:.5f}")
            for name, each in (("the researcher's own estimate", own), ("published copy", copy))
        ]
        print_rows(self._screen, (copy.title, "ℓ₂ error", "predicted"), rows, numbers=2)
        self._together()

    def _together(self) -> None:
        readings = self._demo.readings
        first, people = readings[0], [f"{number:,}" for number in readings[0].people]
        self._head(f"What the server and {self._demo.parties.rivera.name} could read together")
        self._say(
            "The server's operator has kept a copy of all uploads, which nobody can notice, and the"
            " researcher has the keys.  Together they open every row, without noise.  The rarest"
            " cells, and all of them:"
        )
        rows = [
            (
                ", ".join(first.categories[cell]),
                people[cell],
                *(f"{reading.rows[cell]:,}" for reading in readings),
            )
            for cell in first.rarest[:RARE]
        ]
        totals = tuple(f"{sum(reading.rows):,}" for reading in readings)
        rows.append(("all cells", f"{sum(first.people):,}", *totals))
        names = ("paper", "decoys", "decoys, δ")[: len(readings)]
        print_rows(self._screen, ("cell", "people", *names), rows, numbers=1 + len(readings))
        for reading in readings:
            self._say(f"{reading.title}: {_verdict(reading)}")

    def stored(self) -> None:
        """Print the study that agents have answered."""
        stored, rivera = self._demo.stored, self._demo.parties.rivera.name
        self._head("The same tables, stored once for many studies")
        self._commands("vault")
        self._say(
            f"Both offices have stored {stored.rows_stored:,} rows, encrypted.  A study draws from"
            " them; each office answers with new pads for the drawn rows alone.  Both have signed"
            " one more study, and gone home.  Their agents answer, within a policy:"
        )
        self._commands("agent")
        names = ("agent of", "new pads for", "then")
        rows = [
            (agent.curator, f"{agent.rows:,} rows", f"a grant to {rivera}")
            for agent in stored.agents
        ]
        print_rows(self._screen, names, rows)
        self._say(
            f"{rivera} estimates again: ℓ₂ error {stored.l2_error:.5f}, and"
            f" {stored.predicted_rmse:.5f} was predicted.  It is the paper's way: the server knows"
            " a person again in every study on stored tables, and could tell decoys apart."
        )

    def verified(self, results: DemoResults) -> None:
        """Print the log and the ledgers."""
        server = results.server
        self._head("Everybody checks")
        self._commands("audit")
        times = Counter(str(entry["event"]) for entry in server.entries)
        events = [name if number == 1 else f"{name} ({number})" for name, number in times.items()]
        self._say(
            f"The log is a chain of {len(server.entries)} entries: {', '.join(events)}.  All"
            f" {len(server.verified_by)} verified it, and saw the same end, {server.head[:16]}…"
        )
        self._commands("ledger show")
        rows = []
        for each in results.ledgers:
            limit, before = f"{each.after['epsilon_limit']:g}", f"{each.before['epsilon_left']:g}"
            spent, most = (exponent(each.after[f"delta_{key}"]) for key in ("spent", "limit"))
            after = f"{each.after['epsilon_left']:g}"
            data = each.after["dataset"]
            rows.append((each.curator, data, limit, before, after, f"{spent} of {most}"))
        names = ("curator", "data set", "ε limit", "left before", "left after", "δ spent")
        print_rows(self._screen, names, rows, numbers=4)

    def end(self, results: DemoResults, report: Path, kept: Path | None) -> None:
        """Print where the report is, and how long everything took."""
        self._head("The report")
        self._say(f"{report}: one file, for any browser.")
        if kept is not None:
            self._say(f"{kept}: every party's folder, as it was.")
        self._say(f"{results.commands} commands in {results.seconds:.1f} s.")

    def _head(self, text: str) -> None:
        self._step += 1
        self._screen.print()
        self._screen.print(Text(f"{self._step}  {text}", style="bold cyan"))

    def _commands(self, kind: str, party: "DemoParty | None" = None, to: str = "") -> None:
        """Print the commands of a kind that were run: all, one party's, or those naming ``to``."""
        for name, command in self._demo.processes.history:
            wanted = party is None or party.name == name
            if wanted and command.startswith(f"veiltab {kind} ") and to in command:
                shown = Text.assemble((f"{name} $ ", "dim"), command.removesuffix(" --json"))
                self._screen.print(shown, no_wrap=True, overflow="ellipsis")

    def _say(self, *paragraphs: str) -> None:
        for paragraph in paragraphs:
            self._screen.print(Text(paragraph))


def _joint_table(
    results: Sequence[StudyResult],
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the headings and the rows; the first half of the attributes groups the rows."""
    split = len(results[0].names) // 2
    rows: list[tuple[str, ...]] = []
    group: tuple[str, ...] = ()
    for cells in zip(*(result.cells for result in results), strict=True):
        first = cells[0]
        if first.categories[:split] != group:
            group = first.categories[:split]
            rows.append((", ".join(group), *("" for _ in range(1 + len(results)))))
        name = ", ".join(first.categories[split:])
        rows.append((f"  {name}", _percent(first.truth), *(_estimate(each) for each in cells)))
    names = [f"{', '.join(results[0].names)}, in %", "truth", *(each.short for each in results)]
    return names, rows


def _by_who(studies: Sequence[Sequence[Coalition]]) -> list[tuple[str, list[Coalition]]]:
    """Return each coalition with what all studies say of it."""
    return [
        (who, [next(c for c in study if c["who"] == who) for study in studies])
        for who in (str(coalition["who"]) for coalition in studies[0])
    ]


def _promise(coalition: Coalition) -> str:
    epsilon = coalition["epsilon"]
    if epsilon is None:
        return "no bound"
    delta = f", δ = {exponent(coalition['delta'])}" if coalition["delta"] else ""
    return f"{epsilon:.3g}{delta}" if epsilon else "nothing"


def _verdict(reading: Reading) -> str:
    """Say what the rows tell about a person."""
    if reading.epsilon is None:
        return "every row is the record of a person, as it is; no ε holds any more."
    mean, deviation = reading.decoys
    return (
        f"about {mean:.1f} ± {deviation:.1f} rows of each cell are invented, and nobody but the"
        f" curators knows how many; ε = {reading.epsilon:g} still holds."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _estimate(cell: Cell) -> str:
    return f"{100 * cell.share:.2f} ± {100 * cell.standard_error:.2f}"
