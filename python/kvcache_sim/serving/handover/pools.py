"""Machines by role, prefill or decode, and the choice of a decode machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kvcache_sim.base.rng import derive_seed
from kvcache_sim.base.tiers import COMPUTE, LOAD_EDGES, WRITE_EDGES
from kvcache_sim.cache.tier_rules import lane
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.engine import Engine
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.affinity import with_affinity
from kvcache_sim.serving.router.contract import Promised, Router, RouterView
from kvcache_sim.serving.router.in_core import DecodeClock, look_at, rule_in_core
from kvcache_sim.serving.router.registry import router_maker
from kvcache_sim.serving.router.views import Views
from kvcache_sim.serving.sequence import Arrival, MostTokens
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.serving.step_tables import dummy_step_ns, shared_ns

if TYPE_CHECKING:
    from kvcache_sim.serving.handover.decision import Decision
    from kvcache_sim.serving.native_cluster import Chosen, NativeCluster, Route

#: An upper bound of a request's tokens.
LAST_TOKEN = 1 << 40


class Pools:
    """The machines by role. A request is routed among ``routed``. After its prompt was computed by a machine
    of role ``prefill``, it moves to a machine of ``decoding``, which the decode router chooses.
    """

    def __init__(
        self,
        replicas: Sequence[NativeReplica],
        cluster: ClusterSettings,
        channels: Channels,
        engine: Engine,
        recorder: Recorder,
        views: Views,
    ) -> None:
        roles = [machine.role for machine in cluster.machines]
        self.settings = cluster.handover
        self.channels = channels
        #: Loads, prompts and notifications that routers share.
        self.views = views
        decides = self.settings.decide != "always"
        self.routed = [r for r, role in zip(replicas, roles, strict=True) if role in _routed(decides)]
        self._replicas = replicas
        self._sends = [role == "prefill" for role in roles]
        #: Machines that a prompt may be handed over to; empty without disaggregation.
        self.decoding: list[NativeReplica] = []
        self._router: Router | None = None
        self._view: RouterView | None = None
        #: All machines in the core, if they hand over or read each other; it may choose the decode machine.
        self.native: NativeCluster | None = None
        self.decodes_in_core = False
        #: Decides which requests are handed over; None: all that a prefill machine receives.
        self.decision: Decision | None = None
        reads = any(replica.reads_others for replica in replicas)
        ranks = cluster.machines[0].replica.ranks
        if reads or any(self._sends) or channels.timeline is not None or ranks > 1:
            from kvcache_sim.serving.native_cluster import NativeCluster, SharedPool

            between = channels.between if reads or self.settings.path == "via-cpu" else None
            node = replicas[0].pool if reads else None
            pool = None if node is None else SharedPool(node, cluster.movement)
            choose, timeline = self._choose, channels.timeline
            self.native = NativeCluster(replicas, choose, between, recorder, timeline, pool)
            if ranks > 1:
                first = cluster.machines[::ranks]
                dummies, shared = [dummy_step_ns(one) for one in first], [shared_ns(one) for one in first]
                self.native.step_together(ranks, dummies, shared)
        if not any(self._sends):
            return
        self.decoding += [r for r, sends in zip(replicas, self._sends, strict=True) if not sends]
        settings = replace(cluster.router, policy=self.settings.router, index_blocks=None, index_kind="truth")
        # A separate stream of random numbers from that of the prefill router.
        seed = derive_seed(cluster.seed, "decode router")
        self._clock = clock = DecodeClock(engine, Promised(len(self.decoding)) if decides else None)
        look = look_at(self.decoding, clock)
        trees = [r.tree if decides and r.tiers > 1 else None for r in self.decoding]
        self._view = view = views.of(self.decoding, settings, seed, look, trees, clock)
        self._router = with_affinity(router_maker(settings.policy), views.bindings())(view)
        if decides:
            from kvcache_sim.serving.handover.decision import Decision

            times = [machine.step_time for machine in cluster.machines]
            self.decision = Decision(self.settings, view, self._router, self.routed, times, channels)
            return
        if self.native is not None and (rule := rule_in_core(self._router)) is not None:
            holds = {replica.machine: most(replica.can_ever_hold) for replica in self.decoding}
            self.native.decode_by(rule, holds, self._between)
            self.decodes_in_core = True

    def most_tokens(self, longest: int) -> list[MostTokens]:
        """Return by machine the most tokens of a prompt, and of a whole request, that it ``can_serve``.

        ``longest``: upper bound of a request's tokens.
        """
        most_held = [most(replica.can_ever_hold, longest) for replica in self._replicas]
        decoded = max([most_held[replica.machine] for replica in self.decoding], default=0)
        prompts = [
            min(holds, _longest_prompt(replica))
            for holds, replica in zip(most_held, self._replicas, strict=True)
        ]
        whole = [decoded if sends else holds for holds, sends in zip(most_held, self._sends, strict=True)]
        return list(map(MostTokens, prompts, whole))

    @property
    def receiving(self) -> Sequence[NativeReplica]:
        """The machines that requests may be sent to at their arrival."""
        return self.routed if self.decision is None else self._replicas

    def route(self, s: Arrival, router: Router) -> NativeReplica:
        """Return the machine that a request is sent to; ``router`` chooses among ``routed``."""
        if self.decision is None:
            return self.routed[router.choose(s)]
        with self._clock.arriving():
            return self.decision.route(s, router)

    def can_serve(self, replica: NativeReplica, prompt_tokens: int, kv_tokens: int) -> bool:
        """Return True if a request fits: its prompt on this machine, all its tokens on a decode machine.

        A request that does not fit, or leaves no token of the context for its answer, is rejected on arrival.
        """
        if prompt_tokens > _longest_prompt(replica):
            return False
        if not self._sends[replica.machine]:
            return replica.can_ever_hold(kv_tokens)
        if kv_tokens <= prompt_tokens:
            return replica.can_ever_hold(prompt_tokens)
        return replica.can_ever_hold(prompt_tokens) and any(r.can_ever_hold(kv_tokens) for r in self.decoding)

    def _choose(self, source: int, s: Arrival) -> Chosen:
        """Return the decode machine of a request, the channels its KV crosses, and the expected tokens.

        A machine too small for the request is skipped for the next one that is large enough.
        """
        assert self._router is not None
        assert self._view is not None
        expected, s.expected_prefill_tokens = s.expected_prefill_tokens, 0
        promised = None if self.decision is None else self.decision.promised.machine_of(s.request)
        chosen = self._router.choose(s) if promised is None else promised
        to_send, s.expected_prefill_tokens = s.expected_prefill_tokens, expected
        at = self._view.large_enough(chosen, s)
        assert at is not None, "a request that no machine can hold is rejected at its arrival"
        target = self.decoding[at]
        return target.machine, self._between(source, target.machine), to_send

    def _between(self, source: int, target: int) -> Route:
        """Return the channels of the core that a hand-over from one machine to another crosses."""
        wire = [self.channels.handed_over(source, target)]
        if self.settings.path == "gpu-direct":
            return [wire]
        down = lane(source, self._replicas[source].edges, WRITE_EDGES[COMPUTE])
        return [down, wire, lane(target, self._replicas[target].edges, LOAD_EDGES[COMPUTE])]


def _routed(decides: bool) -> tuple[str, ...]:
    """Return the roles of the machines that the router chooses among."""
    return ("prefill",) if decides else ("prefill", "both")


def _longest_prompt(replica: NativeReplica) -> int:
    """Return the longest prompt that leaves a token of the replica's context for the answer."""
    context = replica.settings.max_model_len
    return LAST_TOKEN if context is None else context - 1


def most(fits: Callable[[int], bool], limit: int = LAST_TOKEN) -> int:
    """Return the largest number up to ``limit`` that fits, if all smaller numbers fit; 0 if 1 does not."""
    if fits(limit):
        return limit
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
