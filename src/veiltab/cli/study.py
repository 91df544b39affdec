"""``veiltab study`` and ``veiltab audit``: propose a study, sign it, follow it, end it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.main import OrderedGroup
from veiltab.cli.options import PartyOptions, open_source, party_options, table_options
from veiltab.cli.output import (
    confirm,
    console,
    count,
    json_option,
    moment,
    print_facts,
    print_json,
    print_rows,
    show_help,
    tell,
    tell_waiting,
)
from veiltab.cli.party import VERIFIED, meet_parties
from veiltab.cli.terms import (
    is_verified,
    plan_facts,
    print_coalitions,
    print_parties,
    print_status,
    print_terms,
    show_status,
    status_json,
    terms_json,
)
from veiltab.errors import ParameterError
from veiltab.party.known.names import readable
from veiltab.wire.states import IN_ORDER

if TYPE_CHECKING:
    from veiltab.data.tables import Table
    from veiltab.party.draft import Draft, DraftFrom
    from veiltab.party.home import Home
    from veiltab.party.witnesses import Audit
    from veiltab.wire.audit import AuditEntry
    from veiltab.wire.contract import Contract


FILE = click.Path(dir_okay=False, path_type=Path)
YES = "Do not ask: you have read the terms, and go on with parties that are not verified."
DATASET = "Which of your data sets the study is charged to; needed if you have several."


@click.group("study", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def study_group(context: click.Context) -> None:
    """Propose studies, sign them, and see where they stand.

    A STUDY is named by its exact title, or by the first digits of its id.

    \b
    Examples:
      veiltab study example > smoking.toml
      veiltab study propose smoking.toml
      veiltab study sign "Smoking and income"
      veiltab study status "Smoking and income" --wait released
    """  # noqa: D301 - \b tells click to leave the lines alone
    show_help(context)


@study_group.command("example")
@json_option
def example_command(as_json: bool) -> None:
    """Print a study file with an explanation of every key.

    \b
    Example:
      veiltab study example > smoking.toml
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.study_file import example_study

    if as_json:
        print_json({"study_file": example_study()})
    else:
        click.echo(example_study(), nl=False)


@study_group.command("propose")
@click.argument("file", type=FILE, required=False)
@click.option("--dataset", help=DATASET)
@table_options("--from", "source")
@click.option("--out", type=FILE, help="With --from: the new study file.  stdout by default.")
@click.option("--recode-out", type=FILE, help="With --from: the new recode file.")
@click.option("--verified", metavar="FINGERPRINT", multiple=True, help=VERIFIED)
@click.option("--yes", is_flag=True, help="Do not ask for fingerprints of unverified parties.")
@party_options
@json_option
def propose_command(
    file: Path | None,
    dataset: str | None,
    source: str | None,
    query: str | None,
    table_file: Path | None,
    out: Path | None,
    recode_out: Path | None,
    verified: tuple[str, ...],
    yes: bool,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Propose the study that FILE describes, and sign it.

    The study is charged to your data set, and the other curators can see and sign it.  The same
    FILE again takes up a proposal that was interrupted.  You are asked for the fingerprints of
    those whom you have not verified yet.

    With --from instead of FILE, look at a table and draft a study file to complete, and a recode
    file to keep; nothing is sent.

    \b
    Examples:
      veiltab study propose --from patients.csv --out smoking.toml --recode-out recode.toml
      veiltab study propose smoking.toml --dataset "Patients 2025"
    """  # noqa: D301 - \b tells click to leave the lines alone
    if file is not None and (source is not None or table_file is not None):
        raise ParameterError(
            "give either a study file or --from, and not both",
            hint="--from drafts a study file; look at it before you propose it",
        )
    if file is None:
        from veiltab.party.draft import draft_study

        table = open_source("--from", source, query, table_file)
        write_draft(party.home, table, draft_study, out, recode_out, as_json=as_json)
    else:
        _propose(party, file, dataset, verified, yes=yes, as_json=as_json)


def _propose(
    party: PartyOptions,
    file: Path,
    dataset: str | None,
    verified: tuple[str, ...],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    from veiltab.party.proposal import plan_of
    from veiltab.party.study_file import read_study_file
    from veiltab.party.vaults.steps import known_vault

    home = party.home
    # Before a passphrase is asked for:
    draft = read_study_file(file, home.public, known_vault(home))
    meet_parties(home, draft.identities(), verified=verified, yes=yes)
    with party.session() as session:
        study = session.propose(draft, dataset)
        status, signed = study.status(), study.contract()
    contract = signed.body
    plan = plan_of(contract, draft.expected_population)
    if as_json:
        about = None if plan is None else plan.as_dict()
        print_json({**status_json(status, home), "plan": about})
        return
    screen = console()
    show_status(screen, status, home)
    screen.print()
    print_parties(screen, signed, home)
    screen.print()
    print_facts(screen, plan_facts(contract, plan))
    screen.print()
    print_coalitions(screen, contract)


def write_draft(
    home: "Home",
    table: "Table",
    draft_from: "DraftFrom",
    out: Path | None,
    recode_out: Path | None,
    *,
    as_json: bool,
) -> None:
    """Draft a study file or a vault file from a table, and a recode file."""
    from veiltab.data.tables import BATCH_ROWS
    from veiltab.files.disk import check_new, write_output
    from veiltab.files.private import write_private

    for path in (out, recode_out):
        if path is not None:
            check_new(path)
    draft = draft_from(table.batches(list(table.columns), BATCH_ROWS), home.public)
    if out is not None:
        write_output(out, draft.text.encode())
    if recode_out is not None:
        write_private(recode_out, draft.recode.encode())
    _print_draft(draft, out, recode_out, as_json=as_json)


def _print_draft(
    draft: "Draft", out: Path | None, recode_out: Path | None, *, as_json: bool
) -> None:
    if as_json:
        print_json({f"{draft.kind}_file": draft.text, "recode_file": draft.recode})
        return
    if out is None:
        click.echo(draft.text, nl=False)
    else:
        click.echo(f"Complete {out} where it says FILL IN, and propose it.")
    if recode_out is None:
        tell("The recode file was not written: name one with --recode-out.")
    else:
        tell(f"Keep {recode_out}: push with --recode {recode_out}.")


@study_group.command("list")
@click.option("--inbox", is_flag=True, help="Proposals that name you, and that you have not seen.")
@party_options
@json_option
def list_command(inbox: bool, party: PartyOptions, as_json: bool) -> None:
    """List your studies: those that you have proposed or looked at.

    Anybody can name you in a proposal.  It stays in the inbox until you look at it with `veiltab
    study show`; `veiltab party block` keeps its proposer away.

    \b
    Examples:
      veiltab study list
      veiltab study list --inbox
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        studies = session.studies(inbox=inbox)
        waiting = 0 if inbox or as_json else len(session.studies(inbox=True))
    if as_json:
        print_json({"studies": [summary.to_json() for summary in studies]})
        return
    if studies:
        rows = [(s.study.hex()[:16], s.title, s.state, s.role, moment(s.updated)) for s in studies]
        print_rows(console(), ("study", "title", "state", "your part", "since"), rows)
    else:
        click.echo("Your inbox is empty." if inbox else "You have no study yet.")
    if waiting:
        click.echo(f"In your inbox: {count(waiting, 'proposal')}.  veiltab study list --inbox")


@study_group.command("show")
@click.argument("study")
@party_options
@json_option
def show_command(study: str, party: PartyOptions, as_json: bool) -> None:
    """Show the terms of STUDY: who takes part, with what, for which promise of privacy.

    Compare the fingerprints with the people who are named, by telephone, before you sign.

    \b
    Example:
      veiltab study show "Smoking and income"
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        signed = session.study(study).contract()
    if as_json:
        print_json(terms_json(signed, party.home))
    else:
        print_terms(console(), signed, party.home)


@study_group.command("sign")
@click.argument("study")
@click.option("--dataset", help=DATASET)
@click.option("--verified", metavar="FINGERPRINT", multiple=True, help=VERIFIED)
@click.option("--yes", is_flag=True, help=YES)
@party_options
@json_option
def sign_command(
    study: str,
    dataset: str | None,
    verified: tuple[str, ...],
    yes: bool,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Sign STUDY, and charge it to a data set.

    The terms are shown first, and you are asked for the fingerprints of those whom you have not
    verified yet.  A signature cannot be taken back; a study can be ended until it is released, but
    stays charged.

    \b
    Examples:
      veiltab study sign "Smoking and income"
      veiltab study sign 3fa9 --dataset "Taxes 2025" --yes
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        chosen = session.study(study)
        identities = [identity for place, identity in chosen.terms.parties() if place != "server"]
        session.home.known.check(identities)  # before anybody reads the terms of an impostor
        if not (as_json and yes):
            print_terms(console(stderr=as_json), chosen.contract(), session.home)
            click.echo(err=as_json)
        meet_parties(session.home, identities, verified=verified, yes=yes)
        confirm(f"Sign {chosen.title!r} on these terms?", yes=yes)
        status = chosen.sign(dataset)
        print_status(status, session.home, as_json=as_json)


@study_group.command("status")
@click.argument("study")
@click.option(
    "--wait",
    type=click.Choice(IN_ORDER),
    help="Wait until the study is this far, or further.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    help="Give up after this many seconds.  By default it waits for ever.",
)
@party_options
@json_option
def status_command(
    study: str, wait: str | None, timeout: float | None, party: PartyOptions, as_json: bool
) -> None:
    """Say where STUDY stands, and who has done what.

    \b
    Examples:
      veiltab study status "Smoking and income"
      veiltab study status 3fa9 --wait released --timeout 3600 --json
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        chosen = session.study(study)
        if wait is None:
            status = chosen.status()
        else:
            status = chosen.wait(wait, timeout, progress=tell_waiting)
        print_status(status, session.home, as_json=as_json)


@study_group.command("abort")
@click.argument("study")
@click.option("--reason", required=True, help="What everybody in the study is told.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@party_options
@json_option
def abort_command(study: str, reason: str, yes: bool, party: PartyOptions, as_json: bool) -> None:
    """End STUDY before its release, for good; the server forgets what was pushed.

    What was charged to a data set stays charged.

    \b
    Example:
      veiltab study abort "Smoking and income" --reason "the wrong table was used"
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        chosen = session.study(study)
        confirm(f"End {chosen.status().title!r} for everybody in it?", yes=yes)
        status = chosen.abort(reason)
        print_status(status, session.home, as_json=as_json)


@click.command("audit")
@click.argument("study")
@click.option(
    "--head-out",
    type=FILE,
    help="Write the signed end of the log to this new file, for others to compare.",
)
@click.option(
    "--compare",
    type=FILE,
    multiple=True,
    help="Compare the log with the end that another party has written; repeatable.",
)
@click.option(
    "--proof",
    type=FILE,
    help="Write the proof to this new file if the server has signed two different logs.",
)
@party_options
@json_option
def audit_command(
    study: str,
    head_out: Path | None,
    compare: tuple[Path, ...],
    proof: Path | None,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Fetch and verify the audit log of STUDY, and compare it with what others were shown.

    Every entry holds a hash of the one before, and the server signs the end.  What you have seen
    is remembered: a log that is shorter or different the next time is an error, and so are a
    contract or a release that are not those of the log.

    You leave the end that you were shown at the server, and others theirs.  To compare without the
    server, exchange files.  A server that has signed two different logs is an error.

    \b
    Examples:
      veiltab audit "Smoking and income"
      veiltab audit "Smoking and income" --head-out hospital-head.json
      veiltab audit "Smoking and income" --compare office-head.json --proof proof.json
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        chosen = session.study(study)
        audit = chosen.audit(compare, proof=proof)
        me, names = session.identity.party_id, _names(session.home, chosen.terms)
        verified = _verified(session.home, chosen.terms, audit.entries)
    if head_out is not None:
        audit.save_head(head_out)
    if as_json:
        print_json(_audit_json(chosen.id, audit, names, verified))
        return
    rows = [
        (
            str(entry.sequence),
            moment(entry.at),
            readable(names.get(entry.actor, entry.actor.hex()[:16])),
            "you" if entry.actor == me else _WORDS[verified[entry.actor]],
            entry.event,
            entry.state,
        )
        for entry in audit.entries
    ]
    print_rows(console(), ("no.", "at", "who", "verified", "what", "then"), rows)
    click.echo(f"\nThe log is whole.  Its last hash: {audit.hash.hex()}")
    files = {str(path) for path in compare}
    for witness in audit.witnesses:
        who = f"Whoever wrote {witness.who}" if witness.who in files else witness.who
        click.echo(_WITNESSED[witness.verdict].format(who=who, length=witness.length))
    if not audit.witnesses:
        click.echo("Nobody else has said yet what the server has shown to them.")


_WITNESSED = {
    "same": "{who} was shown the same log.",
    "behind": "{who} was shown the first {length:,} entries of it.",
    "invalid": "{who} has left something that the server has not signed; it says nothing.",
}


def _audit_json(
    study: str, audit: "Audit", names: dict[bytes, str], verified: dict[bytes, bool | None]
) -> dict[str, object]:
    return {
        "study": study,
        "length": audit.length,
        "head": audit.hash.hex(),
        "entries": [
            {
                **entry.to_json(),
                "name": names.get(entry.actor),
                "verified": verified[entry.actor],
            }
            for entry in audit.entries
        ],
        "witnesses": [
            {"who": w.who, "verdict": w.verdict, "length": w.length, "at": w.at}
            for w in audit.witnesses
        ],
    }


_WORDS = {None: "pinned", True: "yes", False: "no"}


def _names(home: "Home", contract: "Contract") -> dict[bytes, str]:
    """Return the names in the contract, and of others, such as researchers, those known here."""
    known = {party.party_id: party.name for party in home.known.parties()}
    return known | {identity.party_id: identity.name for _, identity in contract.parties()}


def _verified(
    home: "Home", contract: "Contract", entries: "list[AuditEntry]"
) -> dict[bytes, bool | None]:
    """Return who of those in a log was verified; None for the server, which is pinned."""
    actors = {entry.actor for entry in entries}
    server = contract.server.party_id
    return {actor: None if actor == server else is_verified(home, actor) for actor in actors}
