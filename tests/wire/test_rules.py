"""Fields that are fine one by one and contradict each other (spec 4 to 12)."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support import messages
from tests.support.messages import HOSPITAL, POPULATION, ROWS, SERVER, TAX_OFFICE, chunks, filler
from veiltab.core.mechanism import Geometric
from veiltab.core.schema import MAX_CATEGORIES, Attribute
from veiltab.errors import MalformedError
from veiltab.wire.contract import (
    Contract,
    CuratorTerms,
    Linkage,
    PublicIdentity,
    Stored,
)
from veiltab.wire.mechanism import PaperTerms
from veiltab.wire.messages import ColumnChunks, ReleasedUpload


def sized(*sizes: int) -> tuple[Attribute, ...]:
    """Build attributes of these sizes."""
    return tuple(
        Attribute(f"a{position}", map(str, range(size))) for position, size in enumerate(sizes)
    )


def curated(*attributes: Attribute) -> dict[str, Any]:
    """Change a contract to one curator with these attributes."""
    return {"curators": (CuratorTerms(HOSPITAL.identity, attributes),), "stored": None}


def test_parties_are_all_different() -> None:
    """A curator twice, a curator as server or as researcher, a researcher twice."""
    again = CuratorTerms(HOSPITAL.identity, (Attribute("other", ("x", "y")),))
    renamed = PublicIdentity("Other name", SERVER.signing_key, SERVER.sealing_key)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"curators": (HOSPITAL, again)}, r"^curators\[1\]: is the same party as curators\[0\]"),
        ({"server": TAX_OFFICE.identity}, r"^server: is the same party as curators\[1\]"),
        ({"researchers": (renamed,)}, r"^researchers\[0\]: is the same party as server"),
        (
            {"researchers": (messages.RESEARCHER, messages.RESEARCHER)},
            r"^researchers\[1\]: is the same party as researchers\[0\]",
        ),
    ]
    for changes, error in cases:
        with pytest.raises(MalformedError, match=error):
            messages.contract(**changes)
    with pytest.raises(MalformedError, match=r"^curators\[1\]: is the same party"):
        messages.vault(curators=(HOSPITAL, again))
    assert messages.contract(researchers=()).researchers == ()


def test_attribute_names_are_different_over_all_curators() -> None:
    """The joint table could not be labelled otherwise."""
    clash = CuratorTerms(TAX_OFFICE.identity, (Attribute("age", ("young", "old")),))
    for build in (messages.contract, messages.vault):
        with pytest.raises(MalformedError, match=r"^curators: .* the attribute 'age' 2 times"):
            build(curators=(HOSPITAL, clash))


def test_categories_are_different() -> None:
    """What ``Attribute`` refuses is a malformed message when it comes from somebody else."""
    value = messages.contract().to_json()
    value["curators"][0]["attributes"][1]["categories"][2] = "<40"
    with pytest.raises(MalformedError, match=r"^curators\[0\].attributes\[1\]: .*'<40' 2 times"):
        Contract.from_json(value)


def test_the_number_of_joint_cells_is_2_to_2_to_the_48() -> None:
    """Too few tell nothing apart, too many cannot be numbered."""
    assert messages.contract(**curated(*sized(1, 2))).schema.domain_size == 2
    assert messages.contract(**curated(*sized(*[16] * 12))).schema.domain_size == 2**48
    with pytest.raises(MalformedError, match=r"^curators: .* from 2 to 2\^48, not 1"):
        messages.contract(**curated(*sized(1, 1)))
    with pytest.raises(MalformedError, match=r"^curators: .* more than 2\^48 joint cells"):
        messages.contract(**curated(*sized(*[16] * 12, 2)))


def test_many_attributes_are_refused_quickly() -> None:
    """The product of 1,000 sizes would be a number of 300 digits; it is never formed."""
    many = tuple(Attribute(str(number), ("0", "1")) for number in range(1_000))
    with pytest.raises(MalformedError, match=r"more than 2\^48 joint cells"):
        messages.contract(**curated(*many))


def test_a_curator_has_at_most_1000_attributes() -> None:
    """The limit of section 4, which attributes of one category would not meet otherwise."""
    many = tuple(Attribute(str(number), ("0",)) for number in range(1_001))
    with pytest.raises(MalformedError, match=r"^attributes: must have at most 1,000"):
        messages.contract(**curated(*many))


def test_two_parties_with_one_signing_key_are_refused() -> None:
    """Otherwise one signature would count for both, whatever their sealing keys."""
    twin = PublicIdentity("Twin", HOSPITAL.identity.signing_key, SERVER.sealing_key)
    terms = CuratorTerms(twin, (Attribute("other", ("x", "y")),))
    with pytest.raises(MalformedError, match=r"^curators\[1\]: is the same party"):
        messages.contract(curators=(HOSPITAL, terms))


def test_an_attribute_has_at_most_65535_categories() -> None:
    """One more does not fit into two bytes with all that is done to it."""
    value = messages.plain_contract(**curated(*sized(MAX_CATEGORIES))).to_json()
    assert Contract.from_json(value).schema.domain_size == MAX_CATEGORIES
    value["curators"][0]["attributes"][0]["categories"].append("one more")
    with pytest.raises(MalformedError, match=r"^curators\[0\].attributes\[0\].categories: "):
        Contract.from_json(value)


def test_a_contract_has_at_most_100_curators_and_researchers() -> None:
    """The limit of section 4."""
    curators = tuple(
        CuratorTerms(messages.party(str(number)), (Attribute(str(number), ("x",)),))
        for number in range(101)
    )
    with pytest.raises(MalformedError, match=r"^curators: must have at most 100 items, not 101"):
        messages.plain_contract(curators=curators)
    wide = (HOSPITAL, *curators[:99])
    assert len(messages.plain_contract(curators=wide).curators) == 100
    many = tuple(terms.identity for terms in curators)
    with pytest.raises(MalformedError, match=r"^researchers: must have at most 100 items"):
        messages.plain_contract(researchers=many)
    assert messages.plain_contract(researchers=many[:100]).researchers == many[:100]


def test_a_sample_is_no_larger_than_the_population() -> None:
    """Where both are known."""
    mechanism = PaperTerms(POPULATION)
    assert messages.contract(mechanism=mechanism).mechanism == mechanism
    with pytest.raises(MalformedError, match=r"^mechanism.sample_size: .* 1 to the population"):
        messages.contract(mechanism=mechanism, population=POPULATION - 1)
    assert messages.contract(mechanism=mechanism, population=None).population is None


def test_the_accounting_is_that_of_the_mechanism() -> None:
    """The paper's has one for each kind of promise, and decoys have one for both."""
    for build, right, wrong in (
        (messages.contract, "pure-1", ("shuffle-1", "decoys-1")),
        (messages.decoy_contract, "decoys-1", ("pure-1", "shuffle-1")),
        (messages.table_contract, "decoys-1", ("pure-1", "shuffle-1")),
    ):
        assert build().accounting == right
        for accounting in wrong:
            with pytest.raises(MalformedError, match=rf"^accounting: must be '{right}'"):
                build(accounting=accounting)


def test_a_pure_promise_needs_decoys_without_a_limit() -> None:
    """A law with a largest number, a coin that always falls, and weights that sum to less."""
    with pytest.raises(MalformedError, match=r"^mechanism: .* cannot keep a promise without delta"):
        messages.table_contract(delta=0.0)
    certain = replace(messages.DECOYS, coin_threshold=2**64)
    with pytest.raises(MalformedError, match=r"^mechanism: the coin .* spends more than epsilon"):
        messages.decoy_contract(mechanism=certain, epsilon=50)
    value = messages.table_contract().to_json()
    value["mechanism"]["decoys"]["weights"][0] = str(2**56 - 1)
    with pytest.raises(MalformedError, match=r"^mechanism.decoys: .* sum to 18446744073709551615"):
        Contract.from_json(value)


def test_decoys_that_nobody_could_upload_are_refused() -> None:
    """Too many of them, or for too many patterns: before anybody signs."""
    many = replace(messages.DECOYS, decoys=Geometric(2**64 - 1), keep_threshold=None)
    with pytest.raises(MalformedError, match=r"^mechanism: .* about 3.69e\+20 of them"):
        messages.decoy_contract(mechanism=many)
    plain = replace(messages.DECOYS, keep_threshold=None)
    for attributes, mode, fits in (
        (sized(10_000, 1000), "aligned", True),
        (sized(10_000, 1001), "aligned", False),
        (sized(10_000, 1000), "matched", True),
        (sized(10_000, 1000, 2), "matched", False),
    ):
        changes = curated(*attributes) | {"linkage": Linkage.by_ids(mode=mode)}  # type: ignore[arg-type]
        if fits:
            messages.decoy_contract(mechanism=plain, **changes)
        else:
            with pytest.raises(MalformedError, match=r"^mechanism: .* patterns"):
                messages.decoy_contract(mechanism=plain, **changes)


def test_a_law_has_its_own_fields() -> None:
    """A threshold for one, weights for the other."""
    value = messages.decoy_contract().to_json()
    value["mechanism"]["decoys"] = {"law": "table", "threshold": "5"}
    with pytest.raises(MalformedError, match=r"^mechanism.decoys"):
        Contract.from_json(value)


def test_a_release_by_rank_has_noise_and_a_known_population() -> None:
    """Only with decoys can it do without."""
    assert messages.decoy_release().keep_threshold is None
    for field in ("keep_threshold", "population"):
        with pytest.raises(MalformedError, match=rf"^{field}: must not be null"):
            messages.release(**{field: None})
    empty = {"rows": 0, "columns": messages.columns(*HOSPITAL.attributes, rows=0)}
    bare = ReleasedUpload(HOSPITAL.party_id, filler("upload"), None)
    assert messages.decoy_release(**empty, uploads=(bare,)).rows == 0
    with pytest.raises(MalformedError, match=r"^rows: "):
        messages.release(**empty, uploads=(bare,))


def test_an_alignment_says_something() -> None:
    """A digest goes with a number, and one digest at least is there."""
    with pytest.raises(MalformedError, match=r"^population: must not be null"):
        messages.decoy_alignment(population=None)
    with pytest.raises(MalformedError, match=r"^digest: must not be null"):
        messages.decoy_alignment(digest=None)
    with pytest.raises(MalformedError, match=r"^decoys: must not be null"):
        messages.matched_alignment(decoys=None)


def test_a_publication_lists_an_attribute_once() -> None:
    """Its copy would otherwise have it twice."""
    with pytest.raises(MalformedError, match=r"^attributes: an attribute comes twice"):
        messages.publication(attributes=("age", "age"))


def test_stored_tables_are_matched() -> None:
    """Section 12: and there is one upload per curator."""
    with pytest.raises(MalformedError, match=r"^linkage.mode: must be 'matched'"):
        messages.contract(linkage=Linkage.by_ids())
    for count in (0, 1, 3):
        stored = Stored(filler("vault"), (filler("upload"),) * count)
        with pytest.raises(MalformedError, match=r"^stored.uploads: must have one item per"):
            messages.contract(stored=stored)


def test_linkage_has_one_of_two_forms() -> None:
    """By ids with columns and rules, by rows with neither."""
    rows = {"by": "rows", "mode": "aligned"}
    assert Linkage.by_rows().to_json() == rows
    assert Linkage.from_json(rows) == Linkage.by_rows()
    plain = {"by": "ids", "columns": 1, "mode": "aligned", "normalisation": []}
    assert Linkage.from_json(plain) == Linkage.by_ids()
    with pytest.raises(MalformedError, match=r"^linkage: has the unknown field 'columns'"):
        Linkage.from_json(rows | {"columns": 1}, "linkage")
    with pytest.raises(MalformedError, match=r"^linkage.columns: is missing"):
        Linkage.from_json({"by": "ids", "mode": "aligned", "normalisation": []}, "linkage")
    for wrong in [("rows", 1, ()), ("rows", None, ("nfc",)), ("ids", None, ())]:
        with pytest.raises(MalformedError, match=r"^columns: "):
            Linkage(*wrong)  # type: ignore[arg-type]


def test_an_upload_has_a_population_or_tokens() -> None:
    """Curators sample, or the server does; a mixture is neither (spec 8)."""
    mixtures: list[dict[str, Any]] = [{"tokens": chunks("tokens")}, {"population": None}]
    for changes in mixtures:
        with pytest.raises(MalformedError, match=r"^population, tokens: exactly one"):
            messages.upload(**changes)
    for wrong in ((), chunks("tokens", 1), chunks("tokens", 200_000)):
        with pytest.raises(MalformedError, match=r"^tokens: 70,000 rows have 2 chunks, not"):
            messages.token_upload(tokens=wrong)


@pytest.mark.parametrize("build", [messages.upload, messages.release, messages.repad])
def test_columns_have_as_many_chunks_as_rows_need(build: Any) -> None:  # noqa: ANN401
    """And an attribute comes once."""
    first = build().columns[0]
    for wrong in ((), first.chunks[:1], first.chunks * 2):
        with pytest.raises(
            MalformedError, match=r"^columns\[1\].chunks: 70,000 rows have 2 chunks"
        ):
            build(columns=(first, ColumnChunks("age", wrong)))
    with pytest.raises(MalformedError, match=r"^columns\[1\].attribute: comes twice"):
        build(columns=(first, first))


def test_a_release_names_each_curator_once_and_positions_for_all_or_none() -> None:
    """Section 10."""
    one, two = messages.release().uploads
    bare = ReleasedUpload(two.curator, two.digest, None)
    with pytest.raises(MalformedError, match=r"^uploads: a curator comes twice"):
        messages.release(uploads=(one, one))
    with pytest.raises(MalformedError, match=r"^uploads: some have positions and some have not"):
        messages.release(uploads=(one, bare))
    short = ReleasedUpload(two.curator, two.digest, two.positions[:1] if two.positions else ())
    with pytest.raises(MalformedError, match=r"^uploads\[1\].positions: 70,000 rows have 2"):
        messages.release(uploads=(one, short))
    assert messages.release(uploads=(bare,)).uploads == (bare,)


def test_a_threshold_leaves_the_same_draws_to_every_cell() -> None:
    """The threshold is t = 2⁶⁴ − N·M with M of at least 1 (spec 4.1)."""
    assert messages.release(keep_threshold=2**64 - 12).keep_threshold == 2**64 - 12
    for wrong in (2**64 - 1, 2**64 - 13, 0, 2**64):
        with pytest.raises(MalformedError, match=r"^keep_threshold: "):
            messages.release(keep_threshold=wrong)


def test_samples_and_positions_fit_in_requests() -> None:
    """Section 12.2."""
    with pytest.raises(MalformedError, match=r"^sample_size: .* 1 to the population, 69999"):
        messages.repad_request(population=ROWS - 1)
    with pytest.raises(MalformedError, match=r"^positions: 70,000 rows have 2 chunks, not 1"):
        messages.repad_request(positions=chunks("positions", 5))


def test_a_grant_lists_an_attribute_once() -> None:
    """Its pads would otherwise come twice."""
    with pytest.raises(MalformedError, match=r"^attributes: an attribute comes twice"):
        messages.grant(attributes=("age", "age"))
