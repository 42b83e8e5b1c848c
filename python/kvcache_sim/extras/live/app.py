"""The application for OpenAI's clients: routes, keys and limits."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kvcache_sim.extras.live.chunks import Wording
from kvcache_sim.extras.live.fleet import Fleet
from kvcache_sim.extras.live.generation import Generation, Generations, encoded
from kvcache_sim.extras.live.parsing import Chat, Completion, Detokenize, Tokenize, parsed
from kvcache_sim.extras.live.record.observed import Observed
from kvcache_sim.extras.live.record.texts import Texts
from kvcache_sim.extras.live.refusals import Refusal, refusal_of
from kvcache_sim.extras.live.rendering import least_tokens, rendered, rendered_body
from kvcache_sim.extras.live.reply import Json, Reply

_Endpoint = Callable[[Request], Awaitable[Response]]
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server: bytes of a body, concurrent requests, and the required key ("": none)."""

    body_bytes: int
    requests: int
    api_key: str


@dataclass(frozen=True, slots=True)
class Served:
    """The served model: its names, the fleet, and optional routes."""

    names: tuple[str, ...]
    fleet: Fleet
    generations: Generations
    #: Text of ``/metrics``.
    metrics: Callable[[], bytes]
    reports_cached: bool
    #: File for requests and answers; None: not kept.
    texts: Texts | None
    #: Called by ``/shutdown``; None: there is no such route.
    shutdown: Callable[[], None] | None


@dataclass(frozen=True, slots=True)
class _Arrived:
    """A checked body, and its simulated arrival time (ns)."""

    body: Any
    arrival_ns: int
    #: The request's record; None if texts are not kept.
    observed: Observed | None


def application(served: Served, limits: Limits, machine: int | None = None) -> Starlette:
    """Return the application in front of a simulated fleet.

    Args:
        served: The fleet, the names of its model and optional routes.
        limits: Bounds of a body and of concurrent requests, and the key.
        machine: The machine that belongs to this port; None: any.
    """
    endpoints = _Endpoints(served, limits, machine)
    open_routes: list[tuple[str, _Endpoint, list[str]]] = [
        ("/health", endpoints.health, ["GET"]),
        ("/ping", endpoints.health, ["GET", "POST"]),
    ]
    keyed_routes: list[tuple[str, _Endpoint, list[str]]] = [
        ("/v1/models", endpoints.models, ["GET"]),
        ("/v1/completions", endpoints.completion, ["POST"]),
        ("/v1/chat/completions", endpoints.chat, ["POST"]),
        ("/tokenize", endpoints.tokenize, ["POST"]),
        ("/detokenize", endpoints.detokenize, ["POST"]),
        ("/version", endpoints.version, ["GET"]),
        ("/load", endpoints.load, ["GET"]),
        ("/metrics", endpoints.metrics, ["GET"]),
        ("/reset_prefix_cache", endpoints.trusted(endpoints.reset), ["POST"]),
    ]
    if served.shutdown is not None:
        keyed_routes.append(("/shutdown", endpoints.trusted(endpoints.shutdown), ["POST"]))
    routes = [Route(path, endpoint, methods=methods) for path, endpoint, methods in open_routes]
    routes += [
        Route(path, endpoints.keyed(endpoint), methods=methods) for path, endpoint, methods in keyed_routes
    ]
    handlers: dict[Any, Any] = {Refusal: _refuse, HTTPException: _no_route, Exception: _refuse}
    return Starlette(routes=routes, exception_handlers=handlers)


async def _refuse(_: Request, error: Exception) -> Response:
    refusal = refusal_of(error)
    return Json(refusal.body(), refusal.status)


async def _no_route(request: Request, error: HTTPException) -> Response:
    path = request.url.path[:200]
    allowed = (error.headers or {}).get("Allow", "")
    reason = f"no route {path}" if error.status_code == 404 else f"{path} takes {allowed}"
    return Json(Refusal(error.status_code, reason).body(), error.status_code, error.headers)


async def _read_body(request: Request, limit_bytes: int) -> bytes:
    """Return the body; Refusal 413 for a longer one, without reading all of it."""
    stated = request.headers.get("content-length", "0")
    if stated.isdigit() and int(stated) > limit_bytes:
        raise Refusal(413, f"the body has {int(stated)} bytes; at most {limit_bytes} are taken")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit_bytes:
            raise Refusal(413, f"the body has more than {limit_bytes} bytes")
    return bytes(body)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _Endpoints:
    """The handler of each route."""

    def __init__(self, served: Served, limits: Limits, machine: int | None) -> None:
        self._served, self._limits, self._machine = served, limits, machine
        #: Sequences being served.
        self._sequences = 0

    def keyed(self, endpoint: _Endpoint) -> _Endpoint:
        """Return an endpoint that checks the server's key first."""
        if not self._limits.api_key:
            return endpoint
        expected = b"Bearer " + self._limits.api_key.encode()

        async def checked(request: Request) -> Response:
            given = request.headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, expected):
                raise Refusal(401, "Unauthorized")
            return await endpoint(request)

        return checked

    def trusted(self, endpoint: _Endpoint) -> _Endpoint:
        """Return an endpoint that changes state: without a key it takes requests of this machine alone.

        A page in a browser sends its Origin, and a name that it made resolve here as Host.
        """
        if self._limits.api_key:
            return endpoint

        async def checked(request: Request) -> Response:
            host, origin = request.headers.get("host", ""), request.headers.get("origin")
            if request.client is None or not _is_loopback(request.client.host):
                raise Refusal(403, "another machine needs the key of --api-key")
            if not _is_loopback(request.url.hostname or "") or origin not in (None, f"http://{host}"):
                raise Refusal(403, "pages of other origins may not change the server")
            return await endpoint(request)

        return checked

    async def _arrived(self, request: Request, kind: Any) -> _Arrived:
        sent, wall_ns = await _read_body(request, self._limits.body_bytes), self._served.fleet.clock.wall_ns()
        arrival_ns = self._served.fleet.clock.now_ns()
        body = parsed(sent, kind)
        recorded = self._served.texts is not None and kind in (Chat, Completion)
        observed = Observed(kind, wall_ns, bytearray(sent)) if recorded else None
        if body.model is not None and body.model not in self._served.names:
            raise Refusal(404, f"The model `{body.model[:200]}` does not exist.", "model")
        return _Arrived(body, arrival_ns, observed)

    # -- generation

    async def chat(self, request: Request) -> Response:
        """Serve ``/v1/chat/completions``."""
        return await self._generate(request, Chat)

    async def completion(self, request: Request) -> Response:
        """Serve ``/v1/completions``."""
        return await self._generate(request, Completion)

    async def _generate(self, request: Request, kind: Any) -> Reply:
        """Check all bounds of a request before any of its work, then serve it."""
        arrived, generations = await self._arrived(request, kind), self._served.generations
        prompts = generations.prompts_of(arrived.body)
        self._refuse_more(generations.refuse_too_much(arrived.body, prompts))
        generation = await generations.of(arrived.body, prompts, self._machine)
        return self._reply(request, arrived, generation)

    def _refuse_more(self, sequences: int) -> None:
        if self._sequences + sequences > self._limits.requests:
            raise Refusal(
                429,
                f"{sequences} more requests: at most {self._limits.requests} are served at a time",
            )

    def _reply(self, request: Request, arrived: _Arrived, generation: Generation) -> Reply:
        served, sequences = self._served, len(generation.choices)
        self._refuse_more(sequences)  # others may have come while texts were tokenized
        name = request.headers.get("x-request-id", "")[:128]
        created = int(served.fleet.clock.date_s(served.fleet.ran_to_ns))
        wording = Wording(generation, served.names[0], name, created, served.reports_cached)
        self._sequences += sequences

        def ended(reply: Reply, failed: bool) -> None:
            self._sequences -= sequences
            if arrived.observed is not None and served.texts is not None and not failed:
                served.texts.add(reply.record_in(arrived.observed))

        return Reply(served.fleet, wording, arrived.arrival_ns, ended)

    # -- everything else

    async def models(self, _: Request) -> Response:
        """List the names of the model."""
        created = int(self._served.fleet.clock.started_s)
        window = self._served.generations.max_model_len
        each = {"object": "model", "created": created, "owned_by": "kvsim", "parent": None}
        data = [
            {"id": name, **each, "root": name, "max_model_len": window, "permission": []}
            for name in self._served.names
        ]
        return Json({"object": "list", "data": data})

    async def tokenize(self, request: Request) -> Response:
        """Return the tokens of a text or a chat."""
        body: Tokenize = (await self._arrived(request, Tokenize)).body
        if (body.prompt is None) == (body.messages is None):
            raise Refusal(400, "one of prompt and messages is needed")
        tokenizer, most = self._served.generations.tokenizer, self._served.generations.most_tokens
        text = (
            rendered(body.prompt, tokenizer)
            if body.messages is None
            else rendered_body(msgspec.to_builtins(body), tokenizer, self._served.generations.seen)
        )
        if least_tokens(text, tokenizer) > most:
            raise Refusal(400, f"the text has more than {most} tokens", "prompt")
        tokens = await encoded(text, tokenizer)
        texts = [tokenizer.decode([token]) for token in tokens] if body.return_token_strs else None
        window = self._served.generations.max_model_len
        return Json({"count": len(tokens), "max_model_len": window, "tokens": tokens, "token_strs": texts})

    async def detokenize(self, request: Request) -> Response:
        """Return the text of tokens."""
        body: Detokenize = (await self._arrived(request, Detokenize)).body
        return Json({"prompt": self._served.generations.tokenizer.decode(body.tokens)})

    async def health(self, _: Request) -> Response:
        """Return 200 while the simulation runs, 503 once it failed."""
        return Response(status_code=200 if self._served.fleet.broken is None else 503)

    async def version(self, _: Request) -> Response:
        """Return the version of kvsim."""
        from kvcache_sim import __version__

        return Json({"version": f"kvsim {__version__}"})

    async def load(self, _: Request) -> Response:
        """Return the number of sequences being served."""
        return Json({"server_load": self._sequences})

    async def metrics(self, _: Request) -> Response:
        """Return the metrics in Prometheus's text format."""
        return Response(self._served.metrics(), headers={"content-type": _METRICS})

    async def reset(self, _: Request) -> Response:
        """Empty the prefix cache."""
        return Json({"success": self._served.fleet.reset()})

    async def shutdown(self, _: Request) -> Response:
        """Stop the server."""
        assert self._served.shutdown is not None
        self._served.shutdown()
        return Json({"success": True})
