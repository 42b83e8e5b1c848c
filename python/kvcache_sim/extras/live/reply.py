"""The answer to a generation request: tokens are written when due, whole answers at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kvcache_sim.extras.live.chunks import DONE, Said, Wording, encoded
from kvcache_sim.extras.live.event_stream import EventStream
from kvcache_sim.extras.live.fleet import Fleet
from kvcache_sim.extras.live.generation import Choice
from kvcache_sim.extras.live.refusals import Refusal, refusal_of
from kvcache_sim.extras.live.ticket import Ticket

if TYPE_CHECKING:
    from kvcache_sim.extras.live.record.observed import Observed


class Json(Response):
    """A value as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the value."""
        return msgspec.json.encode(content)


@dataclass(slots=True, eq=False)
class _Progress:
    """The sent part of one choice."""

    choice: Choice
    ticket: Ticket
    #: Bytes before and after a token's text in its chunk; None if they change with each chunk.
    frame: tuple[bytes, bytes] | None
    tokens_sent: int = 0
    ended: bool = False


class Reply(Response):
    """Sends one client the tokens of its tickets; a client that hangs up aborts them.

    Tokens are written in the clock's callback, without a task of their own: one write per token. A slow
    client receives all tokens since its last read in one piece, so that no queue grows.

    Args:
        fleet: The fleet that serves the request.
        wording: The generation and the JSON of its answer.
        arrival_ns: Simulated time at which the body had arrived.
        on_end: Called once with the reply and True if it failed; a client that hung up is no failure.
    """

    def __init__(
        self, fleet: Fleet, wording: Wording, arrival_ns: int, on_end: Callable[[Reply, bool], None]
    ) -> None:
        self._fleet, self._wording, self._arrival_ns, self._on_end = fleet, wording, arrival_ns, on_end
        self._tokens_out = self._cached_tokens = 0
        self._choices: list[_Progress] = []
        #: Number of unfinished choices, and True once the end of the stream was written.
        self._open, self._ended = len(wording.generation.choices), False
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stream: EventStream | None = None
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the generation and answer; return early if the client has disconnected."""
        failed = True
        try:
            await self._serve(scope, receive, send)
            failed = False
        finally:
            self._on_end(self, failed)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        generation = self._wording.generation
        for choice in generation.choices:
            ticket = self._fleet.submit(choice.prompt, self._arrival_ns)
            self._choices.append(_Progress(choice, ticket, self._wording.plain(choice.index)))
            if ticket.turned_away:
                for each in self._choices:
                    self._fleet.abort(each.ticket)
                raise Refusal(503, "the request queue is full")
        gone = asyncio.create_task(_disconnected(receive))
        try:
            if generation.streams:
                self._stream = EventStream(send, self._on_progress)
                await self._stream.start()
            for each in self._choices:
                each.ticket.on_progress, each.ticket.streams = self._on_progress, generation.streams
            self._on_progress()
            await asyncio.wait((gone, self._done), return_when=asyncio.FIRST_COMPLETED)
            if self._done.done():
                await self._finish(scope, receive, send)
        finally:
            for each in self._choices:
                each.ticket.on_progress = None
                self._fleet.abort(each.ticket)
            if self._stream is not None:
                self._stream.abort()
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _finish(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a whole answer; end a stream that failed with the refusal as its last event."""
        if self._stream is None:
            self._done.result()
            await Json(self._whole())(scope, receive, send)
            return
        error = self._done.exception()
        if error is not None:
            event = b"data: " + msgspec.json.encode(refusal_of(error).body()) + b"\n\n" + DONE
            await send({"type": "http.response.body", "body": event, "more_body": False})

    def record_in(self, observed: Observed) -> Observed:
        """Return the request's record with its status, first choice and usage."""
        first = self._choices[0]
        observed.status = 200
        observed.answer.said = list(first.choice.answer.texts[: first.ticket.tokens_out])
        observed.answer.usage = self._wording.usage(self._tokens_out, self._cached_tokens)
        return observed

    def _on_progress(self) -> None:
        """Send the tokens that are due; an error ends only this answer."""
        try:
            if self._done.done():
                return
            if self._stream is not None:
                self._send_due(self._stream)
            elif all(each.ticket.closed for each in self._choices):
                self._done.set_result(None)
        except Exception as error:
            self._done.set_exception(error)

    def _whole(self) -> dict[str, Any]:
        said = []
        for each in self._choices:
            choice, ticket = each.choice, each.ticket
            if ticket.tokens_out:
                self._fleet.wrote(ticket, ticket.last_ns, 1)
            self._count(ticket)
            text = self._wording.generation.echo[choice.index] + "".join(
                choice.answer.texts[: ticket.tokens_out]
            )
            said.append(Said(text, "abort" if ticket.aborted else choice.answer.finish_reason))
        return self._wording.whole(said, self._tokens_out, self._cached_tokens)

    # -- streams

    def _send_due(self, stream: EventStream) -> None:
        """Write all tokens that are due in one piece."""
        if stream.is_blocked:
            return  # ``on_writable`` calls it again
        pieces, due = [], []
        for each in self._choices:
            ticket = each.ticket
            if ticket.tokens_out > each.tokens_sent:
                due.append((ticket, ticket.tokens_out - each.tokens_sent))
                pieces.append(self._piece(each, ticket.tokens_out))
            if ticket.closed and not each.ended:
                pieces += self._end(each)
        ends = self._open == 0 and not self._ended
        if ends:
            self._ended = True
            pieces.append(self._wording.last(self._tokens_out, self._cached_tokens))
        if pieces:
            stream.put(pieces[0] if len(pieces) == 1 else b"".join(pieces), more=not ends)
            for ticket, tokens in due:
                self._fleet.wrote(ticket, ticket.due_ns if ticket.due_ns >= 0 else ticket.last_ns, tokens)
        if self._ended and not stream.is_blocked:
            self._done.set_result(None)

    def _piece(self, progress: _Progress, until: int) -> bytes:
        """Return the chunk of the unsent tokens up to index ``until``."""
        sent, progress.tokens_sent = progress.tokens_sent, until
        texts, last = progress.choice.answer.texts, until == progress.ticket.output_tokens
        if progress.frame is not None and sent == until - 1 and sent and not last:  # most chunks
            return progress.frame[0] + encoded(texts[sent]) + progress.frame[1]
        text = "".join(texts[sent:until])
        wording, index = self._wording, progress.choice.index
        piece = wording.chunk(index, text, progress.choice.answer.finish_reason if last else None, until)
        if sent:
            return piece
        echo = wording.generation.echo[index]
        return wording.opening(index) + (wording.chunk(index, echo, None, 0) if echo else b"") + piece

    def _end(self, progress: _Progress) -> list[bytes]:
        progress.ended = True
        self._open -= 1
        self._count(progress.ticket)
        if progress.tokens_sent == progress.ticket.output_tokens:
            return []
        # The server stops before the last token.
        return [self._wording.chunk(progress.choice.index, "", "abort", progress.tokens_sent)]

    def _count(self, ticket: Ticket) -> None:
        self._tokens_out += ticket.tokens_out
        self._cached_tokens += ticket.cached_tokens


async def _disconnected(receive: Receive) -> None:
    """Return once the client has hung up; the body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
