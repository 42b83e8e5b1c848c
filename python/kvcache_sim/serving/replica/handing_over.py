"""What a replica asks of hand-overs where a prompt is computed on one machine and its answer on another."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.serving.sequence import SequenceState


class HandsOver(Protocol):
    """The sending side of a machine that prefills for others."""

    streams: bool

    def takes(self, s: SequenceState) -> bool:
        """Return whether a request goes on elsewhere after its prompt."""

    def step_started(self, end_ns: int) -> None:
        """Note that a step has started which ends then."""

    def prompt_computed(self, s: SequenceState, now: int) -> None:
        """Send a request away: the step that computed its prompt has ended."""


class HandedOver(Protocol):
    """A request whose prompt another machine computes, from asking for room until it joins the batch."""

    sequence: SequenceState
    lease: int
    total_blocks: int
    expected_tokens: int
    asked_ns: int
    reserved_ns: int
    complete: bool

    def asked(self, now_ns: int) -> None:
        """Note when it asked for room."""

    def reserved(self, lease: int, blocks: tuple[int, int], room: list[int], now_ns: int) -> None:
        """Let what is lacking, of (total, lacking) blocks, come when the moves ``room`` have freed it."""


class Receives(Protocol):
    """The receiving side of a machine that decodes for others."""

    def ask(self, handover: HandedOver) -> None:
        """Queue a request for room."""

    def take(self, now: int) -> bool:
        """Reserve room for the first of the queue and let its KV come; False when that is refused."""

    def received(self, handover: HandedOver) -> None:
        """Note that a request's KV is here."""

    def join(self) -> None:
        """Let what has arrived into the step while it has tokens for it."""
