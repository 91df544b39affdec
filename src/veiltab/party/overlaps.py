"""Overlap counts: asking how many people curators have in common, and reading the answer."""

from collections.abc import Sequence
from typing import get_args

from veiltab.core.overlap import OverlapEstimate, OverlapPlan, plan_overlap
from veiltab.errors import ParameterError, StateError
from veiltab.party.context import PartyContext
from veiltab.party.evidence import fetch_overlap
from veiltab.party.proposal import StudyDraft
from veiltab.party.study_file import MOST_ID_COLUMNS
from veiltab.wire.codec import check_typed
from veiltab.wire.contract import Contract, CuratorTerms, Linkage, Normalisation, PublicIdentity
from veiltab.wire.mechanism import OverlapTerms
from veiltab.wire.states import State

RULES: tuple[Normalisation, ...] = get_args(Normalisation)
"""The rules that make ids alike, in the order in which they are applied."""


def draft_overlap(
    title: str,
    me: PublicIdentity,
    others: Sequence[PublicIdentity],
    plan: OverlapPlan,
    linkage: Linkage,
) -> StudyDraft:
    """Return an overlap count that can be proposed: a study without values and researchers."""
    return StudyDraft(
        title=check_typed(title, "the title"),
        epsilon=plan.epsilon,
        delta=0.0,
        population=None,
        mechanism=OverlapTerms.from_plan(plan),
        pads="stream",
        linkage=linkage,
        curators=tuple(CuratorTerms(identity, ()) for identity in (me, *others)),
        researchers=(),
    )


def plan_count(
    me: PublicIdentity, others: Sequence[PublicIdentity], epsilon: float, people: int
) -> OverlapPlan:
    """Plan a count with these parties; refuse one that comes twice."""
    seen = {me.party_id}
    for identity in others:
        if identity.party_id in seen:
            raise ParameterError(
                f"{identity.name!r} is named twice, or is you",
                hint="name each of the other curators once",
            )
        seen.add(identity.party_id)
    return plan_overlap(people, epsilon, len(seen))


def id_linkage(columns: int, normalisation: Sequence[str]) -> Linkage:
    """Return how ids are compared: the same on every side, or nobody would match."""
    unknown = [rule for rule in normalisation if rule not in RULES]
    if unknown:
        raise ParameterError(
            f"ids cannot have the rule {unknown[0]!r}", hint=f"rules are {', '.join(RULES)}"
        )
    if not 1 <= columns <= MOST_ID_COLUMNS:
        raise ParameterError(
            f"ids cannot have {columns:,} columns", hint=f"from 1 to {MOST_ID_COLUMNS} columns"
        )
    rules = tuple(rule for rule in RULES if rule in normalisation)
    return Linkage.by_ids(columns, rules, "matched")


def read_overlap(context: PartyContext, contract: Contract) -> OverlapEstimate:
    """Fetch the number, verify it, and return what it says."""
    if contract.overlap is None:
        raise ParameterError(
            f"{contract.title!r} is a study of values, and not an overlap count",
            hint="its researcher estimates it: veiltab estimate",
        )
    status = context.server.status(contract.study_id)
    if status.state != State.RELEASED:
        reason = f": {status.reason}" if status.reason else ""
        raise StateError(
            f"the overlap count is {status.state}{reason}, and there is no number yet",
            hint="every curator has to sign it and to push its ids; see veiltab study status",
        )
    return fetch_overlap(context, contract)
