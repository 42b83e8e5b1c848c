"""Routing regret: what each choice lost against the best machine for that request at that moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from kvcache_sim.model.step_time import StepBatch, StepTime
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Look, Router
from kvcache_sim.serving.sequence import Arrival


@dataclass(slots=True)
class Regret:
    """Sums over the choices of a run."""

    choices: int = 0
    #: Prompt tokens of the requests, those found on the machine chosen, and on the one that had most.
    prompt_tokens: int = 0
    found_tokens: int = 0
    best_found_tokens: int = 0
    #: Expected time to compute what is queued and the request, where it went and where that is least.
    expected_ns: int = 0
    least_expected_ns: int = 0
    #: Choices where another machine was expected sooner.
    later: int = 0

    def counters(self) -> dict[str, int]:
        """Return the sums by the names that a run's counters have for them."""
        return {f"regret.{field.name}": getattr(self, field.name) for field in fields(self)}

    def add(self, sequence: Arrival, found: tuple[int, int], expected_ns: tuple[int, int]) -> None:
        """Count a choice: tokens found and time expected where it went, and at best."""
        self.choices += 1
        self.prompt_tokens += sequence.prompt_num_tokens
        self.found_tokens += found[0]
        self.best_found_tokens += found[1]
        self.expected_ns += expected_ns[0]
        self.least_expected_ns += expected_ns[1]
        self.later += expected_ns[0] > expected_ns[1]


class Watched:
    """A router whose choices are held against all machines as they are, whatever it looks at itself.

    The time expected on a machine is what its GPU needs, chunk by chunk and alone, for the uncached prompt
    tokens sent there that have no first token yet and for those of this request: no decoding beside it, no
    loads from lower tiers. Effects on results: none. Cost: a look at all machines a request.
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
        self._chunks = [
            (replica.settings.max_num_batched_tokens, step_time)
            for replica, step_time in zip(replicas, step_times, strict=True)
        ]
        #: By machine the uncached tokens that wait, and by request how many of them are its own and where.
        self._waiting = [0] * len(replicas)
        self._own: dict[int, tuple[int, int]] = {}
        self.regret = Regret()
        for replica in replicas:
            replica.when_prefilled(self._computed)

    def choose(self, sequence: Arrival) -> int:
        """Return the router's choice."""
        prompt = sequence.prompt_num_tokens
        found = [min(blocks * self._block, prompt) for blocks in self._look(sequence).found_blocks]
        chosen = self._router.choose(sequence)
        expected = [self._needs_ns(m, self._waiting[m] + prompt - tokens) for m, tokens in enumerate(found)]
        self.regret.add(sequence, (found[chosen], max(found)), (expected[chosen], min(expected)))
        self._own[sequence.request] = chosen, prompt - found[chosen]
        self._waiting[chosen] += prompt - found[chosen]
        return chosen

    def closed(self, request: int) -> None:
        """Forget a request that was rejected."""
        self._computed(request, 0)

    def _computed(self, request: int, _prompt_tokens: int) -> None:
        machine, tokens = self._own.pop(request, (0, 0))
        self._waiting[machine] -= tokens

    def _needs_ns(self, machine: int, tokens: int) -> int:
        chunk, step_time = self._chunks[machine]
        full, rest = divmod(tokens, chunk)
        time_ns = full * step_time.step(StepBatch(((chunk, 0),))) if full else 0
        return time_ns + (step_time.step(StepBatch(((rest, 0),))) if rest else 0)
