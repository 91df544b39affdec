"""``veiltab study`` and ``veiltab audit``: propose a study, sign it, follow it, end it."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.check import check_command
from veiltab.cli.grant import grant_json, warn_of_ends
from veiltab.cli.main import OrderedGroup
from veiltab.cli.options import PartyOptions, TableSource, party_options, table_options
from veiltab.cli.output import (
    Seconds,
    check_can_ask,
    confirm,
    console,
    count,
    json_option,
    moment,
    print_json,
    print_rows,
    show_help,
    tell,
    tell_waiting,
    warn,
)
from veiltab.cli.party import VERIFIED, meet_parties
from veiltab.cli.terms import (
    ALIGNING,
    alignment_json,
    print_status,
    print_terms,
    show_status,
    status_json,
    terms_json,
)
from veiltab.errors import ParameterError, StateError
from veiltab.party.known.names import readable
from veiltab.party.roles import check_curator
from veiltab.wire.states import IN_ORDER, AuditEvent, State

if TYPE_CHECKING:
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

    A STUDY is named by its title or the beginning of it, or by the first digits of its id.

    \b
    Examples:
      veiltab study example > smoking.toml
      veiltab study check smoking.toml --table patients.csv --id patient_no
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
@click.option("--yes", is_flag=True, help=YES)
@click.option(
    "--anyway", is_flag=True, help="Propose it even if a guess would be nearer to the truth."
)
@party_options
@json_option
def propose_command(
    file: Path | None,
    dataset: str | None,
    source: TableSource,
    out: Path | None,
    recode_out: Path | None,
    verified: tuple[str, ...],
    yes: bool,
    anyway: bool,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Propose the study that FILE describes, and sign it.

    The terms, the plan and what it costs are shown first, and you are asked; also for the
    fingerprints of those whom you have not verified yet.  Then the study is charged to your data
    set, and the other curators can see and sign it.  The same FILE again takes up a proposal that
    was interrupted.

    With --from instead of FILE, look at a table and draft a study file to complete, and a recode
    file to keep; nothing is sent.

    \b
    Examples:
      veiltab study propose --from patients.csv --out smoking.toml --recode-out recode.toml
      veiltab study propose smoking.toml --dataset "Patients 2025"
    """  # noqa: D301 - \b tells click to leave the lines alone
    if file is not None and source.named:
        raise ParameterError(
            "give either a study file or --from, and not both",
            hint="--from drafts a study file; look at it before you propose it",
        )
    if file is not None and (out or recode_out):
        raise ParameterError(
            "--out and --recode-out are for a draft, and a study file is given",
            hint="leave them out, or draft a study file with --from",
        )
    if file is None:
        from veiltab.party.draft import draft_study

        write_draft(party.home, source, draft_study, out, recode_out, as_json=as_json)
    else:
        _propose(party, file, dataset, verified, yes=yes, anyway=anyway, as_json=as_json)


def _propose(
    party: PartyOptions,
    file: Path,
    dataset: str | None,
    verified: tuple[str, ...],
    *,
    yes: bool,
    anyway: bool,
    as_json: bool,
) -> None:
    from veiltab.party.proposal import plan_of
    from veiltab.party.study_file import read_study_file
    from veiltab.party.vaults.steps import known_vault

    home = party.home
    # Before a passphrase is asked for:
    draft = read_study_file(file, home.public, known_vault(home), anyway=anyway)
    check_can_ask(yes=yes)
    home.known.check(draft.identities())  # before anybody reads the terms of an impostor
    with party.session() as session:
        terms = session.preview(draft, dataset)
        if not (as_json and yes):
            screen, expected = console(stderr=as_json), draft.expected_population
            print_terms(screen, terms, home, dataset, expected)
            click.echo(err=as_json)
        meet_parties(home, draft.identities(), verified=verified, yes=yes)
        confirm(f"Propose and sign {draft.title!r} on these terms?", yes=yes)
        study = session.propose(draft, dataset)
        status, contract = study.status(), study.terms
    if as_json:
        from veiltab.party.terms import warnings_of

        plan = plan_of(contract, draft.expected_population)
        about = None if plan is None else plan.as_dict()
        warnings = warnings_of(contract, draft.expected_population)
        print_json({**status_json(status, home), "plan": about, "warnings": warnings})
    else:
        show_status(console(), status, home)


def write_draft(
    home: "Home",
    source: TableSource,
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
    if out is not None and recode_out is not None and out.absolute() == recode_out.absolute():
        raise ParameterError(
            f"both files would be {out}", hint="name two files: the recode file is for you alone"
        )
    table = source.open()
    draft = draft_from(table.batches(list(table.columns), BATCH_ROWS), home.public)
    if out is not None:
        write_output(out, draft.text.encode())
    if recode_out is not None:
        write_private(recode_out, draft.recode.encode())
    _print_draft(draft, source, out, recode_out, as_json=as_json)


def _print_draft(
    draft: "Draft",
    source: TableSource,
    out: Path | None,
    recode_out: Path | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        files = {f"{draft.kind}_file": draft.text, "recode_file": draft.recode}
        print_json({**files, "warnings": list(draft.warnings), "table": source.to_json()})
        return
    for warning in draft.warnings:
        warn(warning)
    for words in source.read_as.values():
        tell(f"The table was read as: {words}")
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


study_group.add_command(check_command)


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
    verified yet.  A signature cannot be taken back; a study can be ended until it is released, and
    then be refunded.

    \b
    Examples:
      veiltab study sign "Smoking and income"
      veiltab study sign 3fa9 --dataset "Taxes 2025" --yes
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        chosen = session.study(study)
        check_curator(chosen.terms, session.identity, "sign it")
        identities = [identity for place, identity in chosen.terms.parties() if place != "server"]
        session.home.known.check(identities)  # before anybody reads the terms of an impostor
        if not (as_json and yes):
            print_terms(console(stderr=as_json), chosen.contract(), session.home, dataset)
            click.echo(err=as_json)
        meet_parties(session.home, identities, verified=verified, yes=yes)
        confirm(f"Sign {chosen.title!r} on these terms?", yes=yes)
        status = chosen.sign(dataset)
        if as_json:
            from veiltab.party.terms import warnings_of

            warnings = warnings_of(chosen.terms)
            print_json({**status_json(status, session.home), "warnings": warnings})
        else:
            show_status(console(), status, session.home)


@study_group.command("status")
@click.argument("study")
@click.option(
    "--wait",
    type=click.Choice(IN_ORDER),
    help="Wait until the study is this far, or further.",
)
@click.option(
    "--timeout",
    type=Seconds(),
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
        aligning = chosen.alignment() if status.state in ALIGNING else None
        if as_json:
            about = {"alignment": alignment_json(aligning)}
            print_json({**status_json(status, session.home), **about})
        else:
            show_status(console(), status, session.home, aligning)
        if status.state == State.RELEASED:
            with suppress(StateError):  # it is archived, and nobody can read it any more
                warn_of_ends(chosen.grants(), session.identity.party_id)


@study_group.command("abort")
@click.argument("study")
@click.option("--reason", required=True, help="What everybody in the study is told.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@party_options
@json_option
def abort_command(study: str, reason: str, yes: bool, party: PartyOptions, as_json: bool) -> None:
    """End STUDY before its release, for good; the server forgets what was pushed.

    What it was charged can then be taken back: veiltab ledger refund.

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
    help="Compare the log with the end that another party has written; may be repeated.",
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
    contract or a release that are not those of the log.  A curator sees to whom everybody has
    granted which attributes, and a researcher what it was granted.

    You leave the end that you were shown at the server, and others theirs.  To compare without the
    server, exchange files.  A server that has signed two different logs is an error.

    \b
    Examples:
      veiltab audit "Smoking and income"
      veiltab audit "Smoking and income" --head-out hospital-head.json
      veiltab audit "Smoking and income" --compare office-head.json --proof proof.json
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.files.disk import check_new
    from veiltab.party.grants import party_names

    for path in (head_out, proof):
        if path is not None:
            check_new(path)  # before a passphrase is asked for
    with party.session() as session:
        chosen = session.study(study)
        audit = chosen.audit(compare, proof=proof)
        me, names = session.identity.party_id, party_names(session.home, chosen.terms)
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
            _event(audit, entry),
            entry.state,
        )
        for entry in audit.entries
    ]
    print_rows(console(), ("no.", "at", "who", "verified", "what", "then"), rows, whole="at")
    click.echo(f"\nThe log is whole.  Its last hash: {audit.hash.hex()}")
    files = {str(path) for path in compare}
    for witness in audit.witnesses:
        who = f"Whoever wrote {witness.who}" if witness.who in files else witness.who
        click.echo(_WITNESSED[witness.verdict].format(who=who, length=witness.length))
    if not audit.witnesses:
        click.echo("Nobody else has said yet what the server has shown to them.")


def _event(audit: "Audit", entry: "AuditEntry") -> str:
    """Say what has happened; of a grant, to whom it was and of which attributes."""
    one = audit.grant_of(entry)
    if one is None:
        return entry.event
    way = "from" if entry.event == AuditEvent.REVOKED else "to"
    return f"{entry.event} {', '.join(one.attributes)} {way} {readable(one.researcher)}"


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
                "grant": None if (one := audit.grant_of(entry)) is None else grant_json(one),
            }
            for entry in audit.entries
        ],
        "witnesses": [
            {"who": w.who, "verdict": w.verdict, "length": w.length, "at": w.at}
            for w in audit.witnesses
        ],
    }


_WORDS = {None: "pinned", True: "yes", False: "no"}


def _verified(
    home: "Home", contract: "Contract", entries: "list[AuditEntry]"
) -> dict[bytes, bool | None]:
    """Return who of those in a log was verified; None for the server, which is pinned."""
    from veiltab.party.known.known import is_verified

    actors = {entry.actor for entry in entries}
    server = contract.server.party_id
    return {actor: None if actor == server else is_verified(home, actor) for actor in actors}
