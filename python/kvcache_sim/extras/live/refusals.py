"""Refusals as OpenAI's clients expect them: a status and a body of one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    415: "UnsupportedMediaTypeError",
    422: "UnprocessableEntityError",
    431: "RequestTooLargeError",
    429: "RateLimitError",
    500: "InternalServerError",
    501: "NotImplementedError",
    503: "Service Unavailable",
}


@dataclass
class Refusal(Exception):
    """A request that is not served: the message, the HTTP status, and the invalid member."""

    status: int
    message: str
    param: str | None = None

    def body(self) -> dict[str, Any]:
        """Return the body of the answer."""
        error = {
            "message": self.message,
            "type": _TYPES.get(self.status, "BadRequestError"),
            "param": self.param,
            "code": self.status,
        }
        return {"error": error}


def refusal_of(error: BaseException) -> Refusal:
    """Return an error as a refusal; status 500 for other errors."""
    if isinstance(error, Refusal):
        return error
    return Refusal(500, f"the simulation failed: {type(error).__name__}: {error}")
