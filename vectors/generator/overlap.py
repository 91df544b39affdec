"""Vectors of overlap counts: section 13 of the specification."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl

from vectors.generator.files import Case, Document, bad, case, document, entropy, filler
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.decoys import largest_coin
from veiltab.core.mechanism import Geometric
from veiltab.core.overlap import OverlapEstimate
from veiltab.core.privacy import count_threshold
from veiltab.crypto.derivation import study_secret, token_key
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.linkage import tokens
from veiltab.data.ids import id_messages
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.decoys import Decoys, Patterns
from veiltab.protocol.verify import cosign, sign
from veiltab.wire.codec import dump
from veiltab.wire.contract import Contract, CuratorTerms, Linkage
from veiltab.wire.mechanism import OverlapTerms
from veiltab.wire.messages import Overlap
from veiltab.wire.signed import Signed

MALFORMED = "malformed_message"
TABLES = (("ada", "ben", "cy", "dee", "eve", "fay"), ("ben", "dee", "fay", "gus"), ("dee", "ben"))
NUMBER = 9


def overlap() -> Document:
    """Section 13: what curators send, what is counted, and what is said of the number."""
    cases = [_count(2), _count(3), *_bad_contracts(), *_bad_numbers()]
    return document(
        "Section 13. From the `contract` of an overlap count, the curators' `contributions`, their"
        " `tables` of ids and the signed `number`: the tokens that each curator sends, in ascending"
        " order; how many all have sent, before any noise; and the estimate as a fraction. A bad"
        " case is a `number` that is not well-formed, or `fields` that replace those of the first"
        " case's contract, without signatures: it is not well-formed then, or breaks its promise.",
        cases,
    )


def _parties(curators: int) -> list[PrivateIdentity]:
    source = entropy("overlap")
    return [PrivateIdentity.create(f"party {number}", source) for number in range(curators + 1)]


def _contract(curators: int) -> Contract:
    server, *others = _parties(curators)
    terms = OverlapTerms(DRAW_RANGE // 2, Geometric(DRAW_RANGE // 4 * 3), count_threshold(1.0))
    return Contract(
        title="in common",
        nonce=filler("overlap nonce", 16),
        curators=tuple(CuratorTerms(public_identity(one), ()) for one in others),
        server=public_identity(server),
        linkage=Linkage.by_ids(mode="matched"),
        secret_commitment=filler("overlap commitment"),
        researchers=(),
        epsilon=1.0,
        delta=0.0,
        accounting="overlap-1",
        mechanism=terms,
        population=None,
        pads="stream",
        stored=None,
    )


def _signed(contract: Contract) -> str:
    signed: Signed[Contract] = Signed(contract, ())
    for party in _parties(len(contract.curators))[1:]:
        signed = cosign(signed, party.signing)
    return signed.dumps().decode()


def _number(contract: Contract, **changes: Any) -> str:
    body = Overlap(number=NUMBER, study=contract.study_id, uploads=_uploads(contract))
    return sign(replace(body, **changes), _parties(2)[0].signing).dumps().decode()


def _uploads(contract: Contract) -> tuple[bytes, ...]:
    return tuple(filler(f"overlap upload {place}") for place, _ in enumerate(contract.curators))


def _count(curators: int) -> Case:
    contract = _contract(curators)
    contributions = [filler(f"overlap contribution {place}") for place in range(curators)]
    secret = study_secret(contributions, contract.study_id)
    sent = [_sent(contract, secret, place) for place in range(curators)]
    plan = contract.overlap_plan
    estimate = (NUMBER - plan.decoys.mean) / plan.coin.probability
    assert float(estimate) == OverlapEstimate(NUMBER, plan).unbiased  # noqa: S101
    return case(
        f"{curators} curators",
        {
            "sent": [sorted(token.hex() for token in own) for own in sent],
            "common": len(set.intersection(*sent)),
            "estimate": str(estimate),
        },
        contract=_signed(contract),
        contributions=[contribution.hex() for contribution in contributions],
        tables=[list(table) for table in TABLES[:curators]],
        number=_number(contract),
    )


def _sent(contract: Contract, secret: bytes, place: int) -> set[bytes]:
    terms = contract.overlap
    assert terms is not None  # noqa: S101
    frame = pl.DataFrame({"id": TABLES[place]})
    messages = id_messages(frame, frame.columns, contract.linkage.normalisation)
    key = token_key(secret, contract.study_id)
    people = [bytes(one) for one in tokens(key, messages.data, messages.offsets)]
    taking = {t for t in people if int.from_bytes(t[:8], "big") < terms.coin_threshold}
    decoys = Decoys(Patterns.of(contract), terms, secret, contract.study_id)
    for numbers, drawn in decoys.spans():
        cells = decoys.patterns.own_cells(numbers, place)
        taking |= {bytes(token) for token, cell in zip(drawn, cells, strict=True) if not cell}
    return taking


def _bad_contracts() -> Iterator[Case]:
    good = json.loads(_contract(2).canonical())
    mechanism = good["mechanism"]
    attribute = {"name": "smoker", "categories": ["no", "yes"]}
    first, second = good["curators"]
    changes: dict[str, dict[str, Any]] = {
        "values": {"curators": [first | {"attributes": [attribute]}, second]},
        "one_curator": {"curators": [first]},
        "aligned": {"linkage": good["linkage"] | {"mode": "aligned"}},
        "by_rows": {"linkage": {"by": "rows", "mode": "matched"}},
        "any_researcher": {"researchers": None},
        "delta": {"delta": 1e-6},
        "population": {"population": 10},
        "one_time_pads": {"pads": "one-time"},
        "accounting": {"accounting": "decoys-1"},
        "epsilon": {"epsilon": 0.8},
        "coin": {"mechanism": mechanism | {"coin_threshold": _least_broken()}},
        "certain_coin": {"mechanism": mechanism | {"coin_threshold": str(DRAW_RANGE)}},
        "noise": {"mechanism": mechanism | {"noise_threshold": str(count_threshold(1.0) - 1)}},
        "no_noise": {"mechanism": mechanism | {"noise_threshold": None}},
        "table": {
            "mechanism": mechanism | {"decoys": {"law": "table", "weights": [str(DRAW_RANGE)]}}
        },
        "endless_noise": {"mechanism": mechanism | {"noise_threshold": str(DRAW_RANGE - 1)}},
        "no_mechanism": {"mechanism": {"name": "paper", "sample_size": None}},
    }
    for name, change in changes.items():
        yield bad(f"contract_{name}", MALFORMED, fields=change)


def _least_broken() -> str:
    """Return the smallest coin that breaks ε = 1 with the decoys of the good contract."""
    return str(largest_coin(Geometric(DRAW_RANGE // 4 * 3), 1.0) + 1)


def _bad_numbers() -> Iterator[Case]:
    contract = _contract(2)
    message = json.loads(_number(contract))
    changes: dict[str, dict[str, Any]] = {
        "fraction": {"number": 1.5},
        "text": {"number": "9"},
        "far_too_large": {"number": 2**34 + 1},
        "one_upload": {"uploads": message["body"]["uploads"][:1]},
        "unknown_field": {"rows": 3},
        "kind": {"kind": "release"},
    }
    for name, change in changes.items():
        wrong = dump(message | {"body": message["body"] | change}).decode()
        yield bad(f"number_{name}", MALFORMED, number=wrong)
