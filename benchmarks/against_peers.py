"""Other libraries at the same work, each in an environment of its own, next to ours."""

from benchmarks.kernels import RECORDS, decrypt_seconds, perturb_seconds, tokens_seconds
from benchmarks.peers.run import Peer, fastest, measure_peers
from benchmarks.timing import Ratio, compared

OURS = {
    "randomise": ("perturb, 24 cells", perturb_seconds),
    "histogram": ("decrypt two attributes and count, 24 cells", decrypt_seconds),
    "link": ("tokens of 16-byte ids", tokens_seconds),
}
LEAST_CLIENT = 500


def peer_ratios() -> list[Ratio]:
    """Compare what is comparable; a library that could not be measured says so in its row."""
    peers = measure_peers()
    seconds = {kind: measure(RECORDS) for kind, (_, measure) in OURS.items()}
    goals = {
        id(fastest(peers, "randomise")): LEAST_CLIENT,
        id(fastest(peers, "histogram", "opendp")): 1,
    }
    rows = [_row(peer, seconds, goals.get(id(peer))) for peer in peers if peer.kind in OURS]
    unmeasured = [_unmeasured(peer) for peer in peers if peer.seconds is None]
    return [*rows, *unmeasured]


def _row(peer: Peer, seconds: dict[str, float], least: float | None) -> Ratio:
    """Return our time for as many records as the library had."""
    name, ours = OURS[peer.kind][0], seconds[peer.kind] * peer.records / RECORDS
    reference = f"{peer.name} {peer.version}, {peer.work}", peer.seconds or ours
    return compared(name, ours, reference, least=least, records=peer.records)


def _unmeasured(peer: Peer) -> Ratio:
    """Return a row that meets no goal: what it should have shown is not known."""
    return Ratio(peer.name, 1, peer.note, 1, "to be measured", met=False)
