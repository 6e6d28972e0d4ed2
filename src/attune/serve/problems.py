"""Errors as OpenAI's API answers them: a status, and a JSON object that its clients turn into exceptions."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
BUSY = (429, 503)
RETRY_SECONDS = "1"


class ApiError(Exception):
    """A request that cannot be answered, and why."""

    def __init__(self, status: int, message: str, field: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.field, self.code = status, field, code

    def as_json(self) -> dict[str, object]:
        """The body of the answer, or the event of a stream."""
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.field, "code": self.code}}


async def answer_problem(request: Request, error: Exception) -> JSONResponse:
    """The answer to a request that failed."""
    known = _as_api_error(request, error)
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if known.status in BUSY:
        headers["Retry-After"] = RETRY_SECONDS
    if known.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(known.as_json(), known.status, headers)


def _as_api_error(request: Request, error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, HTTPException) and error.status_code == 404:
        return ApiError(404, f"Nothing is at {request.url.path}. The API is below /v1, the page at /.")
    if isinstance(error, HTTPException):
        return ApiError(error.status_code, f"{error.detail}.")
    return ApiError(500, "The server failed to answer; see its log.")
