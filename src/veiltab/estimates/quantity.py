"""One estimated number with all that it takes to publish it."""

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from veiltab.core.uncertainty import Population


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """An estimate, its error in two parts, and its interval.

    ``sampling_error`` is there because not everybody was sampled, ``privacy_error`` because
    records were perturbed; their squares sum to that of ``standard_error``.  If it is not
    ``estimable``, the numbers are None and the warnings say why; it is never NaN.
    """

    label: str
    value: float | None
    standard_error: float | None
    sampling_error: float | None
    privacy_error: float | None
    low: float | None
    high: float | None
    level: float
    method: str
    population: Population
    estimable: bool = True
    warnings: tuple[str, ...] = ()

    @classmethod
    def not_estimable(
        cls, label: str, why: str, *, level: float, method: str, population: Population
    ) -> "Quantity":
        """Return the quantity about which the release says nothing, and the reason."""
        return cls(
            label=label,
            value=None,
            standard_error=None,
            sampling_error=None,
            privacy_error=None,
            low=None,
            high=None,
            level=level,
            method=method,
            population=population,
            estimable=False,
            warnings=(f"not estimable: {why}",),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self) | {"warnings": list(self.warnings)}

    def __str__(self) -> str:
        """Say it in a line; warnings follow on lines of their own."""
        return "\n".join([f"{self.label}: {self._text()}", *(f"  {w}" for w in self.warnings)])

    def _repr_html_(self) -> str:
        """Return it as a paragraph and a list of warnings, for notebooks."""
        warnings = "".join(f"<li>{escape(warning)}</li>" for warning in self.warnings)
        listed = f"<ul>{warnings}</ul>" if warnings else ""
        return f"<p><b>{escape(self.label)}</b>: {escape(self._text())}</p>{listed}"

    def _text(self) -> str:
        if self.value is None:
            return "not estimable"
        return (
            f"{self.value:.4g} ({100 * self.level:g}% interval {self.low:.4g} to {self.high:.4g};"
            f" standard error {self.standard_error:.2g} = sampling {self.sampling_error:.2g}"
            f" ⊕ privacy {self.privacy_error:.2g}; {self.method})"
        )
