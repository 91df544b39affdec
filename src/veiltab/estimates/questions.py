"""What every group of questions to an estimate shares: how conditions and names are read."""

from collections.abc import Iterable, Mapping, Sequence

from veiltab.core.released import ReleasedCounts
from veiltab.core.uncertainty import Population
from veiltab.errors import ParameterError
from veiltab.inference.conditions import Categories, Condition, other_group, read_condition
from veiltab.inference.quantities import Question

Names = str | Sequence[str]
Event = str | Mapping[str, Categories]
"""A condition: text such as ``salary = '>50K' and gender != 'male'``, or a mapping."""


class Questions(ReleasedCounts):
    """Released counts that can be asked something."""

    def _question(self, level: float, population: Population) -> Question:
        return Question(released=self, level=level, population=population)

    def _condition(self, event: Event) -> Condition:
        return read_condition(event, self.schema)

    def _groups(
        self, outcome: Event, group: Event, versus: Event | None
    ) -> tuple[Condition, Condition, Condition]:
        members = self._condition(group)
        others = None if versus is None else self._condition(versus)
        return self._condition(outcome), members, other_group(members, others)


def names_of(names: str | Iterable[str]) -> list[str]:
    """Return one name or several as a list."""
    if not isinstance(names, str | Iterable):
        raise ParameterError(
            f"attributes are named by text or a list of texts, not by {names!r}",
            hint="as in 'gender', or ['gender', 'education']",
        )
    return [names] if isinstance(names, str) else list(names)
