"""Answers on their way to a client: tokens are written when their time has come, whole answers at the end."""

from __future__ import annotations

import asyncio

from kvcache_sim.live.chunks import Wording, encoded
from kvcache_sim.live.fleet import Fleet
from kvcache_sim.live.generation import Choice
from kvcache_sim.live.http import Exchange
from kvcache_sim.live.ticket import Ticket


class Telling:
    """Tells one client what its tickets bring; a client that hangs up gives them up."""

    def __init__(self, fleet: Fleet, exchange: Exchange, wording: Wording) -> None:
        self._fleet, self._exchange, self._wording = fleet, exchange, wording
        self._out = self._cached = 0

    async def tell(self) -> None:
        """Serve the generation and answer; returns early where the client has gone."""
        generation = self._wording.generation
        served = [(choice, self._fleet.submit(choice.prompt)) for choice in generation.choices]
        gone = asyncio.create_task(self._exchange.gone())
        work = asyncio.create_task(self._stream(served) if generation.streams else self._whole(served))
        try:
            await asyncio.wait((gone, work), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for _, ticket in served:
                self._fleet.abort(ticket)
            for task in (gone, work):
                task.cancel()
            await asyncio.gather(gone, work, return_exceptions=True)

    async def _whole(self, served: list[tuple[Choice, Ticket]]) -> None:
        texts = []
        for choice, ticket in served:
            await ticket.ended()
            if ticket.tokens_out:
                ticket.late(self._fleet.clock.behind_ns(ticket.last_ns))
            self._count(ticket)
            text = self._wording.generation.echo[choice.index] + "".join(
                choice.answer.texts[: ticket.tokens_out]
            )
            texts.append((text, "abort" if ticket.aborted else choice.answer.finish_reason))
        await self._exchange.json(self._wording.whole(texts, self._out, self._cached))

    async def _stream(self, served: list[tuple[Choice, Ticket]]) -> None:
        await self._exchange.stream()
        if len(served) == 1:
            await self._stream_choice(*served[0])
        else:
            await asyncio.gather(*(self._stream_choice(choice, ticket) for choice, ticket in served))
        await self._exchange.write(self._wording.last(self._out, self._cached), more=False)

    async def _stream_choice(self, choice: Choice, ticket: Ticket) -> None:
        wording, index, texts, said = self._wording, choice.index, choice.answer.texts, 0
        write, clock, plain = self._exchange.write, self._fleet.clock, wording.plain(index)
        while True:
            times = ticket.taken()
            if not times:
                if ticket.closed:
                    break
                await ticket.waiter()
                continue
            until = said + len(times)
            last = until == ticket.output_tokens
            text = texts[said] if len(times) == 1 else "".join(texts[said:until])
            if plain is not None and not last:
                piece = plain[0] + encoded(text) + plain[1]
            else:
                piece = wording.chunk(index, text, choice.answer.finish_reason if last else None, until)
            if said == 0:
                if echo := wording.generation.echo[index]:
                    piece = wording.chunk(index, echo, None, 0) + piece
                piece = wording.opening(index) + piece
            said = until
            await write(piece)
            ticket.late(clock.behind_ns(times[0]))
        if said < ticket.output_tokens:  # the server stops
            await self._exchange.write(wording.chunk(index, "", "abort", said))
        self._count(ticket)

    def _count(self, ticket: Ticket) -> None:
        self._out += ticket.tokens_out
        self._cached += ticket.cached_tokens
