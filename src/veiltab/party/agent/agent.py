"""A curator's agent: it watches the server, and answers what its owner has signed, by a policy.

It signs no study.  It answers a request for new pads, or gives a grant, only for a study whose
contract this home has signed and charged, that the policy names, and that fits its budget.  The
server is asked only about studies that this home knows: what others propose is for the owner to
look at.  Whatever is refused is logged and left, and does not keep the agent from other studies.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

from veiltab.crypto.identity import fingerprint
from veiltab.errors import (
    BudgetError,
    ConnectionFailedError,
    MismatchError,
    NotGrantedError,
    StateError,
    VeiltabError,
)
from veiltab.files.private import locked
from veiltab.party.agent.log import GRANT, NEW_PADS, REFUSED, STARTED, STOPPED, AgentLog
from veiltab.party.agent.policy import Allowance, Policy, read_policy
from veiltab.party.context import PartyContext
from veiltab.party.curator import give_grant
from veiltab.party.evidence import read_log
from veiltab.party.grants import own_grants
from veiltab.party.home import Home
from veiltab.party.known.known import Standing
from veiltab.party.progress import Progress
from veiltab.party.remote import StudySummary
from veiltab.party.times import SECONDS_A_DAY
from veiltab.party.vaults.answers import answer_study
from veiltab.protocol.curator.upload import Prepared
from veiltab.protocol.verify import renew, verify_agreement
from veiltab.wire.contract import Contract, PublicIdentity
from veiltab.wire.messages import Repad, SignedGrant
from veiltab.wire.signed import Signed
from veiltab.wire.states import State

LOG_FILE = "agent.jsonl"
LOCK_FILE = "agent.lock"
LONGEST_WAIT = 900.0
"""Seconds between two tries while the server does not answer."""

LONGEST_REASON = 1000
"""Characters of a reason in the log: a server may send any text."""

OnEvent = Callable[[dict[str, Any]], None]


class AgentStopped(BaseException):
    """The agent was asked to end, like KeyboardInterrupt; what it was doing can be done again."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an agent would do about a study, or why it leaves it to its owner."""

    study: bytes
    title: str
    state: str
    action: str | None
    reason: str | None


@contextmanager
def only_agent(home: Home) -> Iterator[None]:
    """Keep a second agent out of a home."""
    home.check_identity()
    with locked(home.path / LOCK_FILE, 0.0):
        yield


@contextmanager
def open_log(home: Home, *, writing: bool) -> Iterator[AgentLog]:
    """Open the log of a home's agent, to write to it or only to read it."""
    log = AgentLog(home.path / LOG_FILE, writing=writing)
    try:
        yield log
    finally:
        log.close()


@dataclass(eq=False)
class Agent:
    """An agent at work; ``stop`` ends it, and ``on_event`` is told every line of the log."""

    context: PartyContext
    policy_file: Path
    log: AgentLog
    stop: Event = field(default_factory=Event)
    on_event: OnEvent = lambda _: None
    _policy: Policy | None = None
    _done: set[bytes] = field(default_factory=set)

    def run(self) -> None:
        """Watch and answer until ``stop`` is set; a server that does not answer is waited for."""
        policy, failures = self._read_policy(), 0
        self._write(STARTED, policy=str(self.policy_file))
        try:
            while not self.stop.is_set():
                failures = 0 if self._try_round() else failures + 1
                longest = max(LONGEST_WAIT, policy.poll_seconds)
                self.stop.wait(min(policy.poll_seconds * 2.0 ** min(failures, 20), longest))
        except AgentStopped:
            pass
        self._write(STOPPED)

    def _try_round(self) -> bool:
        """Look at every study once; return whether the server answered and the policy was good."""
        try:
            self.step()
        except VeiltabError as error:
            if self.log.broken:
                raise
            self._refuse(None, error)
            return False
        return True

    def step(self) -> None:
        """Look at every study once, and answer what may be answered.

        What goes wrong with one study does not keep the others from their answers.
        """
        policy = self._read_policy()
        away: ConnectionFailedError | None = None
        for line in self._candidates():
            self._check_stop()
            try:
                self._answer(policy, line)
            except ConnectionFailedError as error:
                away = error
            except VeiltabError as error:
                if self.log.broken:
                    raise
                self._refuse(line.study, error)
        if away is not None:
            raise away

    def check(self) -> list[Verdict]:
        """Say what :meth:`step` would do now; nothing is sent, and nothing is logged."""
        policy, verdicts = self._read_policy(), []
        for line in self._candidates():
            action = reason = None
            title = self.context.home.study(line.study).title() or line.title
            try:
                action = self._would(policy, line)
            except VeiltabError as error:
                reason = error.message
            if action is not None or reason is not None:
                verdicts.append(Verdict(line.study, title, line.state, action, reason))
        return verdicts

    def _read_policy(self) -> Policy:
        """Read the policy anew; under another one, every study is looked at again."""
        policy = read_policy(self.policy_file)
        if policy != self._policy:
            self._done.clear()
            self._policy = policy
        return policy

    def _candidates(self) -> list[StudySummary]:
        """Return the studies of this home in which a curator may have something to do.

        Studies that the owner has never looked at are not even asked about.
        """
        known = set(self.context.home.studies())
        return [
            line
            for line in self.context.server.studies()
            if line.study in known
            and line.study not in self._done
            and line.state in (State.SAMPLED, State.RELEASED)
        ]

    def _would(self, policy: Policy, line: StudySummary) -> str | None:
        signed = self._allowed(policy, line)
        if line.state == State.SAMPLED:
            return None if signed is None else "send new pads"
        if signed is None:
            return None
        names = [who.name for who, _, _ in self._grants_due(policy, signed.body)]
        return f"grant {', '.join(names)}" if names else None

    def _answer(self, policy: Policy, line: StudySummary) -> None:
        signed = self._allowed(policy, line)
        if signed is None:
            return
        if line.state == State.SAMPLED:
            answer_study(self.context, signed, self._on_progress, self._log_answer(signed.body))
            return
        for researcher, allowance, kept in self._grants_due(policy, signed.body):
            self._check_stop()
            self._grant(signed, researcher, allowance, kept)
        self._done.add(line.study)

    def _allowed(self, policy: Policy, line: StudySummary) -> Signed[Contract] | None:
        """Return the contract if something is asked for and may be answered; refuse what may not.

        ``None`` if nothing is to be done.
        """
        if not self._is_asked(policy, line):
            return None
        signed = self.context.contract(line.study)
        contract = verify_agreement(signed)
        contract.curator(self.context.identity.party_id)
        self.context.home.ledgers.check_charged(contract)
        check_known(self.context.home, contract)
        if not self._is_covered(policy, contract):
            raise NotGrantedError(
                "the policy names neither this study nor its vault",
                hint="answer it yourself, or name it in the policy",
            )
        if not policy.allows(self.log.answered, contract):
            raise BudgetError(
                f"the policy's budget of epsilon {float(policy.epsilon):g} does not cover another"
                f" study of epsilon {contract.epsilon:g}",
                hint="answer it yourself, or raise the policy's budget",
            )
        return signed

    def _is_asked(self, policy: Policy, line: StudySummary) -> bool:
        """Tell whether this curator's answer is missing, or the policy has anybody to grant.

        Of released studies, of which there may be many, the home's own copy of the contract tells.
        """
        if line.state == State.RELEASED:
            signed = self.context.home.study(line.study).contract()
            asked = (
                signed is not None
                and self._is_covered(policy, signed.body)
                and any(who.find(signed.body) is not None for who in policy.researchers)
            )
            if not asked:
                self._done.add(line.study)
            return asked
        me = self.context.identity.party_id
        status = self.context.server.status(line.study)
        return any(c.party == me and not c.uploaded for c in status.curators)

    def _is_covered(self, policy: Policy, contract: Contract) -> bool:
        stored = contract.stored
        title = None if stored is None else self.context.home.vault(stored.vault).title()
        return policy.covers(contract, title)

    # New pads

    def _log_answer(self, contract: Contract) -> Callable[[Prepared[Repad]], None]:
        def before_sending(answer: Prepared[Repad]) -> None:
            self._check_stop()
            body = answer.message.body
            self._write(
                NEW_PADS,
                **_named(contract),
                rows=body.rows,
                request=body.request_digest.hex(),
                answer=answer.message.digest.hex(),
            )

        return before_sending

    # Grants

    def _grants_due(
        self, policy: Policy, contract: Contract
    ) -> list[tuple[PublicIdentity, Allowance, SignedGrant | None]]:
        """Return whom the policy allows a grant that the server does not have yet.

        One that was made before comes with it: there is never a second one.
        """
        me, study = self.context.identity.party_id, contract.study_id
        given = self._given(contract)
        due = []
        for allowance in policy.researchers:
            researcher = allowance.find(contract)
            if researcher is None or researcher.party_id in given:
                continue
            if not allowance.granted(contract.schema_of(me).names):
                continue
            kept = None
            if (study.hex(), researcher.party_id.hex()) in self.log.granted:
                kept = self._kept_grant(study, researcher)
            due.append((researcher, allowance, kept))
        if due and contract.pads == "one-time":
            raise NotGrantedError(
                "the study has one-time pads, whose grants never pass through the server",
                hint="grant it yourself, with --out, and hand the file over",
            )
        return due

    def _given(self, contract: Contract) -> set[bytes]:
        """Return to whom the server has a grant by this curator, whoever made it and when.

        That a grant has expired or was revoked changes nothing: only the owner gives another one.
        """
        logged, folder = read_log(self.context, contract), self.context.home.study(contract.scope)
        given = own_grants(self.context, contract, logged)
        sent = {grant.body.researcher for grant in given if grant.signed.digest in logged.grants}
        return sent | {signed.body.researcher for signed in folder.revocations()}

    def _kept_grant(self, study: bytes, researcher: PublicIdentity) -> SignedGrant:
        for grant in self.context.home.study(study).grants():
            if grant.body.researcher == researcher.party_id:
                return grant
        raise StateError(
            f"the log has a grant to {researcher.name!r} that this home does not have",
            hint="restore the home from a copy, or grant it yourself",
        )

    def _grant(
        self,
        signed: Signed[Contract],
        researcher: PublicIdentity,
        allowance: Allowance,
        kept: SignedGrant | None,
    ) -> None:
        contract, context = signed.body, self.context

        def before_sending(grant: SignedGrant) -> None:
            self._write(
                GRANT,
                **_named(contract),
                to=_party(researcher),
                attributes=list(grant.body.attributes),
                expires=grant.body.expires,
                grant=grant.body.grant_id.hex(),
            )

        if kept is not None:
            before_sending(kept)
            renewed = renew(kept.signed, context.identity.signing)
            context.server.send_grant(contract.study_id, replace(kept, signed=renewed))
            return
        names = contract.schema_of(context.identity.party_id).names
        expires = context.now + allowance.days * SECONDS_A_DAY
        granted = allowance.granted(names)
        give_grant(context, signed, researcher, granted, expires, before_sending=before_sending)

    # The log

    def _refuse(self, study: bytes | None, error: VeiltabError) -> None:
        """Log why nothing is answered, once for each reason: polls are many."""
        key = "" if study is None else study.hex()
        reason, hint = error.message[:LONGEST_REASON], error.hint[:LONGEST_REASON]
        if not self.log.is_news(key, reason):
            return
        details: dict[str, object] = {"study": key}
        if study is not None:
            details["title"] = self.context.home.study(study).title()
        self._write(REFUSED, **details, code=error.code, reason=reason, hint=hint)

    def _write(self, event: str, **details: object) -> None:
        self.on_event(self.log.write(event, self.context.clock(), **details))

    def _on_progress(self, _: Progress) -> None:
        self._check_stop()

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise AgentStopped


def check_known(home: Home, contract: Contract) -> None:
    """Refuse a contract with a party that this home does not know, has blocked or knows otherwise.

    Whoever signs gets to know all parties; the agent gets to know nobody by itself.
    """
    named = [identity for place, identity in contract.parties() if place != "server"]
    home.known.check(named)
    for identity, standing in zip(named, home.known.standings(named), strict=True):
        if standing is Standing.NEW:
            raise MismatchError(
                f"this home does not know {identity.name!r} (any more), fingerprint"
                f" {fingerprint(identity.party_id)}",
                hint="answer it yourself if you still want to work with them",
            )


def _named(contract: Contract) -> dict[str, object]:
    return {
        "study": contract.study_id.hex(),
        "title": contract.title,
        "epsilon": contract.epsilon,
        "delta": contract.delta,
    }


def _party(identity: PublicIdentity) -> dict[str, str]:
    party = identity.party_id
    return {"name": identity.name, "party": party.hex(), "fingerprint": fingerprint(party)}
