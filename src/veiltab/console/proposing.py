"""A proposal as the page's fields say it: they become a study file, and are read as one.

A form and a file go through the same reader, and what is wrong is said in the words of the form.
"""

import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from veiltab.console.forms import Form
from veiltab.data.tables import BATCH_ROWS, open_table
from veiltab.errors import InputError, StudyFileError, VeiltabError
from veiltab.files.toml import Document, read_bytes, toml_number, toml_string, toml_strings
from veiltab.party.checking import ReportingTable
from veiltab.party.draft import Draft, draft_study
from veiltab.party.home import Home
from veiltab.party.known.names import readable
from veiltab.party.progress import OnProgress
from veiltab.party.proposal import StudyDraft
from veiltab.party.study_file import ME, OPTIMAL, UNBOUNDED, read_study
from veiltab.party.vaults.steps import known_vault
from veiltab.wire.contract import Normalisation

FORM = "the form"
MOST_PARTIES, MOST_ATTRIBUTES = 50, 200

PROMISE = {"epsilon": "1", "delta": "0", "epsilon_with_curator": "", "linkage": "aligned"}
"""The fields that the planner has, too, and what stands in them at first."""

TEXTS = PROMISE | {
    "title": "",
    "mechanism": "decoys",
    "epsilon_public": "",
    "sample_size": "",
    "population": "",
    "population_is": "about",
    "by": "ids",
    "columns": "1",
    "pads": "stream",
}
"""The fields that are there once, and what stands in them at first."""

NORMALISATIONS: dict[Normalisation, str] = {
    "nfc": "one form of each accented letter",
    "trim": "no space at the ends",
    "lowercase": "small letters only",
}

SAID = {
    "title": ("the title", "write what people shall call the study"),
    "epsilon": ("ε", "write a number; common values lie between 0.1 and 1"),
    "delta": ("δ", "write 0 for the strictest promise, or a small number such as 1e-6"),
    "mechanism": ("the way the promise is kept", "choose decoys, which need no δ and gain from it"),
    "epsilon_with_curator": (
        "ε if a curator helps",
        f"leave it empty, or write a number such as 3, or “{UNBOUNDED}” for no noise by the server",
    ),
    "epsilon_public": ("ε of published copies", "leave it empty for the same as ε"),
    "sample_size": ("the size of the sample", "leave it empty for the best size"),
    "population": ("the number of respondents", "write how many there are, such as 10000"),
    "expected_population": (
        "the number of respondents",
        "write about how many you expect to be in common; it stays with you",
    ),
    "pads": ("the pads", "choose one of the two"),
    "by": ("how rows belong together", "choose ids or the order of rows"),
    "mode": ("who is in the tables", "choose one of the two"),
    "columns": ("the number of id columns", "write a whole number, such as 1"),
    "normalisation": ("how ids are made alike", "tick what applies"),
    "categories": ("its categories", "write every category on a line of its own, in order"),
    "name": ("its name", "write a short name for what is asked"),
    "attributes": ("what it contributes", "give it at least one attribute with its categories"),
    "identity": ("who it is", "choose a party, or add its file to those that you know"),
    "curators": ("the curators", "choose yourself among them: only a curator can propose"),
}
"""The words of the form for each key of a study file, and what to do if it is wrong."""


@dataclass(frozen=True, slots=True)
class AttributeFields:
    """One attribute as it is typed; ``planned`` is how many categories the planner was told."""

    name: str = ""
    categories: str = ""
    planned: str = ""

    @property
    def listed(self) -> tuple[str, ...]:
        """The categories, one a line."""
        lines = (line.strip() for line in self.categories.splitlines())
        return tuple(line for line in lines if line)

    def __bool__(self) -> bool:
        """Tell whether anything is typed, or waits to be."""
        return bool(self.name or self.listed or self.planned)


@dataclass(frozen=True, slots=True)
class CuratorFields:
    """One curator as it is chosen: ``me``, a party id, or nobody yet."""

    party: str = ""
    attributes: tuple[AttributeFields, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether anything is chosen."""
        return bool(self.party or any(self.attributes))


@dataclass(frozen=True, slots=True)
class Fields:
    """Everything on the page.  ``text`` is a study file, if one was given instead of a form.

    JSON in its place, as files of keys are, is not kept: no page shows it again.
    """

    texts: dict[str, str] = field(default_factory=lambda: dict(TEXTS))
    normalisation: tuple[str, ...] = ("nfc", "trim")
    curators: tuple[CuratorFields, ...] = (CuratorFields(ME), CuratorFields())
    researchers: tuple[str, ...] = ("",)
    anyway: bool = False
    text: str = ""
    is_json: bool = False
    folder: str = ""

    @classmethod
    def of(cls, form: Form) -> "Fields":
        """Read what was sent; nothing is refused before it is read as a study file."""
        texts = {name: form.text(name, default) for name, default in TEXTS.items()}
        text = form.exact("text").replace("\r\n", "\n")
        is_json = text.lstrip().startswith("{")
        return cls(
            texts=texts,
            normalisation=tuple(name for name in NORMALISATIONS if name in form.all("normalise")),
            curators=tuple(_curators(form)),
            researchers=tuple(form.all("researcher"))[:MOST_PARTIES],
            anyway=form.checked("anyway"),
            text="" if is_json else text,
            is_json=is_json,
            folder=form.text("folder"),
        )

    def with_plan(self, plan: Form) -> "Fields":
        """Take over the promise and the sizes of a plan."""
        texts = dict(self.texts)
        for name in (*PROMISE, "population", "mechanism"):
            texts[name] = plan.text(name, texts[name])
        sizes = [size.strip() for size in plan.text("sizes").split(",") if size.strip()]
        fields = replace(self, texts=texts, text="")
        typed = any(one.name or one.listed for who in self.curators for one in who.attributes)
        if not sizes or typed:
            return fields
        rows = [AttributeFields(planned=size) for size in sizes[:MOST_ATTRIBUTES]]
        mine = max(1, len(rows) - 1)
        curators = (CuratorFields(ME, tuple(rows[:mine])), CuratorFields("", tuple(rows[mine:])))
        return replace(fields, curators=curators)

    def edited(self, command: str) -> "Fields":
        """Return the fields with a row more or less, as a button of the page says."""
        what, _, place = command.partition(":")
        numbers = [int(part) for part in place.split(".") if part.isdecimal()]
        curators = list(self.curators)
        if what == "add-curator" and len(curators) < MOST_PARTIES:
            curators.append(CuratorFields("", (AttributeFields(),)))
        elif what == "add-researcher" and len(self.researchers) < MOST_PARTIES:
            return replace(self, researchers=(*self.researchers, ""))
        elif numbers and numbers[0] < len(curators):
            curators[numbers[0] : numbers[0] + 1] = _changed(
                curators[numbers[0]], what, numbers[1:]
            )
        return replace(self, curators=tuple(curators))

    def filled(self) -> "Fields":
        """Return the fields without rows in which nothing stands."""
        curators = tuple(
            replace(curator, attributes=tuple(filter(None, curator.attributes)))
            for curator in self.curators
            if curator
        )
        return replace(self, curators=curators, researchers=tuple(filter(None, self.researchers)))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield all fields as a form sends them, so that another page can carry them on."""
        yield from self.texts.items()
        yield from (("normalise", name) for name in self.normalisation)
        for i, curator in enumerate(self.curators):
            yield f"c{i}:party", curator.party
            for j, attribute in enumerate(curator.attributes):
                yield f"c{i}:a{j}:name", attribute.name
                yield f"c{i}:a{j}:categories", attribute.categories
                if attribute.planned:
                    yield f"c{i}:a{j}:planned", attribute.planned
        yield from (("researcher", party) for party in self.researchers)
        if self.anyway:
            yield "anyway", "on"
        if self.text:
            yield from (("text", self.text), ("folder", self.folder))

    def opened(self) -> "Fields":
        """Return the content of the study file whose path was given instead of it.

        What is no such file stays where it is: no page shows what is in a file of keys.
        """
        if self.is_json:
            raise InputError(
                "what you have pasted is not a study file",
                hint="paste the text of one, or write its path",
            )
        given = self.text.strip()
        if not given or "\n" in given or "=" in given:
            return self
        path = Path(given).expanduser()
        data = read_bytes(path, "study file")
        Document(data, "the study file")
        text = data.decode("utf-8-sig")
        return replace(self, text=text.replace("\r\n", "\n"), folder=str(path.absolute().parent))

    def study_file(self, home: Home) -> str:
        """Return the study file that says the same."""
        return self.text or "".join(_study_lines(self.filled(), home))

    def draft(self, home: Home) -> StudyDraft:
        """Read the study file, as ``veiltab study propose`` does."""
        folder = Path(self.folder) if self.folder else Path.cwd()
        name = "the study file" if self.text else FORM
        document = Document(self.study_file(home).encode(), name)
        return read_study(document, folder, home.public, known_vault(home), anyway=self.anyway)


_PARTY = re.compile(r"c(\d{1,2}):party")
_ATTRIBUTE = re.compile(r"c(\d{1,2}):a(\d{1,3}):(name|categories|planned)")


def _curators(form: Form) -> Iterator[CuratorFields]:
    parties: dict[int, str] = {}
    attributes: dict[int, dict[int, dict[str, str]]] = {}
    for name, value in form.pairs:
        if match := _PARTY.fullmatch(name):
            parties[int(match[1])] = value.strip()
        elif match := _ATTRIBUTE.fullmatch(name):
            place = attributes.setdefault(int(match[1]), {}).setdefault(int(match[2]), {})
            place[match[3]] = value.replace("\r\n", "\n").strip()
    for number in sorted(parties.keys() | attributes.keys())[:MOST_PARTIES]:
        rows = sorted(attributes.get(number, {}).items())[:MOST_ATTRIBUTES]
        yield CuratorFields(
            parties.get(number, ""), tuple(AttributeFields(**given) for _, given in rows)
        )


def _changed(curator: CuratorFields, what: str, place: Sequence[int]) -> list[CuratorFields]:
    rows = list(curator.attributes)
    if what == "remove-curator":
        return []
    if what == "add-attribute" and len(rows) < MOST_ATTRIBUTES:
        rows.append(AttributeFields())
    elif what == "remove-attribute" and place and place[0] < len(rows):
        del rows[place[0]]
    return [replace(curator, attributes=tuple(rows))]


def read_draft(home: Home, location: str, query: str | None, progress: OnProgress) -> Draft:
    """Draft a study from a table, as ``veiltab study propose --from`` does.

    Its recode file is made again from the table when it is mapped to the study.
    """
    table = ReportingTable(open_table(location, query), progress)
    return draft_study(table.batches(list(table.columns), BATCH_ROWS), home.public)


def drafted(fields: Fields, draft: Draft) -> tuple[Fields, str]:
    """Put the attributes of a draft into one's own fields; return them with what to know of it."""
    proposal = tomllib.loads(draft.text)
    rows = tuple(
        AttributeFields(one["name"], "\n".join(one["categories"]))
        for one in proposal["curators"][0]["attributes"]
    )
    curators = tuple(
        replace(curator, attributes=rows) if curator.party == ME else curator
        for curator in fields.curators
    )
    if not rows:
        raise InputError(
            "no column of the table could be proposed as an attribute",
            hint="write the attributes yourself: each with the categories that may be told",
        )
    rules = tuple(dict.fromkeys((*fields.normalisation, *proposal["linkage"]["normalisation"])))
    said = "1 attribute is" if len(rows) == 1 else f"{len(rows):,} attributes are"
    said += " drafted from your table. Remove what nobody needs, and merge categories that few"
    said += " people have: each can be read by everybody in the study"
    said += "".join(f". {warning[0].upper()}{warning[1:]}" for warning in draft.warnings)
    return replace(fields, curators=curators, normalisation=rules), said


def _study_lines(fields: Fields, home: Home) -> Iterator[str]:
    texts = fields.texts
    paper = texts["mechanism"] != "decoys"
    keys = ["title", "epsilon", "delta", "mechanism", "epsilon_with_curator", "epsilon_public"]
    keys += ["sample_size"] if paper else []
    for key in keys:
        if texts[key] or key == "title":
            value = toml_string(texts[key]) if key in WORDS else _number(texts[key])
            yield f"{key} = {value}\n"
    stated = paper or texts["population_is"] == "stated"
    if texts["population"]:
        key = "population" if stated else "expected_population"
        yield f"{key} = {_number(texts['population'])}\n"
    yield f"pads = {toml_string(texts['pads'])}\n\n[linkage]\nby = {toml_string(texts['by'])}\n"
    yield f"mode = {toml_string(texts['linkage'])}\n"
    if texts["by"] == "ids":
        yield f"columns = {_number(texts['columns'] or '1')}\n"
        yield f"normalisation = {toml_strings(fields.normalisation)}\n"
    for curator in fields.curators:
        yield f"\n[[curators]]\n{_identity(curator.party, home)}attributes = [\n"
        for one in curator.attributes:
            name, categories = toml_string(one.name), toml_strings(one.listed)
            yield f"    {{name = {name}, categories = {categories}}},\n"
        yield "]\n"
    for party in fields.researchers:
        yield f"\n[[researchers]]\n{_identity(party, home)}"


WORDS = ("title", "mechanism")


def _number(text: str) -> str:
    """Write a number as TOML does; anything else as a text, which the reader refuses."""
    if text in (OPTIMAL, UNBOUNDED):
        return toml_string(text)
    plain = text.replace(" ", "").replace("\N{NO-BREAK SPACE}", "").replace("_", "")
    try:
        number = float(plain)
    except ValueError:
        return toml_string(text)
    if not math.isfinite(number):
        return toml_string(text)
    return str(int(plain)) if plain.lstrip("+-").isdecimal() else toml_number(number)


def _identity(party: str, home: Home) -> str:
    """Write who somebody is: the file holds the whole identity, and needs no other file."""
    if party == ME:
        return f"identity = {toml_string(ME)}\n"
    if not party:
        return ""
    public = home.known.find(party).identity.to_json()
    keys = ", ".join(f"{key} = {toml_string(value)}" for key, value in public.items())
    return f"identity = {{{keys}}}\n"


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong with a proposal in the words of the form, and the field that is to be changed.

    A study file that somebody has given is called by its own keys and lines.
    """

    message: str
    hint: str
    code: str
    field: str = ""

    @classmethod
    def of(cls, error: VeiltabError, fields: Fields, home: Home) -> "Mistake":
        """Say a mistake in the words of the form that was typed."""
        if fields.text or not isinstance(error, StudyFileError):
            return cls(error.message, error.hint, error.code)
        if not error.place:
            return cls(error.problem, error.hint, error.code)
        key = next(part for part in reversed(error.place) if isinstance(part, str))
        words, hint = SAID.get(key, (key, error.hint))
        message = SHORT.get((key, error.problem)) or _sentence(words, error.problem)
        where = _where(error.place, fields.filled(), home)
        return cls(
            f"{where}: {message}" if where else message,
            hint if _TOML.search(error.hint) else error.hint,
            error.code,
            _field(error.place),
        )


SHORT = {
    ("identity", "is missing"): "nobody is chosen",
    ("attributes", "must be a list of at least one table"): "no attribute is written",
    ("curators", "must be a list of at least one table"): "no curator is chosen",
}
"""Problems of a study file that a form says better."""

_TOML = re.compile(r"= |\[\[")
_VERBS = ("is ", "must ", "goes ", "cannot ", "has ")


def _sentence(words: str, problem: str) -> str:
    return f"{words} {problem}" if problem.startswith(_VERBS) else f"{words}: {problem}"


def _where(place: tuple[str | int, ...], fields: Fields, home: Home) -> str:
    """Name the part of the form that a place in a study file is in."""
    match place:
        case ("curators", int(i), *inner):
            party = fields.curators[i].party
            who = _called(party, home) or f"curator no. {i + 1}"
            match inner:
                case ["attributes", int(j), *_]:
                    name = fields.curators[i].attributes[j].name
                    return f"{who}, {f'attribute “{name}”' if name else f'attribute no. {j + 1}'}"
            return who
        case ("researchers", int(i), *_):
            return f"researcher no. {i + 1}"
    return ""


def _called(party: str, home: Home) -> str:
    if party in ("", ME):
        return "you" if party else ""
    return readable(home.known.find(party).name)


_RENAMED = {
    "expected_population": "population",
    "mode": "linkage",
    "normalisation": "normalise-nfc",
}


def _field(place: tuple[str | int, ...]) -> str:
    """Return the name of the field in which a place of a study file is written."""
    match place:
        case ("curators", int(i), "attributes", int(j), str(key)):
            return f"c{i}:a{j}:{key}"
        case ("curators", int(i), "attributes", *_):
            return f"c{i}:a0:name"
        case ("curators", int(i), *_):
            return f"c{i}:party"
        case ("researchers", int(i), *_):
            return f"researcher-{i}"
    key = str(place[-1])
    return _RENAMED.get(key, key)


@dataclass(frozen=True, slots=True)
class Choosable:
    """A party that can be chosen: who it is, and whether its fingerprint was compared."""

    party: str
    name: str
    fingerprint: str
    compared: bool


def choosable(home: Home) -> list[Choosable]:
    """Return everybody whom this home knows, unless they are blocked or have revoked their keys."""
    blocked = {one.party for one in home.known.blocked()}
    return [
        Choosable(one.party_id.hex(), readable(one.name), one.fingerprint, one.verified is not None)
        for one in home.known.parties()
        if one.party_id not in blocked and one.revocation is None
    ]
