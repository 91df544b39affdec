"""Write the test vectors: ``python -m vectors.generate [--all]``.

Files that follow from the specification alone are always written.  Whole studies are not: which
of all possible studies one gets depends on the order in which the roles draw their randomness,
and that is no part of the protocol.  They are written once, and anew only with ``--all``.
"""

import argparse
import sys
from collections.abc import Sequence

from vectors.generator import (
    basics,
    columns,
    decoys,
    linkage,
    overlap,
    plans,
    requests,
    rotations,
    signed,
    studies,
)
from vectors.generator.audit import audit
from vectors.generator.bad_messages import bad_messages
from vectors.generator.bad_requests import bad_requests
from vectors.generator.bad_studies import bad_studies
from vectors.generator.files import Builder, path_of, render
from vectors.generator.witness import witness

FIXED: dict[str, Builder] = {
    "canonical": basics.canonical,
    "identity": basics.identity,
    "keyfile": basics.keyfile,
    "derivation": basics.derived_keys,
    "signatures": signed.signatures,
    "rotations": rotations.rotations,
    "sealing": basics.sealing,
    "tokens": linkage.tokens,
    "alignment": linkage.alignment,
    "pads": columns.pads,
    "packing": columns.packing,
    "threshold": plans.threshold,
    "promise": decoys.promise,
    "decoys": decoys.decoys,
    "plausible": decoys.plausible,
    "noise": plans.noise,
    "overlap": overlap.overlap,
    "requests": requests.requests,
    "bad_requests": bad_requests,
    "audit": audit,
    "witness": witness,
    "bad_messages": bad_messages,
    "bad_studies": bad_studies,
}
"""Files that are the same in every run."""

STUDIES: dict[str, Builder] = {
    "study-aligned-stream": studies.aligned_stream,
    "study-aligned-one-time": studies.aligned_one_time,
    "study-aligned-shuffle": studies.aligned_shuffle,
    "study-matched-fresh": studies.matched_fresh,
    "study-matched-stored": studies.matched_stored,
    "study-aligned-decoys": studies.aligned_decoys,
    "study-matched-decoys": studies.matched_decoys,
    "study-two-chunks": studies.two_chunks,
}
"""Files that stay as they are."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(prog="python -m vectors.generate", description=__doc__)
    parser.add_argument("--all", action="store_true", help="write the studies anew, too")
    everything: bool = parser.parse_args(arguments).all
    kept = {} if everything else {name: path_of(name) for name in STUDIES}
    for name, build in (STUDIES | FIXED).items():  # the bad messages are made from the studies
        if name not in kept or not kept[name].exists():
            path_of(name).write_bytes(render(build()))
            sys.stdout.write(f"{path_of(name)}\n")


if __name__ == "__main__":
    main()
