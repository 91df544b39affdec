"""The signed form, digests and ids (spec 1.2, 2, 4, 11 and 12.1)."""

import hashlib
from typing import Any

import pytest

from tests.support import messages
from tests.support.messages import EXAMPLES, load_signed, signed
from veiltab.errors import MalformedError, MismatchError
from veiltab.wire.codec import dump
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Grant, SignedGrant
from veiltab.wire.signed import Signature, Signed, digest, signing_input


@pytest.mark.parametrize("value", [None, [], "text", 1, True])
def test_a_body_that_is_no_object_is_refused(value: object) -> None:
    """In the place of the body too."""
    for build in EXAMPLES.values():
        body = build()
        with pytest.raises(MalformedError, match=r"^the message: must be an object"):
            load_signed(type(body), dump(signed(body).to_json() | {"body": value}))


def test_digest_and_signing_input_are_those_of_the_specification() -> None:
    """Label, kind, zero byte, canonical body (spec 1.2)."""
    body = messages.alignment()
    assert signing_input("alignment", b"{}") == b"veiltab/v1/sign/alignment\x00{}"
    whole: Signed[Any] = signed(body)
    assert whole.signing_input == b"veiltab/v1/sign/alignment\x00" + body.canonical()
    assert whole.digest == digest(body) == hashlib.sha256(body.canonical()).digest()


def test_ids_are_those_of_the_specification() -> None:
    """Party, study and vault ids are labelled hashes (spec 2, 4, 12.1)."""

    def labelled(label: bytes, data: bytes) -> bytes:
        return hashlib.sha256(b"veiltab/v1/" + label + b"\x00" + data).digest()

    party = messages.SERVER
    assert party.party_id == labelled(b"identity", party.signing_key + party.sealing_key)
    contract, vault = messages.contract(), messages.vault()
    assert contract.study_id == contract.scope == labelled(b"study", contract.canonical())
    assert vault.vault_id == vault.scope == labelled(b"vault", vault.canonical())


def test_a_contract_tells_its_parts() -> None:
    """The joint schema, each curator's, and nobody else's."""
    contract = messages.contract()
    assert contract.schema.names == ("smoker", "age", "income")
    assert contract.schema_of(messages.HOSPITAL.party_id).names == ("smoker", "age")
    assert contract.curator(messages.TAX_OFFICE.party_id) == messages.TAX_OFFICE
    for stranger in (messages.SERVER.party_id, b""):
        with pytest.raises(MismatchError, match="is not a curator of 'Smoking and income'"):
            contract.curator(stranger)


def test_signatures_are_sorted_and_one_per_key() -> None:
    """Another order, or the same key twice, is refused; a contract may still have none."""
    contract = messages.contract()
    whole: Signed[Contract] = signed(contract, "a", "b", "c")
    assert [each.key for each in whole.signatures] == sorted(each.key for each in whole.signatures)
    first, second, third = whole.signatures
    for wrong in [(second, first, third), (first, first), (first, Signature(first.key, bytes(64)))]:
        with pytest.raises(MalformedError, match=r"^signatures\[1\].key: must be greater"):
            Signed(contract, wrong)
    unsigned = Signed(contract, ())
    assert Contract.loads(unsigned.dumps()) == unsigned
    assert unsigned.with_signature(third).with_signature(first).with_signature(second) == whole
    assert whole.with_signature(Signature(first.key, bytes(64))).signatures[1:] == (second, third)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if not EXAMPLES[name]().cosigned])
def test_all_other_kinds_have_exactly_one_signature(name: str) -> None:
    """None, and two, are refused (spec 1.2)."""
    body = EXAMPLES[name]()
    whole = signed(body).to_json()
    two = sorted(whole["signatures"] * 2, key=lambda each: each["key"])
    two[0] = two[0] | {"key": "00" * 32}
    for wrong in ([], two):
        with pytest.raises(MalformedError, match=r"^signatures: must have exactly one item"):
            load_signed(type(body), dump(whole | {"signatures": wrong}))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_signed_form_is_strict_too(name: str) -> None:
    """Missing and unknown fields, and signatures of another form."""
    body = EXAMPLES[name]()
    whole = signed(body).to_json()
    for key in whole:
        with pytest.raises(MalformedError, match=rf"^{key}: is missing"):
            load_signed(type(body), dump({k: v for k, v in whole.items() if k != key}))
    with pytest.raises(MalformedError, match="unknown field 'extra'"):
        load_signed(type(body), dump(whole | {"extra": 1}))
    for wrong, path in [
        (None, "signatures"),
        ([None], r"signatures\[0\]"),
        ([{"key": "00" * 32}], r"signatures\[0\].signature"),
        ([{"key": "00" * 31, "signature": "00" * 64}], r"signatures\[0\].key"),
        ([{"key": "00" * 32, "signature": "00" * 32}], r"signatures\[0\].signature"),
    ]:
        with pytest.raises(MalformedError, match=rf"^{path}: "):
            load_signed(type(body), dump(whole | {"signatures": wrong}))


def test_the_header_of_a_grant_is_the_grant_without_its_sealed_part() -> None:
    """The server of a one-time study gets this, and the same signature verifies on it."""
    whole: SignedGrant = signed(messages.grant())
    header = whole.header()
    assert header.sealed is None
    assert (header.signed, header.body) == (whole.signed, whole.body)
    assert SignedGrant.loads(header.dumps()) == header
    assert b'"sealed":null' in header.dumps()
    assert hashlib.sha256(whole.sealed or b"").digest() == whole.body.sealed_digest
    with pytest.raises(MalformedError, match=r"^sealed: must be bytes"):
        SignedGrant(whole.signed, "text")  # type: ignore[arg-type]
    assert not hasattr(Grant, "loads")
