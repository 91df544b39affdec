"""Study files: the example teaches every key, and every mistake is named with its line."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.cases import for_each
from tests.support.messages import filler, party
from veiltab.core.mechanism import LinkageMode
from veiltab.core.plan import plan
from veiltab.core.schema import Attribute
from veiltab.errors import StudyFileError, UselessPlanError
from veiltab.party import study_file
from veiltab.party.home import identity_text
from veiltab.party.proposal import StudyDraft, plan_of
from veiltab.party.study_file import example_study, read_study_file
from veiltab.wire.contract import CuratorTerms, Linkage
from veiltab.wire.mechanism import DecoyTerms, PaperTerms

ME = party("Krankenhaus Süd")
PARTNER = party("Tax office")
SERVER = party("Cloud")

SHORT = """\
title = "Smoking and income"
epsilon = 0.5
expected_population = 10000
[linkage]
by = "ids"

[[curators]]
identity = "me"
attributes = [
    {name = "smoker", categories = ["no", "yes"]},
    {name = "age", categories = ["<40", ">=40"]},
]

[[curators]]
identity = "partner.json"

[[curators.attributes]]
name = "income"
categories = ["low", "high"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the partner's public identity in it."""
    (tmp_path / "partner.json").write_text(json.dumps(PARTNER.to_json(), indent=2))
    return tmp_path


def read(folder: Path, text: str | bytes) -> StudyDraft:
    """Read a study file with this content."""
    path = folder / "study.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_study_file(path, ME)


def refusal(folder: Path, text: str | bytes) -> StudyFileError:
    """Return the error of reading a study file."""
    with pytest.raises(StudyFileError) as caught:
        read(folder, text)
    assert caught.value.hint
    assert str(folder) in caught.value.message
    return caught.value


def test_a_short_file_and_its_defaults(folder: Path) -> None:
    """What may be left out: delta 0, decoys, aligned respondents, stream pads, anybody."""
    draft = read(folder, SHORT)
    assert isinstance(draft.mechanism, DecoyTerms)
    assert draft == StudyDraft(
        title="Smoking and income",
        epsilon=0.5,
        delta=0.0,
        population=None,
        expected_population=10_000,
        mechanism=draft.mechanism,
        pads="stream",
        linkage=Linkage.by_ids(),
        curators=(
            CuratorTerms(
                ME, (Attribute("smoker", ("no", "yes")), Attribute("age", ("<40", ">=40")))
            ),
            CuratorTerms(PARTNER, (Attribute("income", ("low", "high")),)),
        ),
        researchers=None,
    )


def test_the_example_is_read(folder: Path) -> None:
    """As it stands, with the partner's file beside it."""
    (folder / "tax-office.json").write_bytes((folder / "partner.json").read_bytes())
    (folder / "rivera.json").write_text(identity_text(party("Dr. Rivera")), encoding="utf-8")
    draft = read(folder, example_study())
    assert draft.title == "Smoking and income"
    assert (draft.epsilon, draft.delta, draft.population) == (1.0, 0.0, 50_000)
    assert isinstance(draft.mechanism, DecoyTerms)
    assert draft.linkage == Linkage.by_ids(1, ("nfc", "trim"))
    assert [terms.identity for terms in draft.curators] == [ME, PARTNER]
    assert draft.curators[0].schema.names == ("smoker", "age")
    assert draft.researchers is not None
    assert draft.researchers[0].name == "Dr. Rivera"


def test_the_example_teaches_every_key() -> None:
    """And every choice of a word."""
    keys = [name for name in vars(study_file) if name.endswith("_KEYS")]
    assert len(keys) == 7
    example = example_study()
    for name in keys:
        for key in getattr(study_file, name):
            assert re.search(rf"\b{key}( =|\])", example), key
    words = "decoys paper shuffle unbounded aligned matched stream one-time ids rows optimal me"
    for word in (*words.split(), "nfc", "trim", "lowercase"):
        assert f'"{word}"' in example


def test_every_key_is_explained_before_it() -> None:
    """A line of the example with a key of the study has a comment above it, or is in a list."""
    lines = example_study().split("\n")
    for before, line in pairwise(lines):
        if re.match(r"[a-z]+ =|\[[a-z]+\]", line) and "tax-office" not in before + line:
            assert before.startswith("#"), line


PAPER = SHORT.replace("expected_population = 10000", 'mechanism = "paper"')


@pytest.mark.parametrize(
    ("text", "accounting"),
    [
        (SHORT, "decoys-1"),
        (f"delta = 1e-6\n{SHORT}", "decoys-1"),
        (PAPER, "pure-1"),
        (f"delta = 1e-6\n{PAPER.replace('paper', 'shuffle')}", "shuffle-1"),
    ],
)
def test_a_draft_becomes_a_contract(folder: Path, text: str, accounting: str) -> None:
    """The mechanism decides the accounting."""
    draft = read(folder, text)
    contract = draft.contract(
        server=SERVER, secret_commitment=filler("commitment"), nonce=filler("nonce", 16)
    )
    assert contract.accounting == accounting
    assert contract.server == SERVER
    assert contract.curators == draft.curators
    assert contract.stored is None


@pytest.mark.parametrize("mode", ["aligned", "matched"])
def test_decoys_are_planned_for_what_the_file_asks(folder: Path, mode: LinkageMode) -> None:
    """The numbers of the planner for this many respondents, these cells and these promises."""
    asked = "epsilon_with_curator = 3.0\nepsilon_public = 0.25\ndelta = 1e-5\n"
    text = SHORT.replace('by = "ids"', f'by = "ids"\nmode = "{mode}"')
    terms = read(folder, asked + text).mechanism
    assert isinstance(terms, DecoyTerms)
    planned = plan(
        population_size=10_000,
        domain_size=8,
        epsilon=0.5,
        delta=1e-5,
        mechanism="decoys",
        epsilon_with_curator=3.0,
        epsilon_public=0.25,
        linkage=mode,
        curator_cells=(4, 2),
    )
    assert terms.mechanism == planned.mechanism
    assert terms.epsilon_public == 0.25


def test_the_server_need_not_add_noise(folder: Path) -> None:
    """Left out, its noise adds a tenth to the error."""
    without = read(folder, f'epsilon_with_curator = "unbounded"\n{SHORT}').mechanism
    chosen = read(folder, SHORT).mechanism
    assert isinstance(without, DecoyTerms)
    assert isinstance(chosen, DecoyTerms)
    assert without.keep_threshold is None
    assert chosen.keep_threshold is not None


def test_the_expected_population_stays_with_the_proposer(folder: Path) -> None:
    """Nobody else is told; the proposer's plan is about as many."""
    draft = read(folder, SHORT)
    contract = draft.contract(
        server=SERVER, secret_commitment=filler("commitment"), nonce=filler("nonce", 16)
    )
    assert contract.population is None
    assert b"10000" not in contract.canonical()
    planned = plan_of(contract, draft.expected_population)
    assert planned is not None
    assert planned.population_size == 10_000
    unknown = plan_of(contract)
    assert unknown is not None
    assert unknown.population_size is None


def test_every_other_value(folder: Path) -> None:
    """The choices that the short file leaves out."""
    text = PAPER.replace('by = "ids"', 'by = "rows"') + '\n[[researchers]]\nidentity = "r.json"\n'
    (folder / "r.json").write_text(json.dumps(party("Dr. 王").to_json()))
    head = 'population = 10000\npads = "one-time"\nsample_size = 900\n'
    draft = read(folder, head + text)
    assert draft.mechanism == PaperTerms(900)
    assert draft.population == 10_000
    assert draft.pads == "one-time"
    assert draft.linkage == Linkage.by_rows()
    assert draft.researchers == (party("Dr. 王"),)


@pytest.mark.parametrize("text", [SHORT.replace("10000", "3"), f"population = 10\n{PAPER}"])
def test_a_study_that_says_less_than_a_guess_is_refused(folder: Path, text: str) -> None:
    """Before anybody signs it; whoever insists can propose it."""
    with pytest.raises(UselessPlanError, match="less than a guess"):
        read(folder, text)
    assert read_study_file(folder / "study.toml", ME, anyway=True).title == "Smoking and income"


def test_files_as_editors_on_windows_write_them(folder: Path) -> None:
    """With a byte order mark and their own ends of lines."""
    data = b"\xef\xbb\xbf" + SHORT.replace("\n", "\r\n").encode()
    assert read(folder, data) == read(folder, SHORT)


def test_an_identity_written_out(folder: Path) -> None:
    """In place of a file."""
    inline = (
        f'{{name = "Tax office", signing_key = "{PARTNER.signing_key.hex()}",'
        f' sealing_key = "{PARTNER.sealing_key.hex()}"}}'
    )
    assert read(folder, SHORT.replace('"partner.json"', inline)) == read(folder, SHORT)
    wrong = inline.replace("sealing_key", "sealing")
    assert "sealing_key" in refusal(folder, SHORT.replace('"partner.json"', wrong)).hint
    short = inline.replace(PARTNER.signing_key.hex(), "00")
    assert "hex digits" in refusal(folder, SHORT.replace('"partner.json"', short)).message


EXPECTED = "expected_population = 10000"
MISTAKES = [
    ("epsilon = 0.5", "epsilom = 0.5", 2, "epsilom", "did you mean 'epsilon'?"),
    ("epsilon = 0.5", 'epsilon = "0.5"', 2, "epsilon: must be a number", "such as epsilon"),
    ("epsilon = 0.5", "epsilon = 0", 2, "epsilon must be a number above 0", "0.1"),
    ("epsilon = 0.5", "epsilon = inf", 2, "epsilon: must be a number", "epsilon"),
    ("epsilon = 0.5", "epsilon = true", 2, "epsilon: must be a number", "epsilon"),
    ("epsilon = 0.5", "epsilon = 1979-05-27", 2, "epsilon: must be a number", "epsilon"),
    ("epsilon = 0.5", "epsilon = 0.5\ndelta = 0.5", 3, "delta must be 0", "1e-6"),
    ("epsilon = 0.5", "epsilon = 0.5\npopulation = 1.5", 3, "population", "such as"),
    ("epsilon = 0.5", 'epsilon = 0.5\npads = "steam"', 3, "'stream' or 'one-time'", "pads"),
    ("epsilon = 0.5", "epsilon = 0.5\nsampling = 5", 3, "no such key", "'sample_size'?"),
    ("epsilon = 0.5", 'epsilon = 1\nsample_size = "best"', 3, "optimal", "sample_size"),
    ("epsilon = 0.5", "epsilon = 1\nsample_size = 0", 3, "whole number", "sample_size"),
    ("epsilon = 0.5", "epsilon = 1\nsample_size = 5", 3, '"paper" or "shuffle" only', "leave"),
    (
        "epsilon = 0.5",
        'epsilon = 1\nmechanism = "auto"',
        3,
        "'decoys' or 'paper' or",
        "leave it out",
    ),
    ("epsilon = 0.5", "epsilon = 1\nepsilon_public = 0", 3, "epsilon must be", "0.1"),
    ("epsilon = 0.5", 'epsilon = 1\nepsilon_with_curator = "x"', 3, '"unbounded"', "3.0"),
    ("epsilon = 0.5", "epsilon = 1\nepsilon_with_curator = -1", 3, "epsilon must be", "0.1"),
    ("epsilon = 0.5", "epsilon = 1\npopulation = 9", 4, "stated already", "one of the two"),
    (EXPECTED, f'{EXPECTED}\nmechanism = "paper"', 3, 'goes with mechanism = "decoys"', "leave"),
    (EXPECTED, 'mechanism = "paper"\nepsilon_public = 1', 4, '"decoys" only', "leave it out"),
    (EXPECTED, 'mechanism = "paper"\ndelta = 1e-6', 3, "without delta", "leave delta out"),
    (EXPECTED, 'mechanism = "shuffle"', 3, "nothing without a delta", "1e-6"),
    (
        f"{EXPECTED}\n[linkage]",
        'population = 9\n[linkage]\nmode = "matched"',
        3,
        "nobody learns how many",
        "expected_population",
    ),
    ("epsilon = 0.5", "epsilon = 1\nresearchers = []", 3, "at least one table", "leave all out"),
    ('title = "Smoking and income"', "title = 5", 1, "title: must be text, not 5", "title ="),
    ('title = "Smoking and income"', 'title = ""', 1, "title: the text is empty", "text"),
    ('by = "ids"', 'by = "id"', 5, "'ids' or 'rows'", "by ="),
    ('by = "ids"', 'by = "ids"\ncolumns = 0', 6, "linkage, columns", "columns = 1"),
    ('by = "ids"', 'by = "rows"\ncolumns = 1', 6, "goes with linkage by ids only", "leave it out"),
    ('by = "ids"', 'by = "ids"\nnormalization = []', 6, "normalization", "'normalisation'"),
    ('by = "ids"', 'by = "ids"\nnormalisation = ["x"]', 6, "normalisation[0]", "nfc"),
    ('["no", "yes"]', '["no", 1]', 10, "categories[1]: must be text, not 1", "in quotes"),
    ('["no", "yes"]', '["no", "no"]', 10, "lists the category 'no' 2 times", "once"),
    ('["no", "yes"]', "[]", 10, "at least 1", "categories"),
    ('["no", "yes"]', '"no"', 10, "must be a list", "categories"),
    ('"age", categories', '"age", categorys', 11, "attributes no. 2, categorys", "'categories'"),
    ('name = "age", ', "", 11, "attributes no. 2, name: is missing", "name"),
    ('name = "income"', "name = 7", 18, "curators no. 2, attributes no. 1, name", "smoker"),
    ('categories = ["low", "high"]', "", 17, "categories: is missing", "order"),
    ('identity = "me"', "", 7, "curators no. 1, identity: is missing", "me"),
    ('identity = "me"', "identity = 5", 8, "identity: must be text", "me"),
    (
        'identity = "me"',
        'identity = "me"\nname = "x"',
        9,
        "name: there is no such key",
        "there are",
    ),
    ('"partner.json"', '"none.json"', 15, "none.json: No such file", "folder"),
    ('"partner.json"', '"study.toml"', 15, "is not a public identity", "id show --public"),
    ('"partner.json"', '"."', 15, "cannot read the identity file", "path"),
    ("[[curators.attributes]]", "[[curators.atributes]]", 17, "atributes", "'attributes'"),
]


@pytest.mark.parametrize(("old", "new", "line", "problem", "hint"), MISTAKES)
def test_mistakes_are_named_with_their_line(  # noqa: PLR0917 - pytest passes them by name
    folder: Path, old: str, new: str, line: int, problem: str, hint: str
) -> None:
    """The key, the line, what is wrong, and what to write instead."""
    assert SHORT.count(old) == 1
    error = refusal(folder, SHORT.replace(old, new))
    assert f"study.toml, line {line}: " in error.message
    assert problem in error.message
    assert hint in error.hint


@pytest.mark.parametrize("key", ["title", "epsilon", "linkage", "curators"])
def test_missing_keys_are_named(folder: Path, key: str) -> None:
    """With what to write."""
    text = {
        "title": SHORT.replace('title = "Smoking and income"', ""),
        "epsilon": SHORT.replace("epsilon = 0.5", ""),
        "linkage": SHORT.replace('[linkage]\nby = "ids"', ""),
        "curators": SHORT[: SHORT.index("[[curators]]")],
    }[key]
    error = refusal(folder, text)
    assert error.message.endswith(f"study.toml: {key}: is missing")
    assert "write" in error.hint


def test_a_matched_study_is_not_told_to_state_its_population(folder: Path) -> None:
    """The hint of a missing number names only the key that this linkage allows."""
    aligned = SHORT.replace(EXPECTED, "")
    assert "write population = 10000 if" in refusal(folder, aligned).hint
    matched = aligned.replace("[linkage]", '[linkage]\nmode = "matched"')
    assert refusal(folder, matched).hint.startswith("write expected_population = 10000")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (('"income"', '"age"'), "lists the attribute 'age' 2 times"),
        (('"partner.json"', '"me"'), "curators no. 2, identity: 'Krankenhaus Süd' is named"),
        ((EXPECTED, "population = 5\nsample_size = 6"), "sample size"),
        (
            ("expected_population = 10000", ""),
            "expected_population: is missing: decoys are planned",
        ),
        (("epsilon = 0.5", "epsilon = 0.5\ndelta = 1e-25"), "delta"),
        (('identity = "me"', 'identity = "other.json"'), "you are not among the curators"),
    ],
)
def test_contradictions_are_found_at_once(
    folder: Path, change: tuple[str, str], problem: str
) -> None:
    """Not when the contract is signed."""
    (folder / "other.json").write_text(json.dumps(party("Other").to_json()))
    assert problem in refusal(folder, SHORT.replace(*change)).message


def test_me_by_file_is_me(folder: Path) -> None:
    """Whoever shares one file among all curators can name everybody by file."""
    (folder / "my.json").write_text(json.dumps(ME.to_json()))
    assert read(folder, SHORT.replace('"me"', '"my.json"')) == read(folder, SHORT)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'title = "a\nb"', "line 1, column 11: "),
        (b"epsilon = 1\nepsilon = 2\n# end", "line 2, column "),
        (b"title = Smoking", "line 1, column 9"),
        (b"\xff", "is not UTF-8"),
        (b"x = " + b"[" * 100_000, "nested too deeply"),
        (b"", "title: is missing"),
    ],
)
def test_files_that_are_no_toml(folder: Path, data: bytes, problem: str) -> None:
    """With the line and the column that tomllib knows."""
    assert problem in refusal(folder, data).message


def test_no_file(folder: Path) -> None:
    """An ordinary error."""
    with pytest.raises(StudyFileError, match=r"cannot read the study file .*none\.toml"):
        read_study_file(folder / "none.toml", ME)


@for_each("twin", ["No", " no", "nо"])
def test_categories_that_look_alike_are_refused(folder: Path, twin: str) -> None:
    """With the one that they resemble, and the line."""
    text = SHORT.replace('["no", "yes"]', f'["no", "yes", "{twin}"]')
    error = refusal(folder, text)
    assert f"{twin!r} looks like 'no'" in error.message
    assert "line 10" in error.message
