"""Any message of each kind, for hypothesis."""

import hashlib
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.support.messages import chunks
from veiltab.core.mechanism import Geometric, LinkageMode
from veiltab.core.schema import Attribute
from veiltab.wire.codec import MAX_INTEGER
from veiltab.wire.contract import (
    Contract,
    CuratorTerms,
    Linkage,
    PadMode,
    PublicIdentity,
    Stored,
    Vault,
)
from veiltab.wire.mechanism import DecoyTerms, MechanismTerms, PaperTerms
from veiltab.wire.messages import (
    MAX_ATTEMPTS,
    Alignment,
    ColumnChunks,
    Grant,
    GrantRevocation,
    Publication,
    Release,
    ReleasedUpload,
    Repad,
    RepadRequest,
    Secret,
    Upload,
)

REFUSED = "".join(map(chr, [*range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)]))
CHARACTERS = st.characters(codec="utf-8", min_codepoint=0x20, exclude_characters=REFUSED)
TEXTS = st.text(CHARACTERS, min_size=1, max_size=12)
IDS = st.binary(min_size=32, max_size=32)
SEALING_KEYS = IDS.map(lambda seed: hashlib.shake_256(seed).digest(1216))
SHORT_IDS = st.binary(min_size=16, max_size=16)
PADS: st.SearchStrategy[PadMode] = st.sampled_from(["stream", "one-time"])
EPSILONS = st.floats(0, 50, exclude_min=True) | st.integers(1, 50)
IDENTITIES = st.builds(PublicIdentity, TEXTS, IDS, SEALING_KEYS)
MODES: st.SearchStrategy[LinkageMode] = st.sampled_from(["aligned", "matched"])
LINKAGES = st.builds(Linkage.by_rows, MODES) | st.builds(
    Linkage.by_ids,
    st.integers(1, MAX_INTEGER),
    st.lists(st.sampled_from(["nfc", "trim", "lowercase"])),
    MODES,
)
ROWS = st.integers(1, 200_000)
DECOYS = st.builds(
    DecoyTerms,
    st.integers(1, 2**63),
    st.builds(Geometric, st.integers(2**40, 2**63)),
    st.floats(1e-6, 50) | st.integers(1, 50),
    st.none(),
)
"""Mechanisms that keep a promise of 50, however many cells there are."""


@st.composite
def agreements(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what a contract and a vault have in common, and a few other parties."""
    names = draw(st.lists(TEXTS, min_size=1, max_size=6, unique=True))
    count = draw(st.integers(1, len(names)))
    parties = draw(
        st.lists(
            IDENTITIES, min_size=count + 1, max_size=count + 3, unique_by=lambda p: p.signing_key
        )
    )
    categories = st.lists(TEXTS, min_size=2, max_size=4, unique=True)
    attributes = [Attribute(name, draw(categories)) for name in names]
    shares = [tuple(attributes[position::count]) for position in range(count)]
    return {
        "title": draw(TEXTS),
        "nonce": draw(SHORT_IDS),
        "curators": tuple(map(CuratorTerms, parties[:count], shares)),
        "server": parties[count],
        "linkage": draw(LINKAGES),
        "secret_commitment": draw(IDS),
        "others": tuple(parties[count + 1 :]),
    }


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    """Draw a contract."""
    common = draw(agreements())
    others = common.pop("others")
    uploads = tuple(draw(IDS) for _ in common["curators"])
    stored = draw(st.none() | st.builds(Stored, IDS, st.just(uploads)))
    if stored is not None:
        common["linkage"] = replace(common["linkage"], mode="matched")
    population = draw(st.none() | st.integers(1, MAX_INTEGER))
    most = min(population or MAX_INTEGER, 2**48)
    mechanism: MechanismTerms = PaperTerms(draw(st.none() | st.integers(1, most)))
    if stored is None and draw(st.booleans()):
        mechanism = draw(DECOYS)
    paper = isinstance(mechanism, PaperTerms)
    return Contract(
        **common,
        researchers=draw(st.none() | st.just(others)),
        epsilon=draw(EPSILONS) if paper else 50,
        delta=0,
        accounting="pure-1" if paper else "decoys-1",
        mechanism=mechanism,
        population=population,
        pads=draw(PADS),
        stored=stored,
    )


@st.composite
def vaults(draw: st.DrawFn) -> Vault:
    """Draw a vault."""
    common = draw(agreements())
    del common["others"]
    linkage = replace(common.pop("linkage"), mode="matched")
    return Vault(**common, linkage=linkage)


def columns(rows: int) -> st.SearchStrategy[tuple[ColumnChunks, ...]]:
    """Draw columns of this length."""
    column = st.builds(lambda name: ColumnChunks(name, chunks(name, rows)), TEXTS)
    drawn = st.lists(column, min_size=1, max_size=3, unique_by=lambda each: each.attribute)
    return drawn.map(tuple)


@st.composite
def uploads(draw: st.DrawFn) -> Upload:
    """Draw an upload of either form; with decoys it may have no rows, or more than people."""
    rows = draw(st.integers(0, 200_000))
    population = draw(st.none() | st.integers(1, MAX_INTEGER))
    return Upload(
        columns=draw(columns(rows)),
        curator=draw(IDS),
        population=population,
        rows=rows,
        scope=draw(IDS),
        tokens=chunks("tokens", rows) if population is None else None,
        upload_id=draw(SHORT_IDS),
    )


@st.composite
def releases(draw: st.DrawFn) -> Release:
    """Draw a release, with positions or without, with decoys or without."""
    decoys = draw(st.booleans())
    rows = draw(st.integers(0, 200_000) if decoys else ROWS)
    cells = draw(st.integers(2, 2**48))
    positions = draw(st.sampled_from([None, chunks("positions", rows)]))
    curators = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    threshold = 2**64 - cells * draw(st.integers(1, (2**64 - 1) // cells))
    population = draw(st.integers(1 if decoys else rows, MAX_INTEGER))
    return Release(
        cells=cells,
        columns=draw(columns(rows)),
        delta=0,
        accounting="decoys-1" if decoys else "pure-1",
        epsilon=draw(EPSILONS),
        keep_threshold=draw(st.sampled_from([threshold, None])) if decoys else threshold,
        nonce=draw(SHORT_IDS),
        population=draw(st.sampled_from([population, None])) if decoys else population,
        rows=rows,
        study=draw(IDS),
        uploads=tuple(ReleasedUpload(curator, draw(IDS), positions) for curator in curators),
    )


@st.composite
def repad_requests(draw: st.DrawFn) -> RepadRequest:
    """Draw a request for new pads."""
    rows = draw(ROWS)
    return RepadRequest(
        curator=draw(IDS),
        population=draw(st.integers(rows, MAX_INTEGER)),
        positions=chunks("positions", rows),
        sample_size=rows,
        study=draw(IDS),
        upload_digest=draw(IDS),
    )


@st.composite
def repads(draw: st.DrawFn) -> Repad:
    """Draw an answer to a request for new pads."""
    rows = draw(ROWS)
    return Repad(
        columns=draw(columns(rows)),
        curator=draw(IDS),
        request_digest=draw(IDS),
        rows=rows,
        study=draw(IDS),
        upload_id=draw(SHORT_IDS),
    )


STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "contract": contracts(),
    "vault": vaults(),
    "secret": st.builds(Secret, sender=IDS, receiver=IDS, scope=IDS, sealed=st.binary()),
    "alignment": st.builds(
        Alignment,
        attempt=st.integers(1, MAX_ATTEMPTS),
        curator=IDS,
        decoys=st.none() | IDS,
        digest=IDS,
        population=st.integers(1, MAX_INTEGER),
        study=IDS,
    )
    | st.builds(
        Alignment,
        attempt=st.just(1),
        curator=IDS,
        decoys=IDS,
        digest=st.none(),
        population=st.none(),
        study=IDS,
    ),
    "publication": st.builds(
        Publication,
        attributes=st.lists(TEXTS, min_size=1, max_size=4, unique=True).map(tuple),
        counts=IDS,
        epsilon=EPSILONS,
        release=IDS,
        researcher=IDS,
        study=IDS,
    ),
    "upload": uploads(),
    "release": releases(),
    "grant": st.builds(
        Grant,
        attributes=st.lists(TEXTS, min_size=1, max_size=4, unique=True).map(tuple),
        curator=IDS,
        expires=st.integers(0, MAX_INTEGER),
        grant_id=SHORT_IDS,
        pads=PADS,
        researcher=IDS,
        sealed_digest=IDS,
        study=IDS,
        upload_digest=IDS,
    ),
    "grant-revocation": st.builds(
        GrantRevocation, curator=IDS, grant_id=SHORT_IDS, researcher=IDS, study=IDS
    ),
    "repad-request": repad_requests(),
    "repad": repads(),
}
"""A strategy for each kind of message."""
