"""How the package answers a vector: a function for each file, which takes a case's inputs.

Each returns what the case must expect, or raises the error that it must expect.  An input that a
function does not know is a ``TypeError``, so that nothing in a vector goes unused.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tests.vectors.service_runners import SERVICE_RUNNERS
from vectors.generator import hpke
from vectors.generator.files import load as load_vectors
from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.plan import DECOYS, Plan, plan
from veiltab.core.plausible import plausible_rows
from veiltab.core.schema import Attribute, Schema
from veiltab.crypto import derivation, signing
from veiltab.crypto.identity import PrivateIdentity, fingerprint
from veiltab.crypto.linkage import alignment_digest, token_order
from veiltab.crypto.linkage import tokens as make_tokens
from veiltab.crypto.pads import StreamPad
from veiltab.crypto.sealing import SealingKey
from veiltab.crypto.signing import SigningKey
from veiltab.data.ids import id_messages
from veiltab.party.keyfile import load_identity
from veiltab.protocol.curator.decoys import Decoys, Patterns
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.keys import verify_keys, verify_rotations
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.verify import verify_agreement, verify_overlap
from veiltab.wire.codec import dump, load
from veiltab.wire.contract import Contract, Vault
from veiltab.wire.mechanism import MECHANISM, DecoyTerms
from veiltab.wire.messages import (
    Alignment,
    GrantRevocation,
    Overlap,
    Publication,
    Release,
    Repad,
    RepadRequest,
    Secret,
    SignedGrant,
    Upload,
)
from veiltab.wire.packing import pack, pack_positions, unpack, unpack_positions
from veiltab.wire.rotation import PartyKeys
from veiltab.wire.signed import SignedMessage, signing_input

KINDS: dict[str, type[SignedMessage]] = {
    each.kind: each
    for each in (
        Alignment,
        Contract,
        GrantRevocation,
        Overlap,
        Publication,
        Release,
        Repad,
        RepadRequest,
        Secret,
        Upload,
        Vault,
    )
}


def canonical(
    text: str | None = None, message: str | None = None, message_hex: str | None = None
) -> str:
    """Write JSON in its canonical form, which must be read again; or read a message."""
    if text is not None:
        value = json.loads(text)
        assert load(dump(value)) == value
        return dump(value).decode()
    load(bytes.fromhex(message_hex) if message_hex is not None else _utf8(message))
    raise AssertionError("the message was accepted")


def identity(signing_seed: str, sealing_secret: str) -> dict[str, str]:
    """Show a party's public side."""
    party = private_identity("x", signing_seed, sealing_secret)
    return {
        "signing_key": party.signing.public.hex(),
        "sealing_key": party.sealing.public.hex(),
        "party_id": party.party_id.hex(),
        "fingerprint": fingerprint(party.party_id),
    }


def private_identity(name: str, signing_seed: str, sealing_secret: str) -> PrivateIdentity:
    """Build a party from its private keys."""
    signing_key = SigningKey(bytes.fromhex(signing_seed))
    return PrivateIdentity(name, signing_key, SealingKey(bytes.fromhex(sealing_secret)))


def keyfile(content: str, passphrase: str | None) -> dict[str, object]:
    """Load a key file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "key"
        path.touch(mode=0o600)
        path.write_bytes(content.encode())
        party = load_identity(path, passphrase)
    pairs = [
        {
            "at": pair.at,
            "sealing_secret": pair.sealing.secret_bytes().hex(),
            "signing_seed": pair.signing.secret_bytes().hex(),
        }
        for pair in party.pairs
    ]
    return {"keys": pairs, "name": party.name, "party_id": party.party_id.hex()}


def rotations(keys: dict[str, Any]) -> dict[str, str]:
    """Verify a party's keys."""
    read = PartyKeys.from_json(keys)
    verify_keys(read.identity, read)
    return {
        "party_id": read.identity.party_id.hex(),
        "sealing_key": read.sealing_key.hex(),
        "signing_key": verify_rotations(read.identity, read.rotations).hex(),
    }


def derived(derive: str, **inputs: Any) -> str:
    """Derive what is named, from bytes and numbers in the order of the function's parameters."""
    known = {"secret_commitment", "token_key", "alignment_key", "pad_key", "study_secret"}
    assert derive in known | {"decoy_number_key", "decoy_token_key", "decoy_digest_key"}
    values = [_unhex(value) for value in inputs.values()]
    found: bytes = getattr(derivation, derive)(*values)
    return found.hex()


def _unhex(value: Any) -> Any:  # noqa: ANN401 - bytes, a list of them, or a number
    if isinstance(value, list):
        return [_unhex(item) for item in value]
    return bytes.fromhex(value) if isinstance(value, str) else value


def decoys(
    secret: str, study: str, mechanism: dict[str, Any], cells: list[int], mode: str
) -> dict[str, Any]:
    """Invent the decoys of a study."""
    terms = MECHANISM.read(mechanism, "mechanism")
    assert isinstance(terms, DecoyTerms)
    patterns = Patterns(tuple(cells), matched=mode == "matched")
    made = Decoys(patterns, terms, bytes.fromhex(secret), bytes.fromhex(study))
    pairs = [
        [int(number), token.tobytes().hex()]
        for numbers, tokens in made.spans()
        for number, token in zip(numbers, tokens, strict=True)
    ]
    return {"patterns": patterns.count, "decoys": pairs, "digest": made.digest.hex()}


def promise(mechanism: dict[str, Any], epsilon: float, delta: float) -> dict[str, bool]:
    """Check a promise; the joint table has two cells, which makes no difference."""
    terms = MECHANISM.read(mechanism, "mechanism")
    assert isinstance(terms, DecoyTerms)
    Plan(
        population_size=None,
        domain_size=24,
        epsilon=epsilon,
        delta=delta,
        mechanism=terms.mechanism,
        accounting=DECOYS,
    )
    return {"kept": True}


def plausible(mechanism: dict[str, Any], population: int | None, cells: int, rows: int) -> bool:
    """Judge the number of rows of a release."""
    terms = MECHANISM.read(mechanism, "mechanism")
    assert isinstance(terms, DecoyTerms)
    return plausible_rows(rows, terms.mechanism, cells, population)


def signatures(
    kind: str,
    body: str,
    seed: str | None = None,
    key: str | None = None,
    signature: str | None = None,
) -> dict[str, str]:
    """Sign a body, or verify a signature on it."""
    data = signing_input(kind, body.encode())
    if seed is not None:
        private = SigningKey(bytes.fromhex(seed))
        made = private.sign(data)
        signing.verify(private.public, data, made)
        digest = hashlib.sha256(body.encode()).hexdigest()
        return {"key": private.public.hex(), "signature": made.hex(), "digest": digest}
    assert key is not None
    assert signature is not None
    signing.verify(bytes.fromhex(key), data, bytes.fromhex(signature))
    raise AssertionError("the signature was accepted")


def sealing(
    private_key: str, purpose: str, context: str, sealed: str, ephemeral_key: str | None = None
) -> str:
    """Open what was sealed; with the ephemeral key it can be sealed again."""
    key, bound = SealingKey(bytes.fromhex(private_key)), bytes.fromhex(context)
    opened = key.open(bytes.fromhex(sealed), purpose, bound)
    if ephemeral_key is not None:
        ephemeral = bytes.fromhex(ephemeral_key)
        again = hpke.seal(opened, key.public, purpose, bound, ephemeral=ephemeral)
        assert again.hex() == sealed
    return opened.hex()


def tokens(
    key: str | None = None,
    message: str | None = None,
    texts: list[str] | None = None,
    normalisation: list[str] | None = None,
) -> str:
    """Return a message's token, or the message of a respondent's texts."""
    if texts is not None:
        assert normalisation is not None
        frame = pl.DataFrame({str(place): [text] for place, text in enumerate(texts)})
        return id_messages(frame, frame.columns, normalisation).data.tobytes().hex()
    assert key is not None
    assert message is not None
    data = np.frombuffer(bytes.fromhex(message), dtype=np.uint8)
    return make_tokens(bytes.fromhex(key), data, np.array([0, data.size])).tobytes().hex()


def alignment(secret: str, study: str, tokens: list[str]) -> str:
    """Return the keyed digest of tokens."""
    key = derivation.alignment_key(bytes.fromhex(secret), bytes.fromhex(study))
    table = np.frombuffer(bytes.fromhex("".join(tokens)), dtype=np.uint8).reshape(-1, 16)
    return alignment_digest(key, len(table), [table[token_order(table)]]).hex()


def pads(
    key: str,
    size: int,
    start: int | None = None,
    count: int | None = None,
    positions: list[int] | None = None,
) -> list[int]:
    """Return a stream pad; rows in a row must be the same as rows one by one."""
    secret = bytes.fromhex(key)
    if positions is None:
        assert start is not None
        assert count is not None
        positions = list(range(start, start + count))
        found: list[int] = StreamPad(secret, size).rows(start, count).tolist()
        assert StreamPad(secret, size).at(np.array(positions)).tolist() == found
        return found
    rows: list[int] = StreamPad(secret, size).at(np.array(positions)).tolist()
    assert rows == [int(StreamPad(secret, size).rows(place, 1)[0]) for place in positions]
    return rows


def packing(
    size: int | None = None,
    codes: list[int] | None = None,
    positions: list[int] | None = None,
    count: int | None = None,
    packed: str | None = None,
) -> str:
    """Pack codes or positions, which must come back; or unpack bytes."""
    if positions is not None:
        data = pack_positions(np.array(positions))
        assert unpack_positions(data, len(positions)).tolist() == positions
        return data.hex()
    assert size is not None
    if codes is not None:
        data = pack(np.array(codes, dtype=np.uint16), size)
        assert unpack(data, size, len(codes)).tolist() == codes
        return data.hex()
    assert count is not None
    assert packed is not None
    unpack(bytes.fromhex(packed), size, count)
    raise AssertionError("the chunk was accepted")


def threshold(population: int, size: int | None, cells: int, epsilon: float) -> dict[str, Any]:
    """Plan a release."""
    found = plan(
        anyway=True,
        population_size=population,
        domain_size=cells,
        epsilon=epsilon,
        sample_size=size,
        mechanism="paper",
    )
    return {"sample_size": found.sample_size, "keep_threshold": str(found.keep_threshold)}


def noise(keep_threshold: str, sizes: list[int], cell: int) -> dict[str, Any]:
    """Return the probability of a noise cell, times 2⁶⁴, and the cell's parts."""
    schema = Schema(
        Attribute(str(place), map(str, range(size))) for place, size in enumerate(sizes)
    )
    channel = GammaDiagonal.from_threshold(schema.domain_size, int(keep_threshold))
    weight = channel.probability(released=cell, cell=0) * DRAW_RANGE
    parts = schema.codes(np.array([cell]))
    return {"weight": str(weight), "parts": [int(part[0]) for part in parts]}


def bad_messages(kind: str, message: str) -> None:
    """Read a message of a kind."""
    read_message(kind, message)
    raise AssertionError("the message was accepted")


def read_message(kind: str, message: str) -> Any:  # noqa: ANN401 - a Signed, or a SignedGrant
    """Read a message, and check that it is written in the same way again."""
    found: Any = (
        SignedGrant.loads(message.encode())
        if kind == "grant"
        else KINDS[kind].loads(message.encode())
    )
    assert found.dumps().decode() == message
    return found


def overlap(
    contract: str | None = None,
    contributions: Sequence[str] = (),
    tables: Sequence[Sequence[str]] = (),
    number: str | None = None,
    fields: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Read an overlap count and its number; take in every table, and count."""
    if fields is not None:
        contract = changed_contract(load_vectors("overlap")["cases"][0]["contract"], fields)
    agreed = None if contract is None else Contract.loads(contract.encode())
    told = None if number is None else Overlap.loads(number.encode())
    assert agreed is not None
    assert told is not None
    body = verify_agreement(agreed)
    secret = derivation.study_secret(list(map(bytes.fromhex, contributions)), body.study_id)
    sent = []
    for terms, names in zip(body.curators, tables, strict=True):
        me = terms.party_id
        with Intake(body, secret, terms.schema, MemorySpool(), curator=me) as intake:
            frame = pl.DataFrame({"id": names})
            intake.add(id_messages(frame, ["id"], body.linkage.normalisation), [])
            intake.close()
            sent.append({bytes(token) for rows, _ in intake.rows() for token in rows})
    estimate = verify_overlap(body, told)
    fraction = (estimate.number - estimate.plan.decoys.mean) / estimate.plan.coin.probability
    return {
        "sent": [sorted(token.hex() for token in own) for own in sent],
        "common": len(set.intersection(*sent)),
        "estimate": str(fraction),
    }


def changed_contract(contract: str, fields: dict[str, Any]) -> str:
    """Return a contract with other fields, which nobody has signed."""
    body = json.loads(contract)["body"] | fields
    return dump({"body": body, "signatures": []}).decode()


def _utf8(message: str | None) -> bytes:
    assert message is not None
    return message.encode()


RUNNERS: dict[str, Callable[..., Any]] = {
    "alignment": alignment,
    "bad_messages": bad_messages,
    "canonical": canonical,
    "decoys": decoys,
    "derivation": derived,
    "identity": identity,
    "rotations": rotations,
    "keyfile": keyfile,
    "noise": noise,
    "overlap": overlap,
    "packing": packing,
    "pads": pads,
    "plausible": plausible,
    "promise": promise,
    "sealing": sealing,
    "signatures": signatures,
    "threshold": threshold,
    "tokens": tokens,
    **SERVICE_RUNNERS,
}
