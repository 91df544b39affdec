"""Going through the studies of the vectors again, step by step, with the real roles."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.support.chunks import read_positions, read_tokens
from tests.support.decoys import expected_sample
from tests.support.entropy import ScriptedEntropy
from tests.vectors.runners import private_identity, read_message
from veiltab.core.released import ReleasedCounts
from veiltab.core.schema import Attribute, Codes, Schema
from veiltab.crypto.derivation import pad_key, token_key
from veiltab.crypto.linkage import IdMessages, token_order
from veiltab.crypto.linkage import tokens as make_tokens
from veiltab.crypto.pads import StreamPad
from veiltab.data.ids import id_messages, row_messages
from veiltab.protocol.curator.agreement import receive_secret, study_secret
from veiltab.protocol.curator.stored import StoredTable
from veiltab.protocol.curator.table import Intake, Tokens
from veiltab.protocol.curator.upload import CuratorContext, Prepared, StreamPads, check_alignment
from veiltab.protocol.researcher import count_records, decrypt, open_access
from veiltab.protocol.server.accept import check_repad, check_upload
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.stores import MemoryChunks
from veiltab.wire.contract import Agreement
from veiltab.wire.packing import packed_length, unpack
from veiltab.wire.states import State


class StudyFile:
    """A study as a vector file has it; every message is read when it is first asked for."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Take the parties' keys."""
        self.document = document
        parties = [private_identity(**party) for party in document["parties"]]
        *self.curators, self.server, self.researcher = parties
        self.by_name = {party.name: party for party in parties}

    @cached_property
    def contract(self) -> Any:  # noqa: ANN401 - a Signed[Contract], as all below
        """The signed contract."""
        return read_message("contract", self.document["contract"])

    @cached_property
    def agreement(self) -> Agreement:
        """The vault, where there is one: what uploads and secrets are bound to."""
        vault = self.document["vault"]
        body: Agreement = self.contract.body if vault is None else read_message("vault", vault).body
        return body

    @cached_property
    def release(self) -> Any:  # noqa: ANN401
        """The signed release."""
        return read_message("release", self.document["release"]["message"])

    def messages(self, kind: str, name: str) -> list[Any]:
        """Return the messages in one list of the file."""
        found = self.document[name]
        texts = [each if isinstance(each, str) else each["message"] for each in found]
        return [read_message(kind, text) for text in texts]

    def combine(self, instead: Mapping[bytes, bytes]) -> bytes:
        """Put the study secret together, with some contributions instead of the right ones."""
        drawn = map(bytes.fromhex, self.document["contributions"])
        ids = [curator.party_id for curator in self.curators]
        return study_secret(self.contract.body, dict(zip(ids, drawn, strict=True)) | dict(instead))

    def attributes(self, number: int) -> tuple[Attribute, ...]:
        """Return the attributes of a curator."""
        return self.agreement.curators[number].attributes


def store(chunks: Sequence[str]) -> MemoryChunks:
    """Put chunks where messages refer to them."""
    found = MemoryChunks()
    for chunk in chunks:
        found.put(bytes.fromhex(chunk))
    return found


def research(study: StudyFile, case: Mapping[str, Any], **instead: Any) -> dict[str, Any]:
    """Do what the researcher does in a case, with other messages instead of the right ones."""
    known = {"contract", "release", "chunks", "grants", "now", "party", "attributes"}
    assert instead.keys() <= known
    document = study.document
    given = {
        "contract": document["contract"],
        "release": document["release"]["message"],
        "chunks": document["release"]["chunks"],
        "party": "researcher",
        "grants": case["grants"],
        "now": case["now"],
        "attributes": None,
        **instead,
    }
    access = open_access(
        study.by_name[given["party"]],
        read_message("contract", given["contract"]),
        read_message("release", given["release"]),
        [read_message("grant", text) for text in given["grants"]],
        now=given["now"],
    )
    chunks, wanted = store(given["chunks"]), given["attributes"]
    found = count_records(access, chunks, wanted)
    columns = [
        np.concatenate(parts) for parts in zip(*decrypt(access, chunks, wanted), strict=True)
    ]
    exact = _estimate(found)
    return {
        **_codes(found.schema.names, columns, long=document["tables"] is None),
        "counts": found.counts.tolist(),
        "estimate": [float(share) for share in exact],
        "estimate_exact": [f"{share.numerator}/{share.denominator}" for share in exact],
    }


def _estimate(found: ReleasedCounts) -> list[Fraction]:
    """Return the exact estimate: shares, or with decoys numbers of respondents."""
    counts, plan, cells = found.counts.tolist(), found.plan, found.schema.domain_size
    coin, law = plan.mechanism.coin, plan.mechanism.decoys
    if coin is None or law is None:
        shares = np.array([Fraction(count, sum(counts)) for count in counts])
        exact = list(plan.ranked.channel.marginal(cells).invert(shares))
        assert found.unbiased == pytest.approx([float(share) for share in exact], abs=1e-12)
        return exact
    shares = np.array([Fraction(count) for count in counts])
    if plan.channel is not None:
        shares = plan.channel.marginal(cells).invert(shares / sum(counts)) * sum(counts)
    decoys = law.mean * (plan.domain_size // cells)
    return [(number - decoys) / coin.probability for number in shares]


def _codes(names: Sequence[str], columns: Sequence[Codes], *, long: bool) -> dict[str, Any]:
    if not long:
        return {"codes": {n: column.tolist() for n, column in zip(names, columns, strict=True)}}
    digests = [sha256(column.astype(np.uint8).tobytes()).hexdigest() for column in columns]
    return {"codes_sha256": dict(zip(names, digests, strict=True))}


def _receive_secret(study: StudyFile, message: str) -> None:
    """Let the second curator receive the first one's contribution, or the vault's secret."""
    received = receive_secret(study.agreement, study.curators[1], read_message("secret", message))
    if study.document["vault"] is None:
        study.combine({study.curators[0].party_id: received})


def _align(study: StudyFile, messages: Sequence[str]) -> None:
    check_alignment(study.contract.body, [read_message("alignment", text) for text in messages])


def _upload(study: StudyFile, message: str, chunks: Sequence[str]) -> None:
    check_upload(study.contract.body, read_message("upload", message), store(chunks))


def _request(study: StudyFile, message: str, chunks: Sequence[str]) -> None:
    identity = study.curators[0]
    pads = StreamPads(
        read_message("upload", study.document["uploads"][0]["message"]).body.upload_id,
        study.attributes(0),
        tuple(pad_keys(study, "uploads", 0)),
    )
    table = StoredTable(
        read_message("vault", study.document["vault"]).body,
        Prepared(study.messages("upload", "uploads")[0], pads),
    )
    desk = CuratorContext(identity, ScriptedEntropy(bytes(48)), MemoryChunks(), MemoryChunks())
    table.repad(desk, study.contract, read_message("repad-request", message), store(chunks))


def _repad(study: StudyFile, message: str, chunks: Sequence[str]) -> None:
    request = study.messages("repad-request", "requests")[0]
    check_repad(study.contract.body, request, read_message("repad", message), store(chunks))


def _publish(study: StudyFile, message: str) -> None:
    """Let the server take a publication."""
    case = study.document["cases"][0]
    _granted(study).accept_publication(read_message("publication", message), case["now"])


def _revoke(study: StudyFile, message: str) -> None:
    """Let the server take the revocation of a grant."""
    _granted(study).accept_revocation(read_message("grant-revocation", message))


def _granted(study: StudyFile) -> ServerStudy:
    """Return the study on the server, which has kept the grants of the first case."""
    grants = [read_message("grant", text) for text in study.document["cases"][0]["grants"]]
    context = ServerContext(
        study.server.signing, ScriptedEntropy(b""), MemoryChunks(), MemoryChunks()
    )
    return ServerStudy.resume(
        context, study.contract, State.RELEASED, release=study.release, grants=grants
    )


STEPS: dict[str, Callable[..., object]] = {
    "alignment": _align,
    "publication": _publish,
    "repad": _repad,
    "revocation": _revoke,
    "request": _request,
    "secret": _receive_secret,
    "upload": _upload,
}
"""What parties other than the researcher do with messages that they are sent."""


def pad_keys(study: StudyFile, name: str, number: int) -> list[bytes]:
    """Derive the pad keys of an upload or repad from its upload secret."""
    kept = study.document[name][number]
    kind = "upload" if name == "uploads" else "repad"
    body = read_message(kind, kept["message"]).body
    scope = body.scope if kind == "upload" else body.study
    secret = bytes.fromhex(kept["upload_secret"])
    return [pad_key(secret, scope, body.upload_id, i) for i in range(len(body.columns))]


def pads_of(study: StudyFile, name: str, number: int, rows: NDArray[np.int64]) -> list[Codes]:
    """Return the pads of rows of an upload or repad, for each of its attributes."""
    attributes = study.attributes(number)
    material = study.document[name][number]["one_time_pads"]
    if material is None:
        keys = pad_keys(study, name, number)
        return [StreamPad(key, a.size).at(rows) for key, a in zip(keys, attributes, strict=True)]
    data = bytes.fromhex(material)
    count, start, found = int.from_bytes(data[:8], "big"), 8, []
    for attribute in attributes:
        stop = start + packed_length(attribute.size, count)
        found.append(unpack(data[start:stop], attribute.size, count)[rows])
        start = stop
    assert start == len(data)
    return found


def messages_of(study: StudyFile, number: int) -> IdMessages:
    """Return the messages of a curator's respondents."""
    table = study.document["tables"][number]
    if table["ids"] is None:
        return row_messages(len(next(iter(table["codes"].values()))))
    columns = zip(*table["ids"], strict=True)
    frame = pl.DataFrame({str(i): list(texts) for i, texts in enumerate(columns)})
    return id_messages(frame, frame.columns, study.agreement.linkage.normalisation)


def intake_of(study: StudyFile, number: int) -> Intake:
    """Take in a curator's table, a few rows at a time."""
    secret, schema = bytes.fromhex(study.document["secret"]), Schema(study.attributes(number))
    found = study.document["tables"][number]["codes"]
    codes: list[Codes] = [np.array(found[a.name]).astype(a.dtype) for a in schema.attributes]
    ids, me = messages_of(study, number), study.curators[number].party_id
    intake = Intake(study.agreement, secret, schema, MemorySpool(), curator=me)
    for start in range(0, len(ids), 7):
        part = IdMessages(ids.data, ids.offsets[start : start + 8])
        intake.add(part, [column[start : start + 7] for column in codes])
    intake.close()
    return intake


def tokens_of(study: StudyFile, number: int) -> Tokens:
    """Compute the tokens of a curator's rows from its ids."""
    messages = messages_of(study, number)
    key = token_key(bytes.fromhex(study.document["secret"]), study.agreement.scope)
    return make_tokens(key, messages.data, messages.offsets)


def uploaded_tokens(study: StudyFile, number: int) -> list[bytes]:
    """Return the token of each row of a curator's upload: as it was sent, or as it must be."""
    upload = study.messages("upload", "uploads")[number].body
    if upload.tokens is None:
        return list(rows_by_token(study, number))[: upload.rows]
    chunks = store(study.document["uploads"][number]["chunks"])
    return [token.tobytes() for token in read_tokens(upload.tokens, upload.rows, chunks)]


def rows_by_token(study: StudyFile, number: int) -> dict[bytes, list[int]]:
    """Return the codes of every row that a curator may upload, in ascending order of tokens.

    With decoys these are all that it must upload: whoever takes part, and its decoys.
    """
    tokens, attributes = tokens_of(study, number), study.attributes(number)
    table = study.document["tables"][number]["codes"]
    codes = [np.array(table[attribute.name]) for attribute in attributes]
    contract = study.contract.body
    if contract.decoys is not None:
        secret = bytes.fromhex(study.document["secret"])
        return expected_sample(contract, secret, number, tokens, codes)
    order = token_order(tokens)
    return {tokens[row].tobytes(): [int(column[row]) for column in codes] for row in order}


def uploaded_codes(study: StudyFile, number: int) -> list[Codes]:
    """Return the columns of what a curator uploads, not encrypted."""
    rows = rows_by_token(study, number)
    columns = zip(*(rows[token] for token in uploaded_tokens(study, number)), strict=True)
    pairs = zip(study.attributes(number), columns, strict=True)
    return [np.array(codes).astype(attribute.dtype) for attribute, codes in pairs]


def joined_rows(study: StudyFile, number: int) -> NDArray[np.int64]:
    """Return which row of a curator's upload each released row is."""
    release = study.release.body
    if study.document["requests"]:
        request = study.messages("repad-request", "requests")[number].body
        chunks = store(study.document["requests"][number]["chunks"])
        return read_positions(request.positions, release.rows, chunks)
    positions = release.uploads[number].positions
    if positions is None:
        return np.arange(release.rows)
    return read_positions(positions, release.rows, store(study.document["release"]["chunks"]))
