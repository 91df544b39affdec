"""Changing the messages of a study that was written down, and signing them again."""

import base64
import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from vectors.generator.files import load
from vectors.generator.hpke import ephemeral_key, seal
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.sealing import SealingKey
from veiltab.crypto.signing import SigningKey
from veiltab.wire.codec import dump
from veiltab.wire.signed import signing_input

Json = dict[str, Any]
Change = Callable[[Json], object]
"""Changes a body in place."""


def put(*path: str | int, to: object) -> Change:
    """Change the value at a path."""

    def change(body: Json) -> None:
        _parent(body, path)[path[-1]] = to

    return change


def drop(*path: str | int) -> Change:
    """Remove the value at a path."""

    def change(body: Json) -> None:
        del _parent(body, path)[path[-1]]

    return change


def turn(*path: str | int) -> Change:
    """Reverse the list at a path."""

    def change(body: Json) -> None:
        _parent(body, path)[path[-1]].reverse()

    return change


def repeat(*path: str | int) -> Change:
    """Append the first item of the list at a path to it."""

    def change(body: Json) -> None:
        found = _parent(body, path)[path[-1]]
        found.append(copy.deepcopy(found[0]))

    return change


def together(*changes: Change) -> Change:
    """Make several changes."""

    def change(body: Json) -> None:
        for each in changes:
            each(body)

    return change


def flipped(data: str, place: int = -1) -> str:
    """Change one bit of bytes in hexadecimal."""
    changed = bytearray.fromhex(data)
    changed[place] ^= 1
    return changed.hex()


def text(message: Json) -> str:
    """Write a message in its canonical form."""
    return dump(message).decode()


def sealed_part(grant: str) -> bytes:
    """Return the sealed part of a grant."""
    return base64.b64decode(json.loads(grant)["sealed"])


class Written:
    """A study as its file has it, with everybody's keys."""

    def __init__(self, name: str) -> None:
        """Read the file of a study."""
        self.name = name
        self.document = load(name)
        self.parties = [
            PrivateIdentity(
                party["name"],
                SigningKey(bytes.fromhex(party["signing_seed"])),
                SealingKey(bytes.fromhex(party["sealing_secret"])),
            )
            for party in self.document["parties"]
        ]
        *self.curators, self.server, self.researcher = self.parties
        self.contract: str = self.document["contract"]
        self.release: str = self.document["release"]["message"]
        self.chunks: list[str] = self.document["release"]["chunks"]
        self.grants: list[str] = self.document["cases"][0]["grants"]

    @property
    def cells(self) -> int:
        """N."""
        found: int = json.loads(self.release)["body"]["cells"]
        return found

    def signed(self, body: Json, signers: Sequence[PrivateIdentity], kind: str = "") -> Json:
        """Sign a body, whatever it says."""
        data = signing_input(kind or str(body["kind"]), dump(body))
        signatures = [
            {"key": who.signing.public.hex(), "signature": who.signing.sign(data).hex()}
            for who in signers
        ]
        return {"body": body, "signatures": sorted(signatures, key=lambda each: each["key"])}

    def again(self, message: str, change: Change, *signers: PrivateIdentity) -> str:
        """Change the body of a message and sign it again, by the same parties unless told."""
        parsed = json.loads(message)
        change(parsed["body"])
        keys = {each["key"] for each in parsed["signatures"]}
        same = [who for who in self.parties if who.signing.public.hex() in keys]
        return text(parsed | self.signed(parsed["body"], signers or same))

    def outside(self, message: str, change: Change) -> str:
        """Change a message and leave the signatures as they are."""
        parsed = json.loads(message)
        change(parsed)
        return text(parsed)

    def resealed(
        self, grant: str, material: bytes, label: str, rename: Change | None = None
    ) -> str:
        """Put other pads into a grant, and sign it again."""
        parsed = json.loads(grant)
        if rename is not None:
            rename(parsed["body"])
        body = parsed["body"]
        names = ("study", "curator", "researcher", "grant")
        context = bytes.fromhex("".join(body[name] for name in names))
        key = ephemeral_key(f"{self.name}, {label}")
        sealed = seal(material, self.researcher.sealing.public, "grant", context, ephemeral=key)
        return self.with_seal(text(parsed), sealed)

    def with_seal(self, grant: str, sealed: bytes) -> str:
        """Put a sealed part into a grant, with its digest, and sign it again."""
        parsed = json.loads(grant)
        parsed["sealed"] = base64.b64encode(sealed).decode()
        digest = hashlib.sha256(sealed).hexdigest()
        return self.again(text(parsed), put("sealed_digest", to=digest))


def revocation(study: Written) -> str:
    """Return the revocation of the first grant of a study, signed by its curator (11.2)."""
    grant = json.loads(study.grants[0])["body"]
    body = {name: grant[name] for name in ("curator", "grant", "researcher", "study")}
    signed = study.signed({**body, "kind": "grant-revocation", "version": 1}, study.curators[:1])
    return text(signed)


def _parent(body: Json, path: Sequence[str | int]) -> Any:  # noqa: ANN401 - a list or an object
    found: Any = body
    for step in path[:-1]:
        found = found[step]
    return found
