"""The ASGI application: routes, keys and limits."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kvcache_sim.live.chunks import Wording
from kvcache_sim.live.fleet import Fleet
from kvcache_sim.live.generation import Generation, Generations
from kvcache_sim.live.http import Exchange, Receive, Scope, Send
from kvcache_sim.live.parsing import Chat, Completion, Detokenize, Tokenize, pairs, parsed
from kvcache_sim.live.record.observed import Observed
from kvcache_sim.live.record.texts import Texts
from kvcache_sim.live.refusals import Refusal
from kvcache_sim.live.telling import Telling
from kvcache_sim.workload.chat_template import chat_prompt

_Route = Callable[[Exchange], Awaitable[None]]
_PLAIN = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes: bytes of a body, requests at a time, and the key that it asks for ("": none)."""

    body_bytes: int
    requests: int
    api_key: str


@dataclass(frozen=True, slots=True)
class Served:
    """What is served: the model's names, the fleet behind it, and what may be asked besides."""

    names: tuple[str, ...]
    fleet: Fleet
    generations: Generations
    #: Text of ``/metrics``.
    metrics: Callable[[], bytes]
    tells_cached: bool
    #: Where what was said is kept; None: nowhere.
    texts: Texts | None
    #: Called by ``/shutdown``; None: there is no such route.
    shutdown: Callable[[], None] | None


class Application:
    """Answers OpenAI's clients on behalf of a simulated fleet; ``machine``: that of this port, None: any."""

    def __init__(self, served: Served, limits: Limits, machine: int | None = None) -> None:
        self._served, self._limits, self._machine = served, limits, machine
        self._at_work = 0
        self._routes: dict[str, dict[str, _Route]] = {
            "/v1/models": {"GET": self._models},
            "/v1/completions": {"POST": self._completion},
            "/v1/chat/completions": {"POST": self._chat},
            "/tokenize": {"POST": self._tokenize},
            "/detokenize": {"POST": self._detokenize},
            "/health": {"GET": self._health},
            "/ping": {"GET": self._health, "POST": self._health},
            "/version": {"GET": self._version},
            "/load": {"GET": self._load},
            "/metrics": {"GET": self._metrics},
            "/reset_prefix_cache": {"POST": self._reset},
        }
        if served.shutdown is not None:
            self._routes["/shutdown"] = {"POST": self._shutdown}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange; every refusal is an answer."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        try:
            await self._route(exchange)(exchange)
        except Refusal as refusal:
            await exchange.refuse(refusal)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            await exchange.refuse(Refusal(500, f"the simulation failed: {reason}"))

    def _route(self, exchange: Exchange) -> _Route:
        methods = self._routes.get(exchange.path)
        if methods is None:
            raise Refusal(404, f"no route {exchange.path[:200]}")
        route = methods.get(exchange.method)
        if route is None:
            raise Refusal(405, f"{exchange.path} takes {' or '.join(methods)}")
        if exchange.path not in ("/health", "/ping"):
            self._check_key(exchange)
        return route

    def _check_key(self, exchange: Exchange) -> None:
        wanted = self._limits.api_key
        given = exchange.headers.get(b"authorization", b"")
        if wanted and not hmac.compare_digest(given, b"Bearer " + wanted.encode()):
            raise Refusal(401, "Unauthorized")

    async def _body(self, exchange: Exchange, kind: Any) -> Any:
        sent, arrival_ns = await exchange.body(self._limits.body_bytes), time.monotonic_ns()
        exchange.came_ns = self._served.fleet.clock.now_ns()
        body = parsed(sent, kind)
        if self._served.texts is not None and kind in (Chat, Completion):
            exchange.heard = Observed(kind, arrival_ns, bytearray(sent))
        if body.model is not None and body.model not in self._served.names:
            raise Refusal(404, f"The model `{body.model[:200]}` does not exist.", "model")
        return body

    # -- generation

    async def _chat(self, exchange: Exchange) -> None:
        body = await self._body(exchange, Chat)
        await self._generate(exchange, self._served.generations.of_chat(body, self._machine))

    async def _completion(self, exchange: Exchange) -> None:
        body = await self._body(exchange, Completion)
        await self._generate(exchange, self._served.generations.of_completion(body, self._machine))

    async def _generate(self, exchange: Exchange, generation: Generation) -> None:
        served = self._served
        if self._at_work + len(generation.choices) > self._limits.requests:
            raise Refusal(429, f"{self._limits.requests} requests are being served already")
        name = exchange.headers.get(b"x-request-id", b"").decode("latin-1")[:128]
        created = int(served.fleet.clock.date_s(served.fleet.ran_to_ns))
        wording = Wording(generation, served.names[0], name, created, served.tells_cached)
        self._at_work += len(generation.choices)
        telling = Telling(served.fleet, exchange, wording)
        try:
            await telling.tell()
            if served.texts is not None and exchange.heard is not None:
                served.texts.add(telling.told_to(exchange.heard))
        finally:
            self._at_work -= len(generation.choices)

    # -- everything else

    async def _models(self, exchange: Exchange) -> None:
        created = int(self._served.fleet.clock.started_s)
        window = self._served.generations.max_model_len
        each = {"object": "model", "created": created, "owned_by": "kvsim", "parent": None}
        data = [
            {"id": name, **each, "root": name, "max_model_len": window, "permission": []}
            for name in self._served.names
        ]
        await exchange.json({"object": "list", "data": data})

    async def _tokenize(self, exchange: Exchange) -> None:
        body: Tokenize = await self._body(exchange, Tokenize)
        if (body.prompt is None) == (body.messages is None):
            raise Refusal(400, "one of prompt and messages is needed")
        text = chat_prompt(pairs(body.messages)) if body.messages is not None else body.prompt or ""
        tokenizer = self._served.generations.tokenizer
        tokens = tokenizer.encode(text)
        texts = [tokenizer.decode([token]) for token in tokens] if body.return_token_strs else None
        window = self._served.generations.max_model_len
        answer = {"count": len(tokens), "max_model_len": window, "tokens": tokens, "token_strs": texts}
        await exchange.json(answer)

    async def _detokenize(self, exchange: Exchange) -> None:
        body: Detokenize = await self._body(exchange, Detokenize)
        await exchange.json({"prompt": self._served.generations.tokenizer.decode(body.tokens)})

    async def _health(self, exchange: Exchange) -> None:
        await exchange.answer(b"", 200 if self._served.fleet.broken is None else 503)

    async def _version(self, exchange: Exchange) -> None:
        from kvcache_sim import __version__

        await exchange.json({"version": f"kvsim {__version__}"})

    async def _load(self, exchange: Exchange) -> None:
        await exchange.json({"server_load": self._at_work})

    async def _metrics(self, exchange: Exchange) -> None:
        await exchange.answer(self._served.metrics(), 200, _PLAIN)

    async def _reset(self, exchange: Exchange) -> None:
        await exchange.json({"success": self._served.fleet.reset()})

    async def _shutdown(self, exchange: Exchange) -> None:
        await exchange.json({"success": True})
        assert self._served.shutdown is not None
        self._served.shutdown()
