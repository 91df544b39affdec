"""Every vector of every file, through the package; and the generator, which must make them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vectors.runners import RUNNERS
from tests.vectors.studies import STEPS, StudyFile, research
from vectors import generate
from vectors.generate import FIXED, STUDIES
from vectors.generator.files import Builder, Document, render
from veiltab.errors import VeiltabError

FOLDER = Path(__file__).parents[2] / "vectors"
DOCUMENTS = {path.stem: json.loads(path.read_bytes()) for path in sorted(FOLDER.glob("*.json"))}
HEADINGS = {"about", "cases"}
STUDY_HEADINGS = HEADINGS | {
    "parties",
    "contributions",
    "secret",
    "tables",
    "vault",
    "contract",
    "secrets",
    "alignments",
    "uploads",
    "requests",
    "repads",
    "release",
    "noise",
    "publication",
}


def classes(root: type[VeiltabError] = VeiltabError) -> Iterator[type[VeiltabError]]:
    """Yield every class of the error tree."""
    yield root
    for child in root.__subclasses__():
        yield from classes(child)


BY_CODE = {each.code: each for each in classes()}


def answer(file: str, case: dict[str, Any]) -> object:
    """Answer a case with the package; a file or step that is not known is an error."""
    inputs = {key: value for key, value in case.items() if key not in {"name", "expect"}}
    if file in STUDIES:
        assert inputs.keys() == {"attributes", "grants", "now"}
        return research(StudyFile(DOCUMENTS[file]), case)
    if file == "bad_studies":
        return answer_step(**inputs)
    return RUNNERS[file](**inputs)


def answer_step(step: str, study: str, instead: dict[str, Any], case: str | None = None) -> object:
    """Let a party do a step of a study, with some messages instead of the right ones."""
    document = DOCUMENTS[study]
    if step == "research":
        base = next(each for each in document["cases"] if each["name"] == case)
        return research(StudyFile(document), base, **instead)
    assert case is None
    return STEPS[step](StudyFile(document), **instead)


@pytest.mark.parametrize("file", DOCUMENTS)
def test_the_package_answers_as_the_vector_says(file: str) -> None:
    """A good case gives what is expected; a bad one is refused with exactly the stated error."""
    for case in DOCUMENTS[file]["cases"]:
        try:
            check_case(file, case)
        except BaseException as error:
            error.add_note(f"in the case {case['name']}")
            raise


def check_case(file: str, case: dict[str, Any]) -> None:
    """Compare the package's answer with what the vector expects."""
    expect = case["expect"]
    is_bad = isinstance(expect, dict) and "error" in expect
    assert case["name"].startswith("bad_") == is_bad
    if not is_bad:
        assert answer(file, case) == expect
        return
    with pytest.raises(VeiltabError) as caught:
        answer(file, case)
    assert type(caught.value) is BY_CODE[expect["error"]], caught.value


@pytest.mark.parametrize(
    "study",
    ["aligned-stream", "aligned-decoys", "matched-fresh", "matched-stored", "matched-decoys"],
)
def test_the_right_messages_are_accepted(study: str) -> None:
    """What the bad cases of each step change is accepted if it is not changed."""
    document = DOCUMENTS[f"study-{study}"]
    found = StudyFile(document)
    if study != "matched-stored":
        for upload in document["uploads"]:
            STEPS["upload"](found, message=upload["message"], chunks=upload["chunks"])
    if document["alignments"]:
        STEPS["secret"](found, message=document["secrets"][0])
        STEPS["alignment"](found, messages=document["alignments"])
    if document["publication"] is not None:
        STEPS["publication"](found, message=document["publication"])
    if document["requests"]:
        STEPS["request"](found, **document["requests"][0])
        repad = document["repads"][0]
        STEPS["repad"](found, message=repad["message"], chunks=repad["chunks"])


def test_no_file_and_no_case_is_left_out() -> None:
    """Every file is one that the generator makes, has the known headings, and has cases."""
    assert DOCUMENTS.keys() == FIXED.keys() | STUDIES.keys()
    assert RUNNERS.keys() | {"bad_studies"} == FIXED.keys()
    for file, document in DOCUMENTS.items():
        assert document.keys() == (STUDY_HEADINGS if file in STUDIES else HEADINGS)
        assert document["about"]
        names = [case["name"] for case in document["cases"]]
        assert names
        assert len(set(names)) == len(names)


def test_the_bad_cases_reach_every_error_of_a_message() -> None:
    """No class of refused messages is without a vector."""
    reached = {
        case["expect"]["error"]
        for document in DOCUMENTS.values()
        for case in document["cases"]
        if case["name"].startswith("bad_")
    }
    needed = {each.code for each in classes(BY_CODE["bad_message"])} - {"bad_message"}
    assert needed | {"not_granted", "not_aligned", "bad_ids", "bad_key_file"} <= reached


@pytest.mark.slow
@pytest.mark.parametrize("file", FIXED)
def test_the_generator_makes_these_files(file: str) -> None:
    """What follows from the specification, and from the studies, comes out byte for byte."""
    kept = (FOLDER / f"{file}.json").read_bytes()
    assert render(FIXED[file]()) == kept, "run python -m vectors.generate, and look at the changes"


def test_the_generator_leaves_studies_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written if they are missing, or if that is asked for."""
    made: list[str] = []

    def builder(name: str) -> Builder:
        def build() -> Document:
            made.append(name)
            return {}

        return build

    monkeypatch.setattr(generate, "path_of", lambda name: tmp_path / f"{name}.json")
    monkeypatch.setattr(generate, "FIXED", {"fixed": builder("fixed")})
    monkeypatch.setattr(generate, "STUDIES", {"study": builder("study")})
    generate.main([])
    generate.main([])
    generate.main(["--all"])
    assert made == ["study", "fixed", "fixed", "study", "fixed"]


@pytest.mark.parametrize("file", STUDIES)
def test_the_generator_can_still_make_studies(file: str) -> None:
    """A study made now passes too, and is written in the same way; it need not be the same."""
    document = json.loads(render(STUDIES[file]()))
    assert document.keys() == DOCUMENTS[file].keys()
    for case in document["cases"]:
        assert research(StudyFile(document), case) == case["expect"]


def test_the_files_are_small() -> None:
    """All of them together stay below three megabytes, most of it public keys for seals."""
    assert sum(path.stat().st_size for path in FOLDER.glob("*.json")) < 3_000_000
