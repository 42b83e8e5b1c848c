"""Decides at each arrival whether a decode machine serves a request whole (conditional disaggregation)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.model.step_time import StepTime
from kvcache_sim.serving.handover.rules import RULES, Asked
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Look, Router, RouterView
from kvcache_sim.serving.router.in_core import FleetLook, look_at
from kvcache_sim.serving.router.uncomputed import Uncomputed
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import HandoverSettings


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
    finished requests, so that machines keep to the time of the engine. Cost: one look-up on all decode
    machines in addition to those of the routers; of ``shorter-wait`` an estimate per machine.
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
        held = self._look.held(s, self._view.block_size_tokens)
        facts = self._asked(s, at, held)
        if source is not None:
            facts = self._loaded(facts, source, prefill)
            if self.rule.estimates:
                facts = self._waits(s, facts, source, at, self._reusable(s, held.gpu_blocks[at]))
        hands_over = self.rule.hands_over(self._settings, facts)
        if keeps or not hands_over:
            self._decode.sent(s, at)
        if not hands_over:
            if self._queues:
                self._queue(s, 1, at, self._reusable(s, held.found_blocks[at]))
            s.expected_prefill_tokens = to_compute
            return self._view.replicas[at]
        if keeps and s.output_tokens > 1:
            self.promised.add(s, at)
        source = prefill.ask(s) if source is None else source
        prefill.sent(s, source)
        if self._queues:
            self._queue(s, 0, source, self._prefill_look(s).found_blocks[source])
        return self._prefilling[source]

    def _asked(self, s: Arrival, at: int, held: Look) -> Asked:
        block, found = self._view.block_size_tokens, held.found_blocks
        lacking = self._view.uncredited_blocks(s, found)[at]
        return Asked(s.prompt_num_tokens, found[at] * block, round((found[at] - lacking) * block))

    def _loaded(self, asked: Asked, source: int, prefill: Adviser) -> Asked:
        """Add what the prefill machine has to compute."""
        replica = self._prefilling[source]
        load = replica.load
        queued = load.expected_prefill_tokens if prefill.estimates else load.queued_tokens
        return asked._replace(prefill_tokens=queued, step_tokens=replica.settings.max_num_batched_tokens)

    def _waits(self, s: Arrival, asked: Asked, source: int, at: int, gpu_blocks: int) -> Asked:
        """Add the expected times to the first token; ``gpu_blocks``: of the prompt on the decode machine."""
        there = self._queues[0].wait_ns(source, 0) + self._prefill_look.prefill_times(s)[source]
        here = self._queues[1].wait_ns(at, 0) + self._look.prefill_times(s)[at]
        wire_ns = self._wire_ns(
            source, at, -(-s.prompt_num_tokens // self._view.block_size_tokens) - gpu_blocks
        )
        return asked._replace(wait_ns=here, prefill_wait_ns=there + wire_ns)

    def _reusable(self, s: Arrival, found_blocks: int) -> int:
        """Return how many of the blocks found are not computed again: the last token always is."""
        return min(found_blocks, self._view.replicas[0].cache.matchable_blocks(s.prompt_num_tokens))

    def _queue(self, s: Arrival, of: int, machine: int, cached_blocks: int) -> None:
        """Count the uncached tokens of a prompt on the machine that computes it, if the rule reads waits."""
        cached_tokens = cached_blocks * self._view.block_size_tokens
        self._queues[of].sent(s.request, machine, s.prompt_num_tokens - cached_tokens)

    def _wire_ns(self, source: int, at: int, blocks: int) -> int:
        """Return the time of a hand-over after the prompt, over the wire behind what it carries now."""
        target = self._view.replicas[at]
        wire = self._channels.handed_over(self._prefilling[source].machine, target.machine)
        block_bytes, *coding_ns = self._settings.form.in_core(target.cache.block_bytes)
        sent_ns = -(-blocks * block_bytes * NS_PER_S // wire.settings.bandwidth_bytes_per_s)
        busy_ns = max(sent_ns, blocks * max(coding_ns))
        return wire.wait_ns(self._engine.now_ns) + wire.settings.latency_ns + busy_ns
