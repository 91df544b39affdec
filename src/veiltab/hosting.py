"""Opening a server's folder: its identity, its database, and the application that serves it.

This stands outside of ``veiltab.server``, which cannot read key files: of the server's identity,
only the signing key is handed in.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import ParameterError
from veiltab.files.disk import is_file
from veiltab.party.keyfile import load_identity, replace_identity, save_identity
from veiltab.party.known.names import readable
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.rotating import rotate
from veiltab.server.context import ServiceContext
from veiltab.server.db.database import Database
from veiltab.server.directory import DataDirectory
from veiltab.server.limits import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

DEFAULT_NAME = "veiltab server"


def create_app(
    data: str | PathLike[str],
    *,
    database: str | None = None,
    name: str | None = None,
    **limits: float,
) -> "FastAPI":
    """Return the service over a data folder as an ASGI application, for a web server of your own.

    The first call makes the server's identity, called ``name``.  ``database`` is an address such as
    ``postgresql://…``, by default an SQLite file in the folder; ``limits`` are those of
    ``veiltab serve``, such as ``rate=100``.  Limits of connections and of time are for that web
    server to keep.  The folder is locked while the application runs, and
    until the process ends if a release outlasts the application's shutdown.
    """
    from veiltab.server.http import app  # noqa: PLC0415 - loads FastAPI, which `veiltab server invite` can spare

    context, _ = start_server(Path(data), database, name, as_settings(limits))
    application = app.create_app(context)
    inner = application.router.lifespan_context

    @asynccontextmanager
    async def lifespan(running: "FastAPI") -> AsyncIterator[None]:
        with ExitStack() as stack:
            stack.enter_context(context.database)
            stack.enter_context(context.folders.lock())
            async with inner(running):
                yield
            if application.state.worker.is_running:
                # Referred to, or the lock would be collected, and so let go.
                application.state.kept_open = stack.pop_all()

    application.router.lifespan_context = lifespan
    return application


def as_settings(limits: Mapping[str, object]) -> Settings:
    """Return the settings with these limits; those that are not named keep their defaults."""
    names = Settings.__dataclass_fields__
    for name, limit in limits.items():
        if name not in names:
            raise ParameterError(
                f"there is no limit called {name!r}", hint=f"the limits are {', '.join(names)}"
            )
        if not isinstance(limit, int | float) or not limit > 0:
            raise ParameterError(
                f"the limit {name} must be a number above 0, not {limit!r}",
                hint="leave it out for the default",
            )
    return Settings(**limits)  # type: ignore[arg-type]


def start_server(
    data: Path, database: str | None, name: str | None, settings: Settings
) -> tuple[ServiceContext, bool]:
    """Bring the database up to date, and tell whether this is the server's first start.

    A first start that fails leaves nothing behind.
    """
    folders = DataDirectory(data)
    with folders.lock():
        new = not folders.key_file.exists()
        try:
            identity = server_identity(folders, name)
            context = open_server(folders, database, identity, settings)
            context.database.migrate()
            if name not in (None, identity.name):
                context = _renamed(context, identity, str(name))
        except BaseException:
            if new:
                folders.undo_start()
            raise
    return context, new


def _renamed(context: ServiceContext, identity: PrivateIdentity, name: str) -> ServiceContext:
    """Give a server another name, unless a contract names it already; the caller has the lock."""
    with context.database.reading() as records:
        first = next(iter(records.study_lines()), None)
    if first is not None:
        raise ParameterError(
            f"this server is called {identity.name!r}, and contracts name it: the first is"
            f" {readable(first.title)!r}",
            hint="leave --name out; a name may change only until the first proposal",
        )
    renamed = replace(identity, name=name)
    replace_identity(renamed, context.folders.key_file, None, context.entropy)
    return replace(context, identity=public_identity(renamed))


def existing_server(data: Path, database: str | None) -> ServiceContext:
    """Open a server that has been started before: a mistyped folder must not become a new one."""
    if not is_file(data / "server.key"):
        raise ParameterError(
            f"there is no server in {data}",
            hint="name the folder that the server was started with; a new server is made with:"
            f" veiltab serve --data {data}",
        )
    folders = DataDirectory(data)
    return open_server(folders, database, server_identity(folders, None))


def rotate_server_key(data: Path) -> PrivateIdentity:
    """Give a server that does not run new keys; its party id and its fingerprint stay."""
    folders = existing_server(data, None).folders
    entropy = SystemEntropy()
    with folders.lock():
        new = rotate(load_identity(folders.key_file, None), entropy, int(time.time()))
        replace_identity(new, folders.key_file, None, entropy)
    return new


def open_server(
    folders: DataDirectory,
    database: str | None,
    identity: PrivateIdentity,
    settings: Settings | None = None,
) -> ServiceContext:
    """Return the server of a data folder; nothing is read from its database yet."""
    return ServiceContext(
        identity=public_identity(identity),
        key=identity.signing,
        database=Database(database or folders.database_url),
        folders=folders,
        entropy=SystemEntropy(),
        clock=time.time,
        settings=settings or Settings(),
    )


def server_identity(folders: DataDirectory, name: str | None) -> PrivateIdentity:
    """Return the server's identity, which a first start makes; the caller has the lock."""
    if folders.key_file.exists():
        return load_identity(folders.key_file, None)
    entropy = SystemEntropy()
    identity = PrivateIdentity.create(DEFAULT_NAME if name is None else name, entropy)
    save_identity(identity, folders.key_file, None, entropy)
    return identity
