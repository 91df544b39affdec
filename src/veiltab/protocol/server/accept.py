"""The server's checks of what curators send, before it keeps any of it (spec 8, 12.2)."""

from collections.abc import Sequence

from veiltab.core.mechanism import LinkageMode
from veiltab.core.plausible import plausible_rows
from veiltab.errors import MismatchError
from veiltab.protocol.stores import ChunkStore, check_column, check_column_names, check_tokens
from veiltab.protocol.verify import check_population, check_vault, planned_sample_size, verify
from veiltab.wire.contract import Agreement, Contract, Vault
from veiltab.wire.mechanism import CoinTerms
from veiltab.wire.messages import Repad, RepadRequest, Upload
from veiltab.wire.signed import Signed

_JOINED: dict[LinkageMode, str] = {
    "aligned": "the curators hold the same respondents here",
    "matched": "the server matches the respondents here",
}


def check_upload(agreement: Agreement, signed: Signed[Upload], chunks: ChunkStore) -> None:
    """Refuse an upload with a wrong signature, scope or column, or with any wrong chunk."""
    terms = agreement.curator(signed.body.curator)
    upload = verify(signed, [terms.identity.signing_key])
    if upload.scope != agreement.scope:
        raise MismatchError(
            f"the upload of {terms.identity.name!r} is for another study",
            hint="prepare the data for this study; uploads cannot be moved",
        )
    _check_form(agreement, upload)
    check_column_names(upload.columns, terms.schema)
    for attribute, column in zip(terms.schema.attributes, upload.columns, strict=True):
        check_column(column.chunks, attribute, upload.rows, chunks)
    decoys = agreement.coin_terms if isinstance(agreement, Contract) else None
    coin = None if decoys is None else decoys.coin_threshold
    check_tokens(upload.tokens or (), upload.rows, chunks, coin)


def check_repad(
    contract: Contract, request: Signed[RepadRequest], signed: Signed[Repad], chunks: ChunkStore
) -> None:
    """Refuse new pads that do not answer the server's own request."""
    terms = contract.curator(signed.body.curator)
    repad = verify(signed, [terms.identity.signing_key])
    asked = request.body
    if (repad.study, repad.curator, repad.request_digest, repad.rows) != (
        contract.study_id,
        asked.curator,
        request.digest,
        asked.sample_size,
    ):
        raise MismatchError(
            f"the new pads of {terms.identity.name!r} answer another request",
            hint="ask the curator to answer the request of this study",
        )
    check_column_names(repad.columns, terms.schema)
    for attribute, column in zip(terms.schema.attributes, repad.columns, strict=True):
        check_column(column.chunks, attribute, repad.rows, chunks)


def _check_form(agreement: Agreement, upload: Upload) -> None:
    """Refuse the form of the other linkage, or another sample than the contract's."""
    if agreement.matched != (upload.population is None):
        raise MismatchError(
            f"{_JOINED[agreement.linkage.mode]}, and the upload is of the other form",
            hint="prepare the data in the way that the contract says",
        )
    if isinstance(agreement, Contract) and agreement.coin_terms is not None:
        _check_decoyed_rows(agreement, agreement.coin_terms, upload)
    elif isinstance(agreement, Contract) and upload.population is not None:
        expected = planned_sample_size(agreement, upload.population)
        if upload.rows != expected:
            raise MismatchError(
                f"the upload has {upload.rows} rows, the contract asks for {expected}",
                hint="upload exactly the agreed sample",
            )
    elif not upload.rows:
        raise MismatchError(
            "the upload has no rows", hint="upload a table with at least one respondent"
        )


def _check_decoyed_rows(contract: Contract, terms: CoinTerms, upload: Upload) -> None:
    """Refuse an aligned upload whose number of rows no coins and decoys would give.

    Where the server matches, a curator's number of respondents is its own secret.
    """
    if upload.population is None:
        return
    check_population(contract, upload.population)
    cells = contract.schema.domain_size
    if not plausible_rows(upload.rows, terms.mechanism, cells, upload.population):
        raise MismatchError(
            "the upload has another number of rows than coins and decoys give",
            hint="prepare the data with the contract's mechanism",
        )


def check_stored(
    contract: Contract, vault: Vault, uploads: Sequence[Signed[Upload]], chunks: ChunkStore
) -> None:
    """Refuse stored tables that are not the ones that the contract names (spec 12.1)."""
    check_vault(contract, vault)
    stored = contract.stored
    if stored is None or tuple(upload.digest for upload in uploads) != stored.uploads:
        raise MismatchError(
            "these are not the uploads that the contract names",
            hint="give them in the order of the curators",
        )
    if [upload.body.curator for upload in uploads] != [c.party_id for c in contract.curators]:
        raise MismatchError(
            "the contract names the stored uploads in another order than their curators",
            hint="propose the study anew, with one upload of each curator in their order",
        )
    for upload in uploads:
        check_upload(vault, upload, chunks)
