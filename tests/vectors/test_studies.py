"""The studies of the vectors hang together: each step's result follows from what went in."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.chunks import read_column
from tests.vectors import studies
from tests.vectors.studies import StudyFile, store
from veiltab.core import group
from veiltab.core.schema import Codes
from veiltab.protocol.curator.agreement import receive_secret
from veiltab.protocol.curator.upload import align, check_alignment
from veiltab.protocol.server.accept import check_repad, check_stored, check_upload
from veiltab.protocol.verify import plan_for, verify, verify_agreement

FOLDER = Path(__file__).parents[2] / "vectors"
FILES = sorted(path.stem for path in FOLDER.glob("study-*.json"))
SHOWN = [file for file in FILES if file != "study-two-chunks"]
"""The studies whose tables are in the files."""


def load(file: str) -> StudyFile:
    """Read a study."""
    return StudyFile(json.loads((FOLDER / f"{file}.json").read_bytes()))


@pytest.mark.parametrize("file", FILES)
def test_the_parties_agree(file: str) -> None:
    """The contract is signed by all, the secret reaches everybody, and the numbers are planned."""
    study = load(file)
    contract = verify_agreement(study.contract)
    curators = {identity.party_id: identity for identity in study.curators}
    received: dict[bytes, dict[bytes, bytes]] = {party: {} for party in curators}
    for message in study.messages("secret", "secrets"):
        sender, receiver = message.body.sender, message.body.receiver
        opened = receive_secret(study.agreement, curators[receiver], message)
        received[receiver][sender] = opened
    drawn = dict(zip(curators, map(bytes.fromhex, study.document["contributions"]), strict=False))
    for party, others in received.items():
        assert others == {sender: drawn[sender] for sender in drawn if sender != party}
    secret = study.combine({}) if study.document["vault"] is None else next(iter(drawn.values()))
    assert secret.hex() == study.document["secret"]
    release = verify(study.release, [contract.server.signing_key])
    plan = plan_for(contract, release.population)
    if contract.decoys is None:
        assert plan.sample_size == release.rows
    if release.accounting != "shuffle-1":
        assert plan.keep_threshold == release.keep_threshold
    else:  # found by floating point, which another machine may round otherwise
        assert plan.keep_threshold == pytest.approx(release.keep_threshold, rel=1e-3)
    granted = study.messages("repad", "repads") or study.messages("upload", "uploads")
    assert [upload.digest for upload in release.uploads] == [each.digest for each in granted]


@pytest.mark.parametrize("file", FILES)
def test_the_server_accepts_what_it_is_sent(file: str) -> None:
    """Uploads, stored tables and new pads are wholly right."""
    study, document = load(file), load(file).document
    uploads = study.messages("upload", "uploads")
    every = store([chunk for upload in document["uploads"] for chunk in upload["chunks"]])
    for upload in uploads:
        check_upload(study.agreement, upload, every)
    if document["vault"] is not None:
        check_stored(study.contract.body, study.agreement, uploads, every)  # type: ignore[arg-type]
    requests = study.messages("repad-request", "requests")
    for number, repad in enumerate(study.messages("repad", "repads")):
        chunks = store(document["repads"][number]["chunks"])
        check_repad(study.contract.body, requests[number], repad, chunks)


@pytest.mark.parametrize("file", [file for file in SHOWN if "aligned" in file or "decoys" in file])
def test_the_alignments_are_those_of_the_tables(file: str) -> None:
    """Each curator computes its own from its ids, in whatever order its rows are."""
    study = load(file)
    found = study.messages("alignment", "alignments")
    for number, identity in enumerate(study.curators):
        intake = studies.intake_of(study, number)
        assert align(study.contract.body, identity, intake) == found[number]
    assert check_alignment(study.contract.body, found) == study.release.body.population


@pytest.mark.parametrize("file", SHOWN)
def test_the_uploads_are_the_tables_under_their_pads(file: str) -> None:
    """Codes in the order of the tokens, or of the token column, plus the pads."""
    study = load(file)
    for number, upload in enumerate(study.messages("upload", "uploads")):
        plain = studies.uploaded_codes(study, number)
        pads = studies.pads_of(study, "uploads", number, np.arange(upload.body.rows))
        sent = columns(study, "uploads", number, upload)
        for attribute, codes, pad, encrypted in zip(
            study.attributes(number), plain, pads, sent, strict=True
        ):
            assert group.add(codes, pad, attribute.size).tolist() == encrypted.tolist()


@pytest.mark.parametrize("file", [file for file in SHOWN if "decoys" in file])
def test_whoever_takes_part_is_uploaded_with_all_decoys(file: str) -> None:
    """Neither a respondent nor a decoy is left out, and nobody else is there."""
    study = load(file)
    for number in range(len(study.curators)):
        sent = studies.uploaded_tokens(study, number)
        assert set(sent) == set(studies.rows_by_token(study, number))
        assert len(set(sent)) == len(sent)


@pytest.mark.parametrize("file", ["study-matched-stored"])
def test_repads_are_the_differences_of_pads(file: str) -> None:
    """New pad of row i, less the old pad of position i."""
    study = load(file)
    for number, repad in enumerate(study.messages("repad", "repads")):
        positions = studies.joined_rows(study, number)
        old = studies.pads_of(study, "uploads", number, positions)
        new = studies.pads_of(study, "repads", number, np.arange(positions.size))
        sent = columns(study, "repads", number, repad)
        for place, attribute in enumerate(study.attributes(number)):
            difference = group.subtract(new[place], old[place], attribute.size)
            assert difference.tolist() == sent[place].tolist()


@pytest.mark.parametrize("file", SHOWN)
def test_what_is_decrypted_is_the_sample_and_its_noise(file: str) -> None:
    """The researcher's codes are the tables' codes of the sampled rows, plus the noise."""
    study = load(file)
    schema = study.contract.body.schema
    noise = schema.codes(np.array(study.document["noise"]))
    parts = dict(zip(schema.names, noise, strict=True))
    sampled: dict[str, list[int]] = {}
    for number in range(len(study.curators)):
        rows = studies.joined_rows(study, number)
        uploaded = studies.uploaded_codes(study, number)
        for attribute, codes in zip(study.attributes(number), uploaded, strict=True):
            released = group.add(codes[rows], parts[attribute.name], attribute.size)
            sampled[attribute.name] = released.tolist()
    for case in study.document["cases"]:
        assert case["expect"]["codes"] == {name: sampled[name] for name in case["attributes"]}


def test_matched_rows_are_the_same_at_every_curator() -> None:
    """A released row has one token, whichever curator's positions one follows."""
    for file in ("study-matched-fresh", "study-matched-stored", "study-matched-decoys"):
        study = load(file)
        found = []
        for number in range(len(study.curators)):
            sent = studies.uploaded_tokens(study, number)
            found.append([sent[row] for row in studies.joined_rows(study, number)])
        assert all(each == found[0] for each in found)
        assert len(set(found[0])) == study.release.body.rows


def test_all_rows_that_match_are_released_where_there_are_decoys() -> None:
    """The curators have thrown the coins, so the server draws no sample."""
    study = load("study-matched-decoys")
    held = [set(studies.uploaded_tokens(study, number)) for number in range(3)]
    assert len(set.intersection(*held)) == study.release.body.rows
    assert all(len(each) > study.release.body.rows for each in held)


def columns(study: StudyFile, name: str, number: int, message: Any) -> list[Codes]:  # noqa: ANN401
    """Unpack the columns of an upload or repad."""
    chunks = store(study.document[name][number]["chunks"])
    body = message.body
    return [
        read_column(column.chunks, attribute, body.rows, chunks)
        for column, attribute in zip(body.columns, study.attributes(number), strict=True)
    ]
