"""Answers on their way to a client: tokens are written when their time has come, whole answers at the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcache_sim.live.chunks import Wording, encoded
from kvcache_sim.live.fleet import Fleet
from kvcache_sim.live.generation import Choice
from kvcache_sim.live.http import Exchange
from kvcache_sim.live.ticket import Ticket

if TYPE_CHECKING:
    from kvcache_sim.live.record.observed import Observed


@dataclass(slots=True, eq=False)
class _Told:
    """A choice of an answer: how many tokens were told, what stands around a text, whether it has ended."""

    choice: Choice
    ticket: Ticket
    #: None where it is written anew for each chunk.
    around: tuple[bytes, bytes] | None
    said: int = 0
    ended: bool = False


class Telling:
    """Tells one client what its tickets bring; a client that hangs up gives them up.

    Tokens are written from within the clock's own turn, without a task of their own: a token costs one write.
    A client that reads slowly is told of what has come meanwhile in one piece, so that nothing piles up.
    """

    def __init__(self, fleet: Fleet, exchange: Exchange, wording: Wording) -> None:
        self._fleet, self._exchange, self._wording = fleet, exchange, wording
        self._out = self._cached = 0
        self._told: list[_Told] = []
        #: Choices that have not ended, and whether the end of the stream was written.
        self._open, self._ended = len(wording.generation.choices), False
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def tell(self) -> None:
        """Serve the generation and answer; returns early where the client has gone."""
        generation = self._wording.generation
        for choice in generation.choices:
            ticket = self._fleet.submit(choice.prompt, self._exchange.came_ns)
            self._told.append(_Told(choice, ticket, self._wording.plain(choice.index)))
        gone = asyncio.create_task(self._exchange.gone())
        try:
            if generation.streams:
                await self._exchange.stream(self._hear)
            for told in self._told:
                told.ticket.hear, told.ticket.streams = self._hear, generation.streams
            self._hear()
            await asyncio.wait((gone, self._done), return_when=asyncio.FIRST_COMPLETED)
            if self._done.done():
                self._done.result()
                if not generation.streams:
                    await self._whole()
        finally:
            for told in self._told:
                told.ticket.hear = None
                self._fleet.abort(told.ticket)
            self._exchange.give_up()
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    def told_to(self, heard: Observed) -> Observed:
        """Return what was heard of a request with what its first choice was told."""
        first = self._told[0]
        heard.status = 200
        heard.said = first.choice.answer.texts[: first.ticket.tokens_out]
        heard.usage = self._wording.usage(self._out, self._cached)
        return heard

    def _hear(self) -> None:
        """Look what has come; an error ends this answer and no other one."""
        try:
            if self._done.done():
                return
            if self._wording.generation.streams:
                self._stream()
            elif all(told.ticket.closed for told in self._told):
                self._done.set_result(None)
        except Exception as error:
            self._done.set_exception(error)

    async def _whole(self) -> None:
        texts = []
        for told in self._told:
            choice, ticket = told.choice, told.ticket
            if ticket.tokens_out:
                self._fleet.wrote(ticket, ticket.last_ns, 1)
            self._count(ticket)
            text = self._wording.generation.echo[choice.index] + "".join(
                choice.answer.texts[: ticket.tokens_out]
            )
            texts.append((text, "abort" if ticket.aborted else choice.answer.finish_reason))
        await self._exchange.json(self._wording.whole(texts, self._out, self._cached))

    # -- streams

    def _stream(self) -> None:
        """Write all that has come in one piece."""
        if self._exchange.waits:
            return  # it is called again
        pieces, due = [], []
        for told in self._told:
            ticket = told.ticket
            if ticket.tokens_out > told.said:
                due.append((ticket, ticket.tokens_out - told.said))
                pieces.append(self._piece(told, ticket.tokens_out))
            if ticket.closed and not told.ended:
                pieces += self._end(told)
        ends = self._open == 0 and not self._ended
        if ends:
            self._ended = True
            pieces.append(self._wording.last(self._out, self._cached))
        if pieces:
            self._exchange.put(pieces[0] if len(pieces) == 1 else b"".join(pieces), more=not ends)
            for ticket, tokens in due:
                self._fleet.wrote(ticket, ticket.due_ns if ticket.due_ns >= 0 else ticket.last_ns, tokens)
        if self._ended and not self._exchange.waits:
            self._done.set_result(None)

    def _piece(self, told: _Told, until: int) -> bytes:
        """Return the chunk of the tokens up to one."""
        said, told.said = told.said, until
        texts, last = told.choice.answer.texts, until == told.ticket.output_tokens
        if told.around is not None and said == until - 1 and said and not last:  # most of them
            return told.around[0] + encoded(texts[said]) + told.around[1]
        text = "".join(texts[said:until])
        wording, index = self._wording, told.choice.index
        piece = wording.chunk(index, text, told.choice.answer.finish_reason if last else None, until)
        if said:
            return piece
        echo = wording.generation.echo[index]
        return wording.opening(index) + (wording.chunk(index, echo, None, 0) if echo else b"") + piece

    def _end(self, told: _Told) -> list[bytes]:
        told.ended = True
        self._open -= 1
        self._count(told.ticket)
        if told.said == told.ticket.output_tokens:
            return []
        return [self._wording.chunk(told.choice.index, "", "abort", told.said)]  # the server stops

    def _count(self, ticket: Ticket) -> None:
        self._out += ticket.tokens_out
        self._cached += ticket.cached_tokens
