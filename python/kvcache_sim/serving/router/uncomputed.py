"""Tokens of prompts that were sent to machines and are not computed yet, without what is cached there."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.model.step_time import StepTime, chunked_ns
from kvcache_sim.serving.replica.native import NativeReplica


class Uncomputed:
    """Counts uncached prompt tokens from a request's choice until its prompt is computed, by machine.

    ``step_times``: of each machine. Effects on results: none.
    """

    def __init__(self, replicas: Sequence[NativeReplica], step_times: Sequence[StepTime]) -> None:
        self._chunks = [
            (step_time, replica.settings.max_num_batched_tokens)
            for replica, step_time in zip(replicas, step_times, strict=True)
        ]
        self._tokens = [0] * len(replicas)
        self._own: dict[int, tuple[int, int]] = {}
        for replica in replicas:
            replica.when_prefilled(lambda request, _: self.closed(request))

    def sent(self, request: int, machine: int, tokens: int) -> None:
        """Add a request with ``tokens`` uncached tokens."""
        self._own[request] = machine, tokens
        self._tokens[machine] += tokens

    def closed(self, request: int) -> None:
        """Remove a request whose prompt is computed, or that was rejected."""
        machine, tokens = self._own.pop(request, (0, 0))
        self._tokens[machine] -= tokens

    def wait_ns(self, machine: int, tokens: int) -> int:
        """Return the GPU's time for what waits there and ``tokens`` more, without decoding."""
        return chunked_ns(*self._chunks[machine], self._tokens[machine] + tokens)
