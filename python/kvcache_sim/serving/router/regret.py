"""Routing regret: the loss of each choice against the best machine for that request at that time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from kvcache_sim.model.step_time import StepTime
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Look, Router
from kvcache_sim.serving.router.uncomputed import Uncomputed
from kvcache_sim.serving.sequence import Arrival


class Compared(NamedTuple):
    """A figure of the chosen machine, and of the best one."""

    chosen: int
    best: int


@dataclass(slots=True)
class Regret:
    """Sums over the choices of a run."""

    choices: int = 0
    #: Prompt tokens of the requests, tokens found on the chosen machine, and on the best machine.
    prompt_tokens: int = 0
    found_tokens: int = 0
    best_found_tokens: int = 0
    #: Expected time to compute the queue and the request, on the chosen machine and on the fastest.
    expected_ns: int = 0
    least_expected_ns: int = 0
    #: Choices for which another machine was expected to be faster.
    later: int = 0

    def counters(self) -> dict[str, int]:
        """Return the sums under the names of a run's counters."""
        return {f"regret.{field.name}": getattr(self, field.name) for field in fields(self)}

    def add(self, sequence: Arrival, found: Compared, expected_ns: Compared) -> None:
        """Count a choice: tokens found and expected time (ns)."""
        self.choices += 1
        self.prompt_tokens += sequence.prompt_num_tokens
        self.found_tokens += found.chosen
        self.best_found_tokens += found.best
        self.expected_ns += expected_ns.chosen
        self.least_expected_ns += expected_ns.best
        self.later += expected_ns.chosen > expected_ns.best


class Watched:
    """A router whose choices are compared with the true state of all machines.

    The expected time on a machine is its GPU's time, chunk by chunk, for uncached prompt tokens: of this
    request and of requests sent there without a first token. It excludes decoding and loads from lower tiers.
    Effects on results: none. Cost: one lookup on all machines per request.
    """

    def __init__(
        self,
        router: Router,
        replicas: Sequence[NativeReplica],
        step_times: Sequence[StepTime],
        look: Callable[[Arrival], Look],
    ) -> None:
        self._router, self._look = router, look
        self._block = replicas[0].cache.block_size_tokens
        self._uncomputed = Uncomputed(replicas, step_times)
        #: Forgets a request that was rejected.
        self.closed = self._uncomputed.closed
        self.regret = Regret()

    def choose(self, sequence: Arrival) -> int:
        """Return the router's choice."""
        prompt = sequence.prompt_num_tokens
        found = [min(blocks * self._block, prompt) for blocks in self._look(sequence).found_blocks]
        chosen = self._router.choose(sequence)
        expected = [self._uncomputed.wait_ns(m, prompt - tokens) for m, tokens in enumerate(found)]
        waits = Compared(expected[chosen], min(expected))
        self.regret.add(sequence, Compared(found[chosen], max(found)), waits)
        self._uncomputed.sent(sequence.request, chosen, prompt - found[chosen])
        return chosen
