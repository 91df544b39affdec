"""The message by which curators check that they hold the same respondents (spec 5.1)."""

from typing import ClassVar

from veiltab.wire.agreement import DIGEST
from veiltab.wire.contract import POPULATION
from veiltab.wire.fields import message, wired
from veiltab.wire.identity import PARTY_ID
from veiltab.wire.signed import SignedMessage


@message
class Alignment(SignedMessage):
    """A curator's number of respondents and the keyed digest of their tokens."""

    kind: ClassVar[str] = "alignment"

    curator: bytes = wired(PARTY_ID)
    digest: bytes = wired(DIGEST)
    population: int = wired(POPULATION)
    study: bytes = wired(DIGEST)
