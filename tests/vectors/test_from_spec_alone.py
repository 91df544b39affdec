"""The specification is complete: a researcher written from it alone reaches the same results.

The modules ``spec_*`` beside this file, and this file, import nothing of the package; a test makes
sure of it.
"""

import ast
import hashlib
import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.vectors import (
    spec_bytes,
    spec_decoys,
    spec_keys,
    spec_messages,
    spec_plan,
    spec_researcher,
)
from tests.vectors.spec_bytes import RefusedError

ROOT = Path(__file__).parents[2]
OWN = [Path(__file__), *sorted(Path(__file__).parent.glob("spec_*.py"))]
DOCUMENTS = {path.stem: json.loads(path.read_bytes()) for path in ROOT.glob("vectors/*.json")}
STUDIES = sorted(name for name in DOCUMENTS if name.startswith("study-"))


def cases(file: str) -> list[Any]:
    """Return the cases of a file as parameters."""
    return [pytest.param(case, id=case["name"][:60]) for case in DOCUMENTS[file]["cases"]]


def party(study: dict[str, Any], name: str) -> dict[str, str]:
    """Return a party's private sealing key and its public keys."""
    found = next(each for each in study["parties"] if each["name"] == name)
    signing = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(found["signing_seed"]))
    secret = bytes.fromhex(found["sealing_secret"])
    return {
        "sealing_secret": found["sealing_secret"],
        "signing_key": signing.public_key().public_bytes_raw().hex(),
        "sealing_key": spec_bytes.sealing_public(secret).hex(),
    }


def research(study: dict[str, Any], case: dict[str, Any], **instead: Any) -> dict[str, Any]:
    """Give the researcher what a case says."""
    given = {
        "contract": study["contract"],
        "release": study["release"]["message"],
        "chunks": study["release"]["chunks"],
        "grants": case["grants"],
        "now": case["now"],
        **instead,
    }
    who = party(study, given.pop("party", "researcher"))
    return spec_researcher.research(who, **given)


@pytest.mark.parametrize(
    ("file", "case"),
    [(file, case) for file in STUDIES for case in DOCUMENTS[file]["cases"]],
    ids=lambda value: value if isinstance(value, str) else value["name"],
)
def test_a_study_is_decrypted_and_estimated(file: str, case: dict[str, Any]) -> None:
    """Codes, counts and the estimate are exactly those expected."""
    found, expect = research(DOCUMENTS[file], case), case["expect"]
    codes, shares = found["codes"], found["estimate"]
    if "codes" in expect:
        shown = {"codes": codes}
    else:
        digests = {
            name: hashlib.sha256(bytes(column)).hexdigest() for name, column in codes.items()
        }
        shown = {"codes_sha256": digests}
    assert list(codes) == case["attributes"]
    assert expect == {
        **shown,
        "counts": found["counts"],
        "estimate": [float(share) for share in shares],
        "estimate_exact": [f"{share.numerator}/{share.denominator}" for share in shares],
    }


@pytest.mark.parametrize(
    "case",
    [case for case in cases("bad_studies") if case.values[0]["step"] == "research"],
)
def test_a_researcher_refuses_what_it_must(case: dict[str, Any]) -> None:
    """Everything that the package's researcher refuses is refused by the document, too."""
    study = DOCUMENTS[case["study"]]
    base = next(each for each in study["cases"] if each["name"] == case["case"])
    with pytest.raises(RefusedError):
        research(study, base, **case["instead"])


@pytest.mark.parametrize(
    "case",
    [c for c in cases("bad_messages") if c.values[0]["kind"] in spec_messages.READERS],
)
def test_a_reader_refuses_what_it_must(case: dict[str, Any]) -> None:
    """Contracts, releases and grants that are not well-formed."""
    with pytest.raises(RefusedError):
        spec_messages.READERS[case["kind"]](case["message"])


@pytest.mark.parametrize("case", cases("decoys"))
def test_decoys(case: dict[str, Any]) -> None:
    """Section 5.2: patterns, decoys in their order, and the digest."""
    secret, study = bytes.fromhex(case["secret"]), bytes.fromhex(case["study"])
    patterns = spec_decoys.pattern_count(case["cells"], matched=case["mode"] == "matched")
    found = spec_decoys.decoys(secret, study, case["mechanism"], patterns)
    digest = spec_decoys.decoy_digest(secret, study, case["mechanism"], found)
    assert case["expect"] == {
        "patterns": patterns,
        "decoys": [[pattern, token.hex()] for pattern, token in found],
        "digest": digest.hex(),
    }


@pytest.mark.parametrize("case", cases("overlap"))
def test_overlap_counts(case: dict[str, Any]) -> None:
    """Section 13: what is sent, how many are in common, and what the number says."""
    if "fields" in case:
        first = json.loads(DOCUMENTS["overlap"]["cases"][0]["contract"])["body"]
        message = {"body": first | case["fields"], "signatures": []}
        with pytest.raises(RefusedError):
            spec_messages.read_contract(spec_bytes.canonical(message))
        return
    if case["name"].startswith("bad_"):
        with pytest.raises(RefusedError):
            spec_messages.read_overlap(case["number"])
        return
    contract = spec_messages.read_contract(case["contract"])["body"]
    study = spec_bytes.labelled("study", spec_bytes.canonical(contract).encode())
    agreed, curators = contract["mechanism"], len(contract["curators"])
    secret = spec_decoys.study_secret(list(map(bytes.fromhex, case["contributions"])), study)
    patterns = spec_decoys.pattern_count([1] * curators, matched=True)
    invented = spec_decoys.decoys(secret, study, agreed, patterns)
    sent = []
    for place, names in enumerate(case["tables"]):
        own = {spec_decoys.respondent_token(secret, study, name.encode()) for name in names}
        held = {token for token in own if spec_decoys.takes_part(token, agreed)}
        for pattern, token in invented:
            if not spec_decoys.digits(pattern, [1] * curators, matched=True)[place]:
                held.add(token)
        sent.append(held)
    told = spec_messages.read_overlap(case["number"])["body"]
    assert told["study"] == study.hex()
    beta = Fraction(int(agreed["coin_threshold"]), 2**64)
    assert case["expect"] == {
        "sent": [sorted(token.hex() for token in held) for held in sent],
        "common": len(set.intersection(*sent)),
        "estimate": str((told["number"] - spec_plan.moments(agreed["decoys"])[0]) / beta),
    }


@pytest.mark.parametrize("case", cases("promise"))
def test_promises_of_decoys(case: dict[str, Any]) -> None:
    """Section 4.3: exactly those that are kept, to the last unit."""

    def check() -> None:
        spec_messages.mechanism(case["mechanism"])
        spec_plan.check_decoy_promise(case["mechanism"], case["epsilon"], case["delta"])

    if case["expect"] == {"kept": True}:
        check()
        return
    with pytest.raises(RefusedError):
        check()


@pytest.mark.parametrize("case", cases("plausible"))
def test_plausible_numbers_of_rows(case: dict[str, Any]) -> None:
    """Section 11, at both ends."""
    numbers = case["population"], case["cells"], case["rows"]
    assert spec_plan.is_plausible(case["mechanism"], *numbers) is case["expect"]


@pytest.mark.parametrize("file", [file for file in STUDIES if file.endswith("decoys")])
def test_a_curator_with_decoys(file: str) -> None:
    """From contributions and tables alone: secret, alignment, tokens, decoys and what is sent."""
    study = DOCUMENTS[file]
    contract = spec_messages.read_contract(study["contract"])["body"]
    study_id = spec_bytes.labelled("study", spec_bytes.canonical(contract).encode())
    secret = spec_decoys.study_secret(list(map(bytes.fromhex, study["contributions"])), study_id)
    assert secret.hex() == study["secret"]
    agreed, matched = contract["mechanism"], contract["linkage"]["mode"] == "matched"
    cells = [
        math.prod(len(attribute["categories"]) for attribute in curator["attributes"])
        for curator in contract["curators"]
    ]
    patterns = spec_decoys.pattern_count(cells, matched=matched)
    invented = spec_decoys.decoys(secret, study_id, agreed, patterns)
    digest = spec_decoys.decoy_digest(secret, study_id, agreed, invented)
    for place, (table, upload) in enumerate(zip(study["tables"], study["uploads"], strict=True)):
        message = json.loads(study["alignments"][place])["body"]
        own = [
            spec_decoys.respondent_token(secret, study_id, name.encode())
            for (name,) in table["ids"]
        ]
        assert message["decoys"] == digest.hex()
        if not matched:
            aligned = spec_decoys.alignment_digest(secret, study_id, own)
            assert (message["digest"], message["population"]) == (aligned.hex(), len(own))
        sample = {token for token in own if spec_decoys.takes_part(token, agreed)}
        for pattern, token in invented:
            digits = spec_decoys.digits(pattern, cells, matched=matched)
            sample |= {token} if digits[place] < cells[place] else set()
        body = json.loads(upload["message"])["body"]
        assert body["rows"] == len(sample)
        if matched:
            sent = bytes.fromhex(upload["chunks"][-1])
            assert {sent[i : i + 16] for i in range(0, len(sent), 16)} == sample


@pytest.mark.parametrize("case", cases("canonical"))
def test_canonical_json(case: dict[str, Any]) -> None:
    """Section 1.1."""
    if "text" in case:
        assert spec_bytes.canonical(json.loads(case["text"])) == case["expect"]
        assert spec_bytes.parse(case["expect"].encode()) == json.loads(case["text"])
        return
    message = case.get("message", "").encode() or bytes.fromhex(case.get("message_hex", ""))
    with pytest.raises(RefusedError):
        spec_bytes.parse(message)


@pytest.mark.parametrize("case", cases("identity"))
def test_identities(case: dict[str, Any]) -> None:
    """Section 2."""
    found = spec_bytes.party_id(case["expect"])
    assert found == case["expect"]["party_id"]
    assert spec_bytes.fingerprint(found) == case["expect"]["fingerprint"]


@pytest.mark.parametrize("case", cases("rotations"))
def test_rotations(case: dict[str, Any]) -> None:
    """Sections 2.2 and 2.3."""
    if "error" in case["expect"]:
        with pytest.raises(RefusedError):
            spec_keys.newest(case["keys"])
    else:
        assert spec_keys.newest(case["keys"]) == case["expect"]


@pytest.mark.parametrize("case", cases("signatures"))
def test_signatures(case: dict[str, Any]) -> None:
    """Section 1.2."""
    body, expect = case["body"].encode(), case["expect"]
    if "error" in expect:
        with pytest.raises(RefusedError):
            spec_bytes.verify(
                bytes.fromhex(case["key"]), case["kind"], body, bytes.fromhex(case["signature"])
            )
        return
    key, signature = bytes.fromhex(expect["key"]), bytes.fromhex(expect["signature"])
    spec_bytes.verify(key, case["kind"], body, signature)
    assert spec_bytes.digest(json.loads(body)).hex() == expect["digest"]


@pytest.mark.parametrize("case", cases("sealing"))
def test_seals(case: dict[str, Any]) -> None:
    """Section 3."""
    key, sealed, context = (
        bytes.fromhex(case[name]) for name in ("private_key", "sealed", "context")
    )
    if isinstance(case["expect"], str):
        assert spec_bytes.unseal(key, sealed, case["purpose"], context).hex() == case["expect"]
        return
    with pytest.raises(RefusedError):
        spec_bytes.unseal(key, sealed, case["purpose"], context)


@pytest.mark.parametrize("case", cases("pads"))
def test_stream_pads(case: dict[str, Any]) -> None:
    """Section 6."""
    rows = case.get("positions")
    if rows is None:
        rows = range(case["start"], case["start"] + case["count"])
    found = spec_bytes.stream_pads(bytes.fromhex(case["key"]), case["size"], rows)
    assert found == case["expect"]


@pytest.mark.parametrize("case", cases("packing"))
def test_columns(case: dict[str, Any]) -> None:
    """Section 7."""
    if "positions" in case:
        data = bytes.fromhex(case["expect"])
        assert spec_bytes.unpack_positions(data, len(case["positions"])) == case["positions"]
    elif "codes" in case:
        data = bytes.fromhex(case["expect"])
        assert spec_bytes.unpack(data, case["size"], len(case["codes"])) == case["codes"]
    else:
        with pytest.raises(RefusedError):
            spec_bytes.unpack(bytes.fromhex(case["packed"]), case["size"], case["count"])


@pytest.mark.parametrize("case", [c for c in cases("threshold") if c.id and c.id[:4] != "bad_"])
def test_plans(case: dict[str, Any]) -> None:
    """Section 4.1: the same plan; and a threshold that is one step larger breaks the promise."""
    n, cells, epsilon, expect = case["population"], case["cells"], case["epsilon"], case["expect"]
    m = case["size"] or spec_plan.minimax_size(n, cells, epsilon)
    t = spec_plan.threshold(n, m, cells, epsilon)
    assert {"sample_size": m, "keep_threshold": str(t)} == expect
    spec_plan.check_promise(n, m, cells, t, epsilon)
    if t + cells < 2**64:
        with pytest.raises(RefusedError):
            spec_plan.check_promise(n, m, cells, t + cells, epsilon)


@pytest.mark.parametrize("case", cases("noise"))
def test_noise(case: dict[str, Any]) -> None:
    """Section 9."""
    given = (case["sizes"], int(case["keep_threshold"]), case["cell"])
    if "error" in case["expect"]:
        with pytest.raises(RefusedError):
            spec_plan.noise(*given)
        return
    weight, parts = spec_plan.noise(*given)
    assert {"weight": str(weight), "parts": parts} == case["expect"]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_nothing_is_imported_but_the_standard_library_and_cryptography(path: Path) -> None:
    """Nor is anything of the package, or of its generator, reached through another test module."""
    allowed = sys.stdlib_module_names | {"cryptography", "pytest"}
    local = {f"tests.vectors.{each.stem}" for each in OWN} | {"tests.vectors"}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert not node.level
            names = [str(node.module)]
            if node.module == "tests.vectors":
                names += [f"tests.vectors.{alias.name}" for alias in node.names]
        for name in names:
            assert name in local or name.partition(".")[0] in allowed, name


def test_the_package_is_not_even_loaded() -> None:
    """In a process of its own, a study is estimated without a module of the package."""
    code = (
        "import sys; from tests.vectors import test_from_spec_alone as own;"
        "study = own.DOCUMENTS['study-matched-fresh'];"
        "own.research(study, study['cases'][0]);"
        "print([m for m in sys.modules if m.partition('.')[0] in ('veiltab', 'numpy', 'vectors')])"
    )
    done = subprocess.run(  # noqa: S603 - this very interpreter
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
