"""A release, as everybody reads it before trusting it: whose it is, what it promises (spec 11)."""

from collections.abc import Sequence
from dataclasses import dataclass

from veiltab.core.plan import Plan
from veiltab.core.schema import Attribute
from veiltab.errors import InputError, MismatchError, PromiseError
from veiltab.roles.columns import Digests, check_column_names
from veiltab.roles.signatures import verify
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Release, Upload
from veiltab.wire.signed import Signed


@dataclass(frozen=True, slots=True)
class Share:
    """What one curator's attributes are read from: its positions, if any, and their columns."""

    positions: Digests | None
    columns: tuple[tuple[Attribute, Digests], ...]


def shares(contract: Contract, release: Release, attributes: Sequence[str]) -> list[Share]:
    """Return what is read for these attributes, curator by curator, in the order of first use.

    Of every share one chunk is read, positions first, and then the next chunk of every share.
    """
    holder = {each.name: terms.party_id for terms in contract.curators for each in terms.attributes}
    columns = {column.attribute: column.chunks for column in release.columns}
    positions = {upload.curator: upload.positions for upload in release.uploads}
    wanted = [
        each for name in attributes for each in contract.schema.attributes if each.name == name
    ]
    return [
        Share(
            positions[curator],
            tuple((each, columns[each.name]) for each in wanted if holder[each.name] == curator),
        )
        for curator in dict.fromkeys(holder[each.name] for each in wanted)
    ]


def verify_release(contract: Contract, signed: Signed[Release]) -> tuple[Release, Plan]:
    """Return a release that the contract's server has signed, with the plan that it follows."""
    released = verify(signed, [contract.server.signing_key])
    _check_release(contract, released)
    return released, _checked_plan(contract, released)


def check_own_upload(release: Release, upload: Signed[Upload]) -> None:
    """Refuse a release that was not made of a curator's own upload, before pads are given out."""
    body = upload.body
    own = [each.digest for each in release.uploads if each.curator == body.curator]
    if own != [upload.digest] or body.population not in (None, release.population):
        raise MismatchError(
            "the release was not made of the table that you have pushed",
            hint="grant nothing; show the release to the other curators and ask the operator",
        )


def _check_release(contract: Contract, release: Release) -> None:
    schema = contract.schema
    curators = tuple(terms.party_id for terms in contract.curators)
    positions = release.uploads[0].positions is not None
    fresh = contract.sampling.by == "server" and contract.stored is None
    if (
        release.study != contract.study_id
        or release.cells != schema.domain_size
        or tuple(upload.curator for upload in release.uploads) != curators
        or positions != fresh
    ):
        raise MismatchError(
            "the release does not belong to the contract",
            hint="fetch the release of this study; its curators, cells and form must agree",
        )
    check_column_names(release.columns, schema)


def _checked_plan(contract: Contract, release: Release) -> Plan:
    """Recompute the promise from the release's own numbers (spec 4.1)."""
    if (release.epsilon, release.delta) != (contract.epsilon, contract.delta) or (
        release.accounting not in ("pure-1", contract.accounting)
        or contract.sampling.size not in (None, release.sample_size)
        or contract.population not in (None, release.population)
    ):
        raise PromiseError(
            "the release states other parameters than the contract",
            hint="do not use it; ask the curators and the server what happened",
        )
    try:
        return Plan(
            population_size=release.population,
            domain_size=release.cells,
            epsilon=release.epsilon,
            delta=release.delta,
            sample_size=release.sample_size,
            keep_threshold=release.keep_threshold,
            accounting=release.accounting.partition("-")[0],
        )
    except InputError as error:
        raise PromiseError(
            f"the release does not keep its promise: {error.message}",
            hint="do not use it; ask the curators and the server what happened",
        ) from error
