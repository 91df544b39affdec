"""``veiltab vault``: tables that are stored once, for many studies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.check import DropCount, dropped_fact
from veiltab.cli.main import OrderedGroup
from veiltab.cli.options import (
    LONG_PATIENCE,
    PartyOptions,
    TableSource,
    meaning_options,
    party_options,
    table_options,
)
from veiltab.cli.output import (
    confirm,
    console,
    json_option,
    moment,
    print_facts,
    print_json,
    print_rows,
    show_help,
    show_progress,
    tell,
    warn,
)
from veiltab.cli.party import VERIFIED, meet_parties
from veiltab.cli.terms import (
    print_attributes,
    print_parties,
    print_status,
)
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.party.home import Home
    from veiltab.party.vaults.remote import VaultStatus
    from veiltab.protocol.curator.table import Duplicates
    from veiltab.wire.contract import Vault
    from veiltab.wire.signed import Signed

FILE = click.Path(dir_okay=False, path_type=Path)
COSTS_NOTHING = "none; only studies on it are charged"
_EMPTY_INBOX = "Your inbox is empty."
_NO_VAULT = "You have no vault yet.  Proposals that name you: veiltab vault list --inbox"


@click.group("vault", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def vault_group(context: click.Context) -> None:
    """Store tables once, encrypted, for many studies.

    A VAULT is named by its title or the beginning of it, or by the first digits of its id.
    Studies draw from it with [vault] in their study file; each one is signed and charged like any
    other.

    \b
    Examples:
      veiltab vault example > tables.toml
      veiltab vault propose tables.toml
      veiltab vault sign "Health and taxes"
      veiltab vault push "Health and taxes" --table patients.csv --id patient_no
      veiltab vault answer "Smoking and income"
    """  # noqa: D301 - \b tells click to leave the lines alone
    show_help(context)


@vault_group.command("example")
@json_option
def example_command(as_json: bool) -> None:
    """Print a vault file with an explanation of every key.

    \b
    Example:
      veiltab vault example > tables.toml
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.vaults.vault_file import example_vault

    if as_json:
        print_json({"vault_file": example_vault()})
    else:
        click.echo(example_vault(), nl=False)


@vault_group.command("propose")
@click.argument("file", type=FILE, required=False)
@table_options("--from", "source")
@click.option("--out", type=FILE, help="With --from: the new vault file.  stdout by default.")
@click.option("--recode-out", type=FILE, help="With --from: the new recode file.")
@click.option("--verified", metavar="FINGERPRINT", multiple=True, help=VERIFIED)
@click.option("--yes", is_flag=True, help="Do not ask for fingerprints of unverified parties.")
@party_options
@json_option
def propose_command(
    file: Path | None,
    source: TableSource,
    out: Path | None,
    recode_out: Path | None,
    verified: tuple[str, ...],
    yes: bool,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Propose the vault that FILE describes, and sign it.

    It costs no privacy: nobody can read anything from a vault before a study on it is signed.  The
    same FILE again takes up a proposal that was interrupted.

    With --from instead of FILE, look at a table and draft a vault file to complete, and a recode
    file to keep; nothing is sent.

    \b
    Examples:
      veiltab vault propose --from patients.csv --out tables.toml --recode-out recode.toml
      veiltab vault propose tables.toml
    """  # noqa: D301 - \b tells click to leave the lines alone
    if file is not None and source.named:
        raise ParameterError(
            "give either a vault file or --from, and not both",
            hint="--from drafts a vault file; look at it before you propose it",
        )
    if file is None:
        from veiltab.cli.study import write_draft
        from veiltab.party.draft import draft_vault

        write_draft(party.home, source, draft_vault, out, recode_out, as_json=as_json)
        return
    from veiltab.party.vaults.vault_file import read_vault_file

    home = party.home
    draft = read_vault_file(file, home.public)  # before a passphrase is asked for
    identities = [terms.identity for terms in draft.curators]
    meet_parties(home, identities, verified=verified, yes=yes)
    with party.session() as session:
        status = session.propose_vault(draft).status()
    _print_status(status, home, as_json=as_json)


@vault_group.command("list")
@click.option("--inbox", is_flag=True, help="List proposals that you have not looked at yet.")
@party_options
@json_option
def list_command(inbox: bool, party: PartyOptions, as_json: bool) -> None:
    """List the vaults that you have looked at.

    \b
    Examples:
      veiltab vault list
      veiltab vault list --inbox
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        vaults = session.vaults(inbox=inbox)
    if as_json:
        print_json({"vaults": [line.to_json() for line in vaults]})
    elif not vaults:
        click.echo(_EMPTY_INBOX if inbox else _NO_VAULT)
    else:
        rows = [(v.vault.hex()[:16], v.title, v.state, moment(v.updated)) for v in vaults]
        print_rows(console(), ("vault", "title", "state", "since"), rows)


@vault_group.command("show")
@click.argument("vault")
@party_options
@json_option
def show_command(vault: str, party: PartyOptions, as_json: bool) -> None:
    """Show the terms of VAULT, and who has signed and stored a table.

    The vault's audit log is verified on the way, as `veiltab audit` does for a study.

    \b
    Example:
      veiltab vault show "Health and taxes"
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        chosen = session.vault(vault)
        signed, status = chosen.terms(), chosen.status()
    if as_json:
        print_json({**_status_json(status, party.home), "terms": signed.body.to_json()})
        return
    _print_terms(signed, party.home, status)


@vault_group.command("sign")
@click.argument("vault")
@click.option("--verified", metavar="FINGERPRINT", multiple=True, help=VERIFIED)
@click.option("--yes", is_flag=True, help="Do not ask: you have read the terms.")
@party_options
@json_option
def sign_command(
    vault: str, verified: tuple[str, ...], yes: bool, party: PartyOptions, as_json: bool
) -> None:
    """Sign VAULT, so that every curator can store a table in it.

    The terms are shown first.  Signing a vault costs no privacy.

    \b
    Example:
      veiltab vault sign "Health and taxes"
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        chosen = session.vault(vault)
        signed = chosen.terms()
        identities = [terms.identity for terms in signed.body.curators]
        session.home.known.check(identities)  # before anybody reads the terms of an impostor
        if not (as_json and yes):
            _print_terms(signed, session.home, stderr=as_json)
            click.echo(err=as_json)
        meet_parties(session.home, identities, verified=verified, yes=yes)
        confirm(f"Sign {signed.body.title!r} on these terms?", yes=yes)
        status = chosen.sign()
    _print_status(status, party.home, as_json=as_json)


@vault_group.command("push")
@click.argument("vault")
@table_options("--table", "table")
@meaning_options
@party_options
@json_option
def push_command(
    vault: str,
    table: TableSource,
    ids: tuple[str, ...],
    recode: Path | None,
    duplicates: "Duplicates | None",
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Store your whole table in VAULT, encrypted.

    The keys of its pads stay in your home, and nowhere else: keep copies of the home.  The push can
    be interrupted at any time; the same command again resumes, and refuses a table that has
    changed.

    \b
    Example:
      veiltab vault push "Health and taxes" --table patients.csv --id patient_no
    """  # noqa: D301 - \b tells click to leave the lines alone
    given = table.open if table.known else None
    with party.session(LONG_PATIENCE) as session:
        chosen = session.vault(vault)
        with show_progress() as show:
            progress = DropCount(show)
            status = chosen.push(
                given, ids, recode=recode, duplicates=duplicates, progress=progress
            )
    for what, rows in dropped_fact(progress.dropped).items():
        warn(f"{what}: {rows}")
    if as_json:
        print_json({**_status_json(status, party.home), "table": table.to_json()})
    else:
        _show_status(status, party.home)
    for words in table.read_as.values():
        tell(f"The table was read as: {words}")
    tell("Back up your home now: the keys of the stored table are there alone.")


@vault_group.command("answer")
@click.argument("study")
@party_options
@json_option
def answer_command(study: str, party: PartyOptions, as_json: bool) -> None:
    """Answer STUDY, which reads a vault, with new pads for its drawn rows.

    Your table is not needed.  There is one answer for each study, which is kept before it is sent:
    the same command again sends the same bytes.  `veiltab agent` does this by itself.

    \b
    Example:
      veiltab vault answer "Smoking and income"
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session(LONG_PATIENCE) as session:
        chosen = session.study(study)
        with show_progress() as progress:
            status = chosen.answer(progress=progress)
        print_status(status, session.home, as_json=as_json)


@vault_group.command("close")
@click.argument("vault")
@click.option("--reason", required=True, help="What everybody in the vault is told.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@party_options
@json_option
def close_command(vault: str, reason: str, yes: bool, party: PartyOptions, as_json: bool) -> None:
    """Close VAULT for everybody, for good; the server deletes its tables.

    Studies whose rows are drawn already go on; those that are not drawn yet end.

    \b
    Example:
      veiltab vault close "Health and taxes" --reason "the tables of 2025 take its place"
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        chosen = session.vault(vault)
        confirm(f"Close {chosen.status().title!r}, and delete all its tables?", yes=yes)
        status = chosen.close(reason)
    _print_status(status, party.home, as_json=as_json)


def _print_terms(
    signed: "Signed[Vault]",
    home: "Home",
    status: "VaultStatus | None" = None,
    *,
    stderr: bool = False,
) -> None:
    from veiltab.party.terms import linkage_words

    vault, screen = signed.body, console(stderr=stderr)
    facts = {
        "vault": vault.title,
        "id": vault.vault_id.hex(),
        "cost": COSTS_NOTHING,
        "table": f"{vault.schema.domain_size:,} cells in every study on it",
        "rows match by": linkage_words(vault.linkage),
        "the server": "stores all rows, encrypted; it can link them from study to study, and not"
        " read them",
    }
    if status is not None:
        from veiltab.wire.states import VaultState

        stored = [curator.name for curator in status.curators if curator.uploaded]
        facts["state"] = f"{status.state}, since {moment(status.updated)}"
        if status.reason is not None:
            facts["reason"] = status.reason
        if status.state == VaultState.CLOSED:
            facts["stored"] = "nothing any more: the server has deleted the tables"
        else:
            facts["stored"] = f"the table of {', '.join(stored)}" if stored else "no table yet"
    print_facts(screen, facts)
    screen.print()
    print_parties(screen, signed, home)
    screen.print()
    print_attributes(screen, vault)


def _print_status(status: "VaultStatus", home: "Home", *, as_json: bool) -> None:
    if as_json:
        print_json(_status_json(status, home))
        return
    _show_status(status, home)


def _show_status(status: "VaultStatus", home: "Home") -> None:
    from veiltab.party.known.known import is_verified
    from veiltab.party.known.names import readable

    facts = {
        "vault": status.title,
        "id": status.vault.hex(),
        "state": status.state,
        "since": moment(status.updated),
    }
    screen = console()
    print_facts(screen, facts | ({} if status.reason is None else {"reason": status.reason}))
    screen.print()
    me = home.public.party_id
    rows = [
        (
            readable(curator.name),
            "you" if curator.party == me else _mark(is_verified(home, curator.party)),
            _mark(curator.signed),
            _mark(curator.uploaded),
        )
        for curator in status.curators
    ]
    print_rows(screen, ("curator", "verified", "signed", "stored"), rows)


def _status_json(status: "VaultStatus", home: "Home") -> dict[str, Any]:
    from veiltab.party.known.known import is_verified

    values = status.to_json()
    for curator in values["curators"]:
        curator["verified"] = is_verified(home, bytes.fromhex(curator["party"]))
    return values


def _mark(done: bool) -> str:
    return "yes" if done else "no"
