"""Publishing: the one copy of a study's counts that a researcher may pass on.

The noise is drawn once.  The copy and the message that names it are on this computer's disk before
the server hears of them, and nobody is shown the copy before the server has taken the message.  So
a publication that is stopped anywhere can be taken up, and never becomes a second one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from veiltab.core.entropy import random_bytes
from veiltab.crypto.entropy import KEY_BYTES, CipherEntropy
from veiltab.errors import DamagedFileError, HomeError
from veiltab.estimates import Estimate
from veiltab.estimates.publishing import draw_copy, part_of_copy
from veiltab.party.context import PartyContext
from veiltab.party.study_folder import StudyFolder
from veiltab.protocol.researcher import Access, publication
from veiltab.protocol.verify import renew
from veiltab.wire.messages import Publication
from veiltab.wire.signed import Signed


@dataclass(frozen=True, slots=True, eq=False)
class StudyPublisher:
    """Publishes estimates of one study: the first one makes the copy, all others get it."""

    context: PartyContext
    access: Access

    def __call__(self, estimate: Estimate) -> Estimate:
        """Return the published copy, which may be of other attributes than the estimate."""
        study = self.access.contract.study_id
        with self.context.home.lock():
            published = send_copy(self.context, study)
            if published is None:
                self._draw(self.context.home.study(study), estimate)
                published = send_copy(self.context, study)
        assert published is not None  # noqa: S101 - it was kept just now
        return published

    def _draw(self, folder: StudyFolder, estimate: Estimate) -> None:
        """Draw the noise and keep the copy; the message goes first, so that a copy always has one.

        A message without a copy is of a try that was stopped, and was never sent.
        """
        self._check_first(folder.study_id)
        key = random_bytes(KEY_BYTES, self.context.entropy)
        copy = draw_copy(estimate, CipherEntropy(key))
        names, digest = copy.schema.names, bytes.fromhex(copy.digest or "")
        folder.save_publication(publication(self.access, self.context.identity, names, digest))
        folder.save_published(copy, copy.provenance)

    def _check_first(self, study: bytes) -> None:
        """Refuse a second copy, if the first one was drawn in another home."""
        me = self.context.identity.party_id
        if any(other.body.researcher == me for other in self.context.server.publications(study)):
            raise HomeError(
                "you have published a copy of this study, and this home does not have it",
                hint="use that copy, or restore the home from which it was published: what two"
                " copies tell would add up",
            )


def send_copy(context: PartyContext, study: bytes) -> Estimate | None:
    """Return the copy that is kept here, once the server knows of it; ``None`` if there is none."""
    folder = context.home.study(study)
    kept, message = folder.published(), folder.publication()
    if kept is None:
        return None
    copy = Estimate.from_counts(kept[0], provenance=kept[1])
    context.server.publish(study, renew(_belongs(copy, message), context.identity.signing))
    return copy


def published_part(
    context: PartyContext, study: bytes, attributes: Sequence[str] | None
) -> Estimate | None:
    """Return attributes of the copy that was published before, all of them by default."""
    with context.home.lock():
        copy = send_copy(context, study)
    return None if copy is None else part_of_copy(copy, attributes)


def _belongs(copy: Estimate, message: Signed[Publication] | None) -> Signed[Publication]:
    """Return the message, if it is the one that names this copy."""
    if message is None or message.body.counts.hex() != copy.digest:
        raise DamagedFileError(
            "the published copy in this home is not the one that its publication names",
            hint="restore the home from a copy; these files must not be edited",
        )
    return message
