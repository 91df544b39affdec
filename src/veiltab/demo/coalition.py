"""The server and a researcher work together: what they read of a study that both took part in.

The server's operator has kept all uploads, which are encrypted but not perturbed.  The researcher
has the pads, by the curators' grants.  Nothing else is needed, and nothing here breaks a cipher.
"""

from pathlib import Path

import numpy as np

from veiltab.core import group
from veiltab.core.schema import CountTable, count_cells, mix
from veiltab.demo.operator import Uploads
from veiltab.party.connection import Reach
from veiltab.party.context import PartyContext, check_registered
from veiltab.party.home import Home
from veiltab.party.remote import RemoteServer
from veiltab.party.researcher import open_study
from veiltab.protocol.researcher import Access


def researchers_access(home: Path, study: str) -> Access:
    """Return what a researcher's home gives access to: the pads of every granted attribute."""
    place = Home(home)
    identity, pinned = place.open(), check_registered(place)
    with RemoteServer(pinned.url, pinned.identity, identity, reach=Reach()) as server:
        context = PartyContext(place, identity, server)
        return open_study(context, context.contract(bytes.fromhex(study)))


def open_uploads(uploads: Uploads, access: Access, table: CountTable) -> tuple[int, ...]:
    """Take the pads off the uploads, put the columns side by side, and count the joint cells."""
    schema = table.schema
    columns = []
    for attribute in schema.attributes:
        codes = uploads.column(schema, attribute.name)
        pads = access.pads[attribute.name].rows(slice(0, uploads.rows))
        columns.append(group.subtract(codes, pads, attribute.size, out=codes))
    counts = count_cells(mix(schema.sizes, columns), schema.domain_size)
    return tuple(np.asarray(counts).tolist())
