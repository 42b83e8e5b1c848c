"""Decides at each arrival whether a decode machine serves a request whole (conditional disaggregation)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.channels.cluster import Channels
from kvcache_sim.model.step_time import StepTime
from kvcache_sim.serving.handover.rules import RULES, Asked
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Router, RouterView
from kvcache_sim.serving.router.in_core import FleetLook, look_at
from kvcache_sim.serving.router.uncomputed import Uncomputed
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import HandoverSettings
from kvcache_sim.units import NS_PER_S


class Adviser:
    """A router that is asked before its answer is followed: ``ask``, then ``sent`` if it is.

    A router without these two methods counts every answer as followed.
    """

    def __init__(self, router: Router) -> None:
        self.ask: Callable[[Arrival], int] = getattr(router, "ask", router.choose)
        self.sent: Callable[[Arrival, int], None] = getattr(router, "sent", lambda *_: None)
        #: True if it estimates the tokens that a machine has to compute.
        self.estimates = hasattr(router, "ask")


class Decision:
    """Decides at each arrival: a decode machine serves the request whole, or a prefill machine its prompt.

    ``view``: of the decode machines, for ``router``. ``step_times`` by machine of the cluster. It counts
    finished requests, so that machines keep to the time of the engine. Cost: a look-up on all decode machines
    in addition to those of the routers; of ``shorter-wait`` an estimate per machine.
    """

    def __init__(
        self,
        settings: HandoverSettings,
        view: RouterView,
        router: Router,
        prefilling: Sequence[NativeReplica],
        step_times: Sequence[StepTime],
        channels: Channels,
    ) -> None:
        self.rule = RULES[settings.decide]
        self._settings, self._view, self._engine = settings, view, prefilling[0].engine
        self._prefilling, self._channels = prefilling, channels
        assert isinstance(view.look, FleetLook)
        assert view.promised is not None
        self._look, self.promised = view.look, view.promised
        self._prefill_look = look_at(prefilling, self._engine)
        self._decode = Adviser(router)
        #: What prefill machines and decode machines have to compute, if the rule estimates waits.
        self._queues: list[Uncomputed] = []
        if self.rule.estimates:
            for replicas in (prefilling, view.replicas):
                queue = Uncomputed(replicas, [step_times[replica.machine] for replica in replicas])
                self._queues.append(queue)
                view.when_closed.append(queue.closed)
        view.when_closed.append(self.promised.closed)

    def route(self, s: Arrival, router: Router) -> NativeReplica:
        """Return the machine that a request is sent to; ``router`` chooses among the prefill machines."""
        prefill, source, keeps = Adviser(router), None, not self.rule.chooses_again
        asked = self._decode.ask(s)
        to_compute, s.expected_prefill_tokens = s.expected_prefill_tokens, 0
        at = self._view.large_enough(asked, s)
        if at is None:  # rejected there
            return self._view.replicas[asked]
        if self.rule.reads_prefill:
            source = prefill.ask(s)
        hands_over = self.rule.hands_over(self._settings, self._asked(s, at, source, prefill))
        if keeps or not hands_over:
            self._decode.sent(s, at)
        if not hands_over:
            self._queue(s, 1, at, self._look)
            s.expected_prefill_tokens = to_compute
            return self._view.replicas[at]
        if keeps and s.output_tokens > 1:
            self.promised.add(s, at)
        source = prefill.ask(s) if source is None else source
        prefill.sent(s, source)
        self._queue(s, 0, source, self._prefill_look)
        return self._prefilling[source]

    def _asked(self, s: Arrival, at: int, source: int | None, prefill: Adviser) -> Asked:
        block = self._view.block_size_tokens
        held = self._look.held(s, block)
        lacking = self._view.uncredited_blocks(s, held)[at]
        asked = Asked(s.prompt_num_tokens, held[at] * block, round((held[at] - lacking) * block))
        if source is None:
            return asked
        replica = self._prefilling[source]
        load = replica.load
        queued = load.expected_prefill_tokens if prefill.estimates else load.queued_tokens
        asked = asked._replace(prefill_tokens=queued, step_tokens=replica.settings.max_num_batched_tokens)
        if not self.rule.estimates:
            return asked
        there = self._queues[0].wait_ns(source, 0) + self._prefill_look.prefill_times(s)[source]
        here = self._queues[1].wait_ns(at, 0) + self._look.prefill_times(s)[at]
        return asked._replace(wait_ns=here, prefill_wait_ns=there + self._wire_ns(s, source, at))

    def _queue(self, s: Arrival, of: int, machine: int, look: FleetLook) -> None:
        """Count the uncached tokens of a prompt on the machine that computes it, if the rule reads waits."""
        if self._queues:
            cached_tokens = look(s).found_blocks[machine] * self._view.block_size_tokens
            self._queues[of].sent(s.request, machine, s.prompt_num_tokens - cached_tokens)

    def _wire_ns(self, s: Arrival, source: int, at: int) -> int:
        """Return the time of a hand-over after the prompt, over the wire behind what it carries now."""
        target = self._view.replicas[at]
        block = self._view.block_size_tokens
        blocks: int = -(-s.prompt_num_tokens // block) - self._view.look(s).gpu_blocks[at]
        wire = self._channels.handed_over(self._prefilling[source].machine, target.machine)
        bytes_per_s = wire.settings.bandwidth_bytes_per_s
        sent_ns = -(-blocks * target.cache.block_bytes * NS_PER_S // bytes_per_s)
        return wire.wait_ns(self._engine.now_ns) + wire.settings.latency_ns + sent_ns
