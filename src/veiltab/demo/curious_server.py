"""Runs the demonstration's server for an operator who is curious, and keeps what it should delete.

``python -m veiltab.demo.curious_server`` takes the arguments of ``veiltab serve``.  It is the same
server, except that everything that the curators have uploaded for a study is copied before the
study is released, to a folder of which the server's program knows nothing.  The parties cannot
notice that, so a promise that is worth anything must hold against it.
"""

import os
import shutil

from veiltab.demo.ends_with_parent import run
from veiltab.server import worker
from veiltab.server.context import ServiceContext
from veiltab.wire.messages import Upload

COPIES = "copies"
"""The operator's folder, beside the one in which the server works."""

CHUNKS, MESSAGES = "chunks", "messages"
"""What a study's copy consists of: the encrypted columns, and the messages that name them."""


def copy_uploads(context: ServiceContext, study: bytes) -> None:
    """Copy what the curators have uploaded for a study; a copy that is there is left alone."""
    data = context.folders.path
    copy = data.parent / COPIES / study.hex()
    if copy.exists():
        return
    with context.database.reading() as records:
        uploads = [message.content for message in records.messages(study, Upload.kind)]
    if not uploads:  # it draws from a vault, whose tables the server keeps anyway
        return
    unfinished = copy.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(data / "studies" / study.hex() / "received", unfinished / CHUNKS)
    (unfinished / MESSAGES).mkdir()
    for number, content in enumerate(uploads):
        (unfinished / MESSAGES / f"{number}.json").write_bytes(content)
    unfinished.rename(copy)


def _release_and_keep(context: ServiceContext, study: bytes) -> str:
    copy_uploads(context, study)
    return _release(context, study)


_release = worker.release_study

if __name__ == "__main__":
    os.umask(0o077)
    worker.release_study = _release_and_keep
    run()
