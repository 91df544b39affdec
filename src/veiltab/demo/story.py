"""The demonstration told to people: short headed steps, plain text off a terminal."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from veiltab.cli.output import count, print_rows
from veiltab.demo.processes import Party
from veiltab.demo.results import Cell, DemoResults, StudyResult, exponent
from veiltab.demo.steps import Performance

TWO_ERRORS = 2
"""Standard errors within which about 95 % of the estimates should be."""


class Story:
    """Tells each act when it is over."""

    def __init__(self, screen: "Console", performance: "Performance") -> None:
        """Tell of a performance on a screen."""
        self._screen = screen
        self._of = performance
        self._step = 0

    def begin(self) -> None:
        """Say what is going to happen."""
        table = self._of.table
        self._say(
            "A whole study on this machine: real processes, real keys, real HTTP.",
            f"{table.population_size:,} people, four attributes, {table.schema.domain_size} cells:"
            " the paper's Adult table.  Two offices hold two attributes each.  Neither may see"
            " the other's, and the server that joins them may see none.",
        )

    def enrolled(self) -> None:
        """Tell of the parties and the plans."""
        cast, people = self._of.cast, f"{self._of.table.population_size:,} people"
        self._head("Five parties, each with keys of its own")
        rows = [("server", cast.server.name, f"listens on {self._of.url}")]
        for curator in cast.curators:
            names = " and ".join(curator.attributes)
            rows.append(("curator", curator.party.name, f"{names} of {people}"))
        only = " and ".join(cast.registry.attributes)
        rows += [("researcher", cast.rivera.name, "to be granted everything")]
        rows += [("researcher", cast.okafor.name, f"to be granted {only}")]
        print_rows(self._screen, ("part", "name", "has"), rows)
        self._commands("id", cast.tax.party)
        self._commands("register", cast.tax.party)
        self._plans()

    def _plans(self) -> None:
        self._head("The plan: how many to sample, how much noise to add")
        self._commands("plan")
        names = ("study", "ε", "δ", "ε, order known", "sample", "kept", "RMSE")
        rows = [
            (
                terms.title,
                f"{plan['epsilon']:g}",
                exponent(plan["delta"]),
                f"{plan['epsilon_if_order_known']:.3g}",
                f"{plan['sample_size']:,}",
                f"{100 * plan['keep_probability']:.1f} %",
                f"{plan['rmse']:.4f}",
            )
            for terms, plan in zip(self._of.terms, self._of.plans, strict=True)
        ]
        print_rows(self._screen, names, rows, numbers=len(names) - 1)
        self._say(
            "That part of the sample is kept as it is, and the rest becomes random.  RMSE is the"
            " error (ℓ₂) to expect for the hardest data.  Somebody who also knows the curators'"
            " secret order is held back by the noise alone: that is the second ε."
        )

    def agreed(self) -> None:
        """Tell of the contracts."""
        self._head("The curators agree")
        self._commands("study")
        self._say("Each signature was charged to a privacy budget before it left.")

    def pushed(self) -> None:
        """Tell of the uploads, and of what the server could see of them."""
        self._head("The curators push, the server joins and perturbs")
        self._commands("push")
        self._say(
            "They compare a keyed digest of their respondents, draw the same secret sample in the"
            " same secret order, and send it encrypted and without ids."
        )
        self._head("What the server saw")
        self._received()
        before, after = self._of.before, self._of.after
        found = before.ids_found + after.ids_found
        self._say(
            f"Evenly spread, as random values are (χ² test: p = {self._of.column.p_value:.2f})."
            f"  Of the {self._of.table.population_size:,} ids, {found or 'none'} can be found in"
            " its files.",
            f"After the release: {count(len(after.received), 'chunk')} of unperturbed ciphertext,"
            f" and {count(len(after.released), 'perturbed column')}, still encrypted.",
        )

    def _received(self) -> None:
        of, column, received = self._of, self._of.column, self._of.before.received
        self._say(
            f"In its folder after {of.cast.registry.party.name}'s push to {of.terms[-1].title!r}:"
            f" {count(len(received), 'chunk')}, {sum(received):,} bytes.  One is"
            f" {column.attribute!r}, encrypted:"
        )
        total, sent = sum(column.table), sum(column.received)
        rows = [
            (name, f"{100 * there / total:.1f} %", f"{100 * seen / sent:.1f} %")
            for name, there, seen in zip(
                column.categories, column.table, column.received, strict=True
            )
        ]
        names = (column.attribute, "in the table", "on the server")
        print_rows(self._screen, names, rows, numbers=2)

    def estimated(self) -> None:
        """Tell of what the researchers could see."""
        of = self._of
        self._head(f"What {of.cast.rivera.name} finds, granted by both curators")
        self._commands("grant", to=of.cast.rivera.name)
        self._commands("estimate", of.cast.rivera)
        print_rows(self._screen, *_joint_table(of.results), numbers=1 + len(of.results))
        self._screen.print()
        names = ("study", "ℓ₂ error", "predicted", f"within {TWO_ERRORS} std. errors")
        rows = [
            (
                each.title,
                f"{each.l2_error:.5f}",
                f"{each.predicted_rmse:.5f}",
                f"{each.within(TWO_ERRORS)} of {len(each.cells)} cells",
            )
            for each in of.results
        ]
        print_rows(self._screen, names, rows, numbers=3)
        self._second()

    def _second(self) -> None:
        of, second = self._of, self._of.second
        self._head(f"What {second.name} finds, granted by {of.cast.registry.party.name} alone")
        self._commands("grant", to=second.name)
        self._commands("estimate", of.cast.okafor)
        rows = [(*cell.categories, _percent(cell.truth), _estimate(cell)) for cell in second.cells]
        print_rows(self._screen, (*second.granted, "truth", "estimate"), rows, numbers=2)
        self._say(f"The other command, with {second.asked[-1]!r}, was refused:")
        self._say(f"  error: {second.error}", f"  hint: {second.hint}")

    def verified(self, results: DemoResults) -> None:
        """Tell of the log and the ledgers."""
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
        """Say where the report is, and how long it took."""
        self._head("The report")
        self._say(f"{report}: one file, for any browser.")
        if kept is not None:
            self._say(f"{kept}: every party's folder, as it was.")
        self._say(f"{results.commands} commands in {results.seconds:.1f} s.")

    def _head(self, text: str) -> None:
        self._step += 1
        self._screen.print()
        self._screen.print(Text(f"{self._step}  {text}", style="bold cyan"))

    def _commands(self, kind: str, party: "Party | None" = None, to: str = "") -> None:
        """Show commands that were run: all of a kind, or one party's, or those for somebody."""
        for name, command in self._of.crew.history:
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
    """Return headings and rows: the first half of the attributes as headings between the rows."""
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
    names = [", ".join(results[0].names), "truth", *(f"δ = {each.delta_text}" for each in results)]
    return names, rows


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _estimate(cell: Cell) -> str:
    return f"{100 * cell.share:.2f} ± {100 * cell.standard_error:.2f} %"
