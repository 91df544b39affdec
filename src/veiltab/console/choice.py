"""What somebody looks at in the explorer: the fields of its form, its link, and its Python."""

from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlencode

from veiltab.console.forms import Form
from veiltab.core.schema import Schema
from veiltab.errors import ParameterError
from veiltab.inference.conditions import shorten

LEVELS = {"0.9": "90%", "0.95": "95%", "0.99": "99%"}
JOINT, WITHIN, DEVIATIONS = "joint", "within", "deviations"
SHOWN = {
    JOINT: "shares",
    WITHIN: "shares within rows",
    DEVIATIONS: "deviations from independence",
}
ORDERS = {"schema": "the study's order", "largest": "largest first"}

LONGEST_REFERENCE = 100
"""Characters of an attribute's name in a link; a longer one stands there by its digest."""


def reference(name: str) -> str:
    """Return what stands for an attribute in links, whatever its name is."""
    if len(name) <= LONGEST_REFERENCE:
        return name
    return f"~{sha256(name.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What somebody looks at, as the fields of the page say it."""

    rows: str
    columns: str
    layer: str
    show: str
    order: str
    condition: str
    given: str
    level: float
    simultaneous: bool
    tests: bool
    page: int

    @classmethod
    def of(cls, form: Form, schema: Schema) -> "Choice":
        """Read the fields; attributes that are not there are refused, and none is taken twice."""
        known = {reference(name): name for name in schema.names}
        defaults = {"rows": schema.names[0], "columns": "".join(schema.names[1:2]), "layer": ""}
        chosen: dict[str, str] = {}
        for field, default in defaults.items():
            wanted = form.exact(field)
            if not form.checked(field) or (field == "rows" and not wanted):
                chosen[field] = default
            elif wanted and wanted not in known:
                raise ParameterError(
                    f"there is no attribute {shorten(wanted)!r}", hint="choose one that is listed"
                )
            else:
                chosen[field] = known.get(wanted, "")
            if chosen[field] in list(chosen.values())[:-1]:
                chosen[field] = ""
        choice = cls(
            **chosen,
            show=form.choice("show", SHOWN, JOINT),
            order=form.choice("order", ORDERS, "schema"),
            condition=form.text("condition"),
            given=form.text("given"),
            level=float(form.choice("level", LEVELS, "0.95")),
            simultaneous=form.checked("simultaneous"),
            tests=form.checked("tests"),
            page=max(1, form.integer("page", "the page", 1)),
        )
        choice._check()
        return choice

    def _check(self) -> None:
        """Refuse what has no answer, and say what to choose instead."""
        if self.show != JOINT and not self.columns:
            raise ParameterError(
                f"{SHOWN[self.show]} need two attributes", hint="choose rows and columns"
            )
        if self.show == DEVIATIONS and self.layer:
            raise ParameterError(
                "deviations from independence are shown for two attributes, without layers",
                hint="choose no layer; the test of independence can be made within layers",
            )
        if self.show != JOINT and self.given:
            raise ParameterError(
                f"{SHOWN[self.show]} are shown for everybody, not among some people",
                hint="empty the field “only those with”, or show shares",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes of the table, layers first."""
        return tuple(name for name in (self.layer, self.rows, self.columns) if name)

    @property
    def groups(self) -> list[str]:
        """The attributes whose groups are compared."""
        return [name for name in (self.layer, self.rows) if name]

    @property
    def together(self) -> bool:
        """Whether all intervals hold together; only shares of everybody have such intervals."""
        return self.simultaneous and self.show == JOINT and not self.given

    def query(self, **changes: object) -> str:
        """Return the link of this state, without its path."""
        return urlencode(dict(self.fields()) | changes)

    def fields(self) -> list[tuple[str, str]]:
        """Return the fields of the form in this state; the first page needs none."""
        fields = {
            "rows": reference(self.rows),
            "columns": reference(self.columns),
            "layer": reference(self.layer),
            "show": self.show,
            "order": self.order,
            "condition": self.condition,
            "given": self.given,
            "level": f"{self.level:g}",
        }
        ticked = {"simultaneous": self.simultaneous, "tests": self.tests}
        fields |= {name: "1" for name, is_ticked in ticked.items() if is_ticked}
        return list(fields.items())

    def code(self) -> str:
        """Return the lines of Python that give the same table."""
        level = f"level={self.level:g}"
        if self.given:
            return (
                f"names = {list(self.names)!r}\n"
                "attributes = estimate.schema.subset(names).attributes\n"
                "table = [\n"
                "    estimate.probability(dict(zip(names, cell)),"
                f" given={self.given!r}, {level})\n"
                "    for cell in itertools.product(*(one.categories for one in attributes))\n"
                "]"
            )
        if self.show == WITHIN:
            return f"table = estimate.conditional({self.columns!r}, {self.groups!r}, {level})"
        if self.show == DEVIATIONS:
            return f"table = estimate.deviations({self.rows!r}, {self.columns!r}, {level})"
        together = ", simultaneous=True" if self.together else ""
        return f"table = estimate.marginal({list(self.names)!r}).table({level}{together})"
