"""Estimates for a fetch policy: when KV would arrive by the channels' queues, and what computing costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kvcache_sim.cache.fetch.plan import Part, Plan
from kvcache_sim.cache.machine import Machine
from kvcache_sim.channels.channel import layer_ns
from kvcache_sim.channels.edges import AnyChannel
from kvcache_sim.model.step_time import StepBatch, StepTime
from kvcache_sim.tiers import COMPUTE, PLACES, REMOTE, STAGING, load_edge


class Estimates:
    """What one machine can know when it decides between loading and recomputing."""

    def __init__(self, machine: Machine, step_time: StepTime, budget_tokens: int) -> None:
        self.mover = machine.mover
        self.block = machine.cache.block_size_tokens
        self.step_time = step_time
        self.budget = budget_tokens
        self.remote = machine.remote

    def plan(self, parts: Sequence[Part], ready: int, tokens: int) -> Plan:
        """Return the plan of a request that needs KV of ``tokens`` tokens and found ``parts``."""
        arrival, compute = partial(self._arrival_ns, parts), partial(self._compute_ns, tokens)
        return Plan(parts, ready, self.mover.layers, self.mover.pipelining, arrival, compute)

    def _compute_ns(self, tokens: int, blocks: int) -> int:
        past = min(blocks * self.block, tokens - 1)
        total = 0
        while past < tokens:
            chunk = min(tokens - past, self.budget)
            total += self.step_time.step(StepBatch(((chunk, past),), 0, 0, 0))
            past += chunk
        return total

    def _arrival_ns(self, parts: Sequence[Part], blocks: int) -> tuple[int, int]:
        cut = [part._replace(end=min(part.end, blocks)) for part in parts if part.start < blocks]
        moved = [0] * len(PLACES)
        for part in cut:
            moved[part.tier] += part.end - part.start
        moved[COMPUTE] = 0
        if not any(moved):
            return 0, 0
        up = self.mover.channels[load_edge(STAGING)]
        first, last = self._hop(up, sum(moved))
        staged = sum(moved[STAGING + 1 : REMOTE])
        if staged:
            first, last = self._after(self._staged(moved, STAGING + 1), (first, last), self._hop(up, staged))
        away = next((part.away for part in cut if part.away is not None), None)
        if moved[REMOTE] and away is not None and self.remote is not None:
            network = self.remote.channels.between(away[0], self.mover.machine)
            below = self._hop(network, moved[REMOTE])
            first, last = self._after(below, (first, last), self._hop(up, moved[REMOTE]))
        return first, last

    def _staged(self, moved: Sequence[int], level: int) -> tuple[int, int]:
        """Return when layers arrive above a tier of what ``moved`` has there and further down."""
        channel = self.mover.channels[load_edge(level)]
        times = self._hop(channel, sum(moved[level:REMOTE]))
        deeper = sum(moved[level + 1 : REMOTE])
        if deeper:
            times = self._after(self._staged(moved, level + 1), times, self._hop(channel, deeper))
        return times

    def _after(
        self, below: tuple[int, int], all_up: tuple[int, int], own_up: tuple[int, int]
    ) -> tuple[int, int]:
        """Return when layers arrive that take a lower hop before another one."""
        if not self.mover.pipelining:
            last = max(all_up[1], below[1] + own_up[1])
            return last, last
        return max(all_up[0], below[0] + own_up[0]), max(all_up[1], below[1] + own_up[0])

    def _hop(self, channel: AnyChannel, blocks: int) -> tuple[int, int]:
        mover = self.mover
        size, pieces = blocks * mover.block_bytes, blocks * mover.layers
        per_layer = layer_ns(channel.settings, size, pieces, mover.layers)
        start = channel.wait_ns(mover.engine.now_ns, pieces) + channel.settings.latency_ns
        return start + per_layer, start + mover.layers * per_layer
