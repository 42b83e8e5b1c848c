"""Who prefills and who decodes, and the choice of a decode machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvcache_sim.cache.channels import Channels
from kvcache_sim.engine import Engine
from kvcache_sim.rng import derive_seed
from kvcache_sim.serving.handover.handover import Handover
from kvcache_sim.serving.handover.reception import Reception
from kvcache_sim.serving.handover.sender import Sender
from kvcache_sim.serving.replica import Replica
from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.serving.router.contract import Router, RouterView
from kvcache_sim.serving.router.look import look_at
from kvcache_sim.serving.router.registry import router_maker
from kvcache_sim.serving.settings import ClusterSettings


class Pools:
    """The machines by role. A request is routed among ``routed``; one whose prompt a machine of role
    ``prefill`` has computed goes on to one of ``decoding``, which the decode router chooses.
    """

    def __init__(
        self, replicas: Sequence[AnyReplica], cluster: ClusterSettings, channels: Channels, engine: Engine
    ) -> None:
        roles = [machine.role for machine in cluster.machines]
        self.settings = cluster.handover
        self.channels = channels
        self.routed = [r for r, role in zip(replicas, roles, strict=True) if role != "decode"]
        #: Those that a prompt may be handed over to, where any is.
        self.decoding: list[Replica] = []
        self._router: Router | None = None
        if "prefill" not in roles:
            return
        for replica, role in zip(replicas, roles, strict=True):
            assert isinstance(replica, Replica), "the core hands nothing over"
            if role != "prefill":
                self.decoding.append(replica)
        told_layers = range(1, cluster.cache.num_layers + 1 if channels.by_layer else 1)
        for replica, role in zip(replicas, roles, strict=True):
            if role == "prefill" and isinstance(replica, Replica):
                replica.hand_over_by(Sender(replica, self.settings, told_layers, self.assign))
        for replica in self.decoding:
            replica.scheduler.receive_by(Reception(replica, self.settings.first_token == "decode"))
        settings = replace(cluster.router, policy=self.settings.router, index_blocks=None)
        # Its own stream of random numbers: not those that chose the prefill machine.
        seed = derive_seed(cluster.seed, "decode router")
        block, look = cluster.cache.block_size_tokens, look_at(self.decoding, engine, heard=True)
        self._router = router_maker(settings.policy)(RouterView(self.decoding, settings, seed, block, look))

    def can_serve(self, replica: AnyReplica, prompt_tokens: int, kv_tokens: int) -> bool:
        """Return whether a request routed to a machine would fit: its prompt there, all where it decodes.

        One that does not is rejected on arrival.
        """
        if not isinstance(replica, Replica) or replica.sender is None:
            return replica.can_ever_hold(kv_tokens)
        if kv_tokens <= prompt_tokens:
            return replica.can_ever_hold(prompt_tokens)
        return replica.can_ever_hold(prompt_tokens) and any(r.can_ever_hold(kv_tokens) for r in self.decoding)

    def assign(self, handover: Handover) -> None:
        """Choose a request's decode machine; one too small for it passes it on to the next that is not."""
        assert self._router is not None
        s = handover.sequence
        expected, s.expected_prefill_tokens = s.expected_prefill_tokens, 0
        place = self._router.choose(s)
        to_send, s.expected_prefill_tokens = s.expected_prefill_tokens, expected
        target = self.decoding[place]
        if not target.can_ever_hold(s.total_kv_tokens):
            from_there = [*self.decoding[place:], *self.decoding[:place]]
            target = next(r for r in from_there if r.can_ever_hold(s.total_kv_tokens))
        handover.to(target, self.channels.handed_over(handover.source.machine, target.machine), to_send)
        assert target.scheduler.reception is not None
        target.scheduler.reception.ask(handover)
