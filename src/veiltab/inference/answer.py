"""What every answer to one question has in common: how it is printed, and its JSON."""

from dataclasses import asdict
from html import escape
from typing import Any, cast


class Answer:
    """A dataclass with a ``label`` and ``warnings``, which writes itself in a line of text."""

    __slots__ = ()

    label: str
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(cast("Any", self)) | {"warnings": list(self.warnings)}

    def __str__(self) -> str:
        """Return the result in one line, followed by a line for each warning."""
        return "\n".join([f"{self.label}: {self._text()}", *(f"  {w}" for w in self.warnings)])

    def _repr_html_(self) -> str:
        """Return a paragraph and a list of warnings for notebooks."""
        warnings = "".join(f"<li>{escape(warning)}</li>" for warning in self.warnings)
        listed = f"<ul>{warnings}</ul>" if warnings else ""
        return f"<p><b>{escape(self.label)}</b>: {escape(self._text())}</p>{listed}"

    def _text(self) -> str:
        """Return what stands behind the label."""
        raise NotImplementedError
