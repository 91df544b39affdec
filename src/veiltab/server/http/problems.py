"""Errors as answers: problem details (RFC 9457) with the error tree's stable codes."""

import logging
import re
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from veiltab.errors import (
    InputError,
    NotFoundError,
    RateLimitError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    VeiltabError,
)

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
"""What senders are told to wait; clients wait longer after every further refusal."""

_log = logging.getLogger("veiltab.service")


_UNAUTHENTICATED = UnauthenticatedError(
    "the request is not signed by a registered party, for this server, now and for the first time",
    hint="compare your clock and the server's fingerprint; ask the operator whether your party is"
    " registered here; a program of your own must sign each request anew, with your newest key",
)


def problem(error: VeiltabError) -> JSONResponse:
    """Return the answer to a request that has failed with this error.

    Whoever is not authenticated is not told why: that would tell who is registered.
    """
    if isinstance(error, UnauthenticatedError):
        error = _UNAUTHENTICATED
    headers = {}
    if isinstance(error, RateLimitError | UnavailableError):
        headers["Retry-After"] = str(RETRY_SECONDS)
    return _answer(
        error.http_status,
        error.code,
        _words(error),
        error.message,
        hint=error.hint,
        headers=headers,
    )


def unexpected(error: Exception) -> JSONResponse:
    """Log a bug; the answer says only that there is one."""
    _log.error("unexpected error", exc_info=error)
    return problem(
        VeiltabError("the service has failed", hint="tell its operator, who finds more in the log")
    )


def install_problems(app: FastAPI) -> None:
    """Answer every refusal, also those of the framework, with a problem document.

    The middleware around the app answers unexpected errors (:func:`unexpected`).
    """
    app.add_exception_handler(VeiltabError, _handle)
    app.add_exception_handler(HTTPException, _handle_http)
    app.add_exception_handler(RequestValidationError, _handle_validation)


def _handle(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, VeiltabError):
        raise error
    return problem(error)


def _handle_http(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem(NotFoundError("there is nothing here", hint="look at /openapi.json"))
    if error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return problem(TooLargeError("the request is too large", hint="send less at a time"))
    status = HTTPStatus(error.status_code)
    code = "method_not_allowed" if status == HTTPStatus.METHOD_NOT_ALLOWED else "bad_request"
    headers = dict(error.headers or {})
    return _answer(
        status, code, status.phrase, str(error.detail), hint="see /openapi.json", headers=headers
    )


def _handle_validation(_: Request, error: Exception) -> JSONResponse:
    """Name the wrong parameters, without repeating their values."""
    if not isinstance(error, RequestValidationError):
        raise error
    places = sorted({".".join(map(str, detail["loc"])) for detail in error.errors()})
    return problem(
        InputError(
            f"the request has unusable parameters: {', '.join(places)}", hint="see /openapi.json"
        )
    )


def _answer(
    status: int, code: str, title: str, detail: str, *, hint: str, headers: dict[str, str]
) -> JSONResponse:
    content = {
        "type": f"urn:veiltab:error:{code}",
        "title": title,
        "status": int(status),
        "detail": detail,
        "hint": hint,
        "code": code,
    }
    return JSONResponse(content, int(status), headers, MEDIA_TYPE)


def _words(error: VeiltabError) -> str:
    """Turn a class name into words: NotFoundError becomes "Not found"."""
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", type(error).__name__.removesuffix("Error"))
    return words.capitalize()
