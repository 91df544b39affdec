"""Counting the tokens that all curators have sent, and the noise on their number (spec 13)."""

from collections.abc import Sequence

from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.match import CheckedSpool, UploadedTable, match_tables
from veiltab.protocol.verify import sign
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Overlap, Upload
from veiltab.wire.signed import Signed


def count_overlap(
    context: ServerContext, contract: Contract, uploads: Sequence[Signed[Upload]]
) -> Signed[Overlap]:
    """Return the one number that the curators are told, with noise on it.

    Curators know the decoys, so without the noise they would know how many of the people who take
    part they have in common.  With the same bytes from ``context.entropy`` it comes out the same.
    """
    plan, below = contract.overlap_plan, contract.overlap_plan.coin.threshold
    tables = [UploadedTable(upload.body, (), context.received) for upload in uploads]
    spools = [CheckedSpool(context.scratch(f"table-{number}")) for number, _ in enumerate(tables)]
    try:
        count = sum(rows[0].size for rows in match_tables(tables, spools, below))
    finally:
        for spool in spools:
            spool.clear()
    return sign(
        Overlap(
            number=plan.add_noise(count, context.entropy),
            study=contract.study_id,
            uploads=tuple(upload.digest for upload in uploads),
        ),
        context.key,
    )
