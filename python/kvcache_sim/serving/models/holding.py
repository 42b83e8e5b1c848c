"""Requests that were sent to a machine and wait there until its engine may have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kvcache_sim.serving.router.contract import Held
from kvcache_sim.serving.sequence import Arrival


class Holder(Protocol):
    """Keeps requests of machines until what they need is there."""

    def arrive(self, machine: int, arrival: Arrival) -> bool:
        """Return whether the engine may have a request at once; if not, it is let in later."""
        ...

    def closed(self, request: int) -> None:
        """Hear that a request is done."""
        ...

    def let_in_by(self, let_in: Callable[[int, int], None]) -> None:
        """Say who takes a machine and the number of a request that may go on."""
        ...

    @property
    def counts(self) -> dict[str, int]:
        """What it did so far."""
        ...


class Doorway:
    """Counts what waits before each engine, for routers, and lets it in."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._let_in: Callable[[int, int], None] | None = None
        self._tokens: dict[int, int] = {}

    def open_to(self, let_in: Callable[[int, int], None]) -> None:
        """Say who takes requests that are let in."""
        self._let_in = let_in

    def hold(self, machine: int, arrival: Arrival) -> None:
        """Count a request as waiting."""
        self._tokens[arrival.request] = arrival.prompt_num_tokens
        self._held.requests[machine] += 1
        self._held.tokens[machine] += arrival.prompt_num_tokens

    def pass_on(self, machine: int, request: int) -> None:
        """Let a request go on to its engine."""
        self._held.requests[machine] -= 1
        self._held.tokens[machine] -= self._tokens.pop(request)
        assert self._let_in is not None, "the doorway was opened"
        self._let_in(machine, request)
