"""The service as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from veiltab.service.authentication import Gate
from veiltab.service.context import Context
from veiltab.service.observer import Observer
from veiltab.service.problems import install_problems
from veiltab.service.routes import operator_routes, party_routes, study_routes
from veiltab.service.settings import SOFTWARE_VERSION
from veiltab.service.worker import Worker

DESCRIPTION = """\
Stores ciphertext, joins it, perturbs it once, and hands it to researchers whom curators authorise.
Every request but those under *operator* is signed (RFC 9421); messages are canonical JSON, as
docs/spec/protocol-v1.md says.
"""


def create_app(context: Context) -> FastAPI:
    """Return the application; its worker runs from start-up to shutdown."""
    worker, gate = Worker(context), Gate(context)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        worker.start()
        yield
        await run_in_threadpool(worker.stop, context.settings.shutdown_seconds)

    app = FastAPI(
        title="veiltab",
        version=SOFTWARE_VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # both pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirection would repeat the request's URL, and name any host
    )
    install_problems(app)
    app.include_router(operator_routes(context, worker, gate))
    app.include_router(party_routes(context, gate))
    app.include_router(study_routes(context, gate, worker))
    app.add_middleware(Observer, context=context)
    return app
