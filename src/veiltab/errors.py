"""All errors of veiltab: each class has a stable code, and each error a message and a hint.

Commands print ``error: <message>`` and ``hint: <hint>`` and end with ``exit_code``; the HTTP
server answers with ``http_status`` and the code.  ``docs/reference/errors.md`` lists them all.
"""

from dataclasses import dataclass
from typing import ClassVar


class VeiltabError(Exception):
    """The base class of every error that veiltab raises on purpose.

    ``message`` says what is wrong in one line; ``hint`` says what to do about it.
    """

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str) -> None:
        """Keep the message and the hint; both are shown to people."""
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(VeiltabError):
    """The input cannot be used; nothing was done."""

    code = "invalid_input"
    http_status = 422
    exit_code = 2


class ParameterError(InputError):
    """A number is out of its range, or two options contradict each other."""

    code = "invalid_parameter"


class InfeasiblePlanError(InputError):
    """The parameters are valid one by one, but no release can meet them together."""

    code = "infeasible_plan"


class UselessPlanError(InputError):
    """A plan keeps its promise, but its estimates would be worse than a guess."""

    code = "useless_plan"


class SchemaError(InputError):
    """An attribute or a schema is malformed: names, categories, sizes, bins."""

    code = "invalid_schema"


@dataclass(frozen=True, slots=True)
class Offender:
    """A value that no category covers (``None`` if it is missing), and its rows in the table.

    ``rows`` holds the first few row numbers; they count from 1, the first data row.
    """

    column: str
    value: str | None
    count: int
    rows: tuple[int, ...]


class ValueNotInSchemaError(InputError):
    """A table holds values that no category covers; ``offenders`` holds those in the message."""

    code = "value_not_in_schema"

    def __init__(self, message: str, *, hint: str, offenders: tuple[Offender, ...] = ()) -> None:
        """Keep the listed values as data, for callers that show them in their own way."""
        super().__init__(message, hint=hint)
        self.offenders = offenders


class CountsError(InputError):
    """A file of cell counts is not a complete table of whole numbers."""

    code = "invalid_counts"


class ConditionError(InputError):
    """A condition on attributes cannot be read, or no respondent could ever meet it.

    ``position`` is where the mistake is in the text, counted from 0; None if there is no one place.
    """

    code = "invalid_condition"

    def __init__(self, message: str, *, hint: str, position: int | None = None) -> None:
        """Keep the position as data, for callers that point at it."""
        super().__init__(message, hint=hint)
        self.position = position


class FormulaError(InputError):
    """A model's formula cannot be read, uses what it must not, or does not fit the model."""

    code = "invalid_formula"


class ModelError(InputError):
    """Something is asked of a model that was not fitted, or that does not fit what is asked."""

    code = "invalid_model"


class TooFewPeopleError(InputError):
    """Shares are asked of a release with almost nobody in it; they would be ratios of noise."""

    code = "too_few_people"


class CalibrationError(InputError):
    """Margins from elsewhere are malformed, contradict each other, or cannot be reached."""

    code = "calibration_failed"


class OutputError(VeiltabError):
    """A result could not be written to the given place."""

    code = "cannot_write"


class MessageError(VeiltabError):
    """A message from another party was refused; no part of it was used."""

    code = "bad_message"
    http_status = 422


class MalformedError(MessageError):
    """The bytes are not a message of the expected kind: a field, type, range or length is wrong."""

    code = "malformed_message"


class VersionError(MessageError):
    """The message belongs to another version of the protocol."""

    code = "unsupported_version"


class DigestError(MessageError):
    """Bytes do not have the digest that a signed message states."""

    code = "wrong_digest"


class SignatureError(MessageError):
    """A signature is missing, is wrong, or comes from somebody who should not have signed."""

    code = "bad_signature"
    http_status = 403


class RevokedError(MessageError):
    """A party has revoked its keys: nothing that is signed by them is trusted any more."""

    code = "revoked_party"


class SealError(MessageError):
    """A sealed part cannot be opened: wrong key, wrong purpose, or changed bytes."""

    code = "cannot_unseal"
    http_status = 403


class MismatchError(MessageError):
    """Messages that should belong together do not: another study, upload, curator or schema."""

    code = "mismatch"
    http_status = 409


class ExpiredError(MessageError):
    """A grant has expired."""

    code = "expired"
    http_status = 403


class PromiseError(MessageError):
    """The stated parameters do not keep the promised privacy."""

    code = "promise_broken"
    http_status = 409


class NotGrantedError(VeiltabError):
    """A researcher asks for attributes that no valid grant covers."""

    code = "not_granted"
    http_status = 403


class RoleError(VeiltabError):
    """A party does in a study what only another role does: its curators, or its researchers."""

    code = "wrong_role"
    http_status = 403


class WithheldError(VeiltabError):
    """A curator may not see this: it knows the decoys, and would learn how many people match."""

    code = "withheld"
    http_status = 403


class AlignmentError(VeiltabError):
    """The curators do not hold the same respondents."""

    code = "not_aligned"
    http_status = 409


class LinkageError(InputError):
    """A table's ids cannot be used: empty, repeated, or of an unusable type."""

    code = "bad_ids"


class BudgetError(VeiltabError):
    """A study would exceed a curator's privacy budget or policy."""

    code = "over_budget"
    http_status = 403


class StateError(VeiltabError):
    """The study's present state does not allow this step."""

    code = "wrong_state"
    http_status = 409


class KeyFileError(VeiltabError):
    """A key file cannot be read or written: missing, malformed, unsafe or locked."""

    code = "bad_key_file"


class PassphraseError(KeyFileError):
    """A passphrase does not unlock a key file."""

    code = "wrong_passphrase"


class ConsoleLockedError(VeiltabError):
    """The console has locked the keys: nobody has used it for a while."""

    code = "console_locked"
    http_status = 403


class TableError(InputError):
    """A table cannot be read: no such file or database, an unknown format, or a bad row."""

    code = "cannot_read_table"


class MisfitError(InputError):
    """A table does not fit a study for several reasons; ``problems`` holds an error for each."""

    code = "table_misfit"

    def __init__(self, message: str, *, hint: str, problems: tuple[VeiltabError, ...] = ()) -> None:
        """Keep the problems as data, for callers that show them in their own way."""
        super().__init__(message, hint=hint)
        self.problems = problems


class StudyFileError(InputError):
    """A study file is not a complete description of a study.

    ``place`` is the way to the key that is wrong, and ``problem`` what is wrong with it, for
    callers that show the file in another form.
    """

    code = "bad_study_file"

    def __init__(
        self, message: str, *, hint: str, place: tuple[str | int, ...] = (), problem: str = ""
    ) -> None:
        """Keep the place and the problem beside the message, which names both."""
        super().__init__(message, hint=hint)
        self.place = place
        self.problem = problem or message


class HomeError(VeiltabError):
    """A home directory cannot be used: missing, unsafe, damaged, or another identity's."""

    code = "bad_home"


class DamagedFileError(HomeError):
    """A file of a home is not what veiltab wrote there; nothing of it was used."""

    code = "damaged_file"


class ServerChangedError(VeiltabError):
    """Another server answers than the one that a home trusts; nothing was sent to it."""

    code = "server_changed"
    http_status = 409


class KeyChangedError(VeiltabError):
    """A name that is known, or one that looks like it, comes with another key."""

    code = "key_changed"
    http_status = 409


class BlockedError(VeiltabError):
    """A party takes part that this home has blocked."""

    code = "party_blocked"
    http_status = 403


class AuditError(VeiltabError):
    """An audit log is broken: entries are missing, changed, or not the ones seen before."""

    code = "audit_broken"
    http_status = 409


class EquivocationError(AuditError):
    """A server has signed two logs of one study that cannot both be true."""

    code = "equivocation"


class ConnectionFailedError(VeiltabError):
    """The server did not answer, even after several tries."""

    code = "cannot_connect"
    http_status = 503


class UnauthenticatedError(VeiltabError):
    """A request's signature is missing, wrong, too old, or used before."""

    code = "unauthenticated"
    http_status = 401


class InvitationError(VeiltabError):
    """An invitation is unknown, used up or expired."""

    code = "bad_invitation"
    http_status = 403


class NotFoundError(VeiltabError):
    """It does not exist, or the sender may not know that it does; both look the same."""

    code = "not_found"
    http_status = 404


class UnknownPartyError(VeiltabError):
    """A proposal names somebody who is not registered, or takes no proposals of its sender."""

    code = "unknown_party"
    http_status = 409


class QuotaError(VeiltabError):
    """A party has used up what the server gives to one party."""

    code = "over_quota"
    http_status = 403


class OutOfSpaceError(VeiltabError):
    """The server's disk is nearly full: it answers questions and takes aborts, and nothing else."""

    code = "out_of_space"
    http_status = 507


class TooLargeError(VeiltabError):
    """A request's body is larger than the server accepts."""

    code = "too_large"
    http_status = 413


class LengthRequiredError(VeiltabError):
    """A large body's length is not announced, so no memory can be kept for it."""

    code = "length_required"
    http_status = 411


class RateLimitError(VeiltabError):
    """A sender made too many requests; it may try again a little later."""

    code = "too_many_requests"
    http_status = 429


class UnavailableError(VeiltabError):
    """The database or the disk does not respond; the same request may succeed later."""

    code = "unavailable"
    http_status = 503


class DamagedError(VeiltabError):
    """A file or record on the server's disk has changed since it was stored; it is not served."""

    code = "damaged"
    http_status = 500
