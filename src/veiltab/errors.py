"""The one error tree: each class has a stable code, and each error a message and a hint.

Commands print ``error: <message>`` and ``hint: <hint>`` and end with ``exit_code``; the HTTP
service answers with ``http_status`` and the code.  ``docs/reference/errors.md`` lists them all.
"""

from dataclasses import dataclass
from typing import ClassVar


class VeiltabError(Exception):
    """Root of every error that veiltab raises on purpose.

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
    """The caller gave something that cannot be used; nothing was done."""

    code = "invalid_input"
    http_status = 422
    exit_code = 2


class ParameterError(InputError):
    """A number is out of its range, or two options contradict each other."""

    code = "invalid_parameter"


class InfeasiblePlanError(InputError):
    """The parameters are valid one by one, but no release can meet them together."""

    code = "infeasible_plan"


class SchemaError(InputError):
    """An attribute or a schema is malformed: names, categories, sizes, bins."""

    code = "invalid_schema"


@dataclass(frozen=True, slots=True)
class Offender:
    """A value that no category covers (``None`` if missing), and where it stands in the table.

    ``rows`` holds the first few row numbers; they count from 1, the first data row.
    """

    column: str
    value: str | None
    count: int
    rows: tuple[int, ...]


class ValueNotInSchemaError(InputError):
    """A table holds values that no category covers; ``offenders`` are those that it lists."""

    code = "value_not_in_schema"

    def __init__(self, message: str, *, hint: str, offenders: tuple[Offender, ...] = ()) -> None:
        """Keep the listed values as data too, for callers that show them in their own way."""
        super().__init__(message, hint=hint)
        self.offenders = offenders


class CountsError(InputError):
    """A file of cell counts is not a complete table of whole numbers."""

    code = "invalid_counts"


class OutputError(VeiltabError):
    """A result could not be written where it was asked for."""

    code = "cannot_write"
