"""The sending side: what a prefill machine has computed, and when each layer of it is there."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.channels.channel import Transmission
from kvcache_sim.engine import HANDOVER
from kvcache_sim.serving.handover.handover import Handover
from kvcache_sim.serving.replica.replica import Replica
from kvcache_sim.serving.sequence import SequenceState, Status
from kvcache_sim.serving.settings import HandoverSettings


class Sender:
    """Hands over every request of a prefill machine that has more than one token to generate.

    ``told_layers`` are the layers of which a channel that is served layer by layer has to be told;
    ``assign`` chooses the decode machine of a hand-over.
    """

    def __init__(
        self,
        replica: Replica,
        settings: HandoverSettings,
        told_layers: range,
        assign: Callable[[Handover], None],
    ) -> None:
        self.replica = replica
        self.settings = settings
        #: Whether layers leave as they are computed: the machine then takes one step at a time.
        self.streams = self.settings.transfer == "layer-by-layer"
        self._told_layers = told_layers
        self._assign = assign
        self._announced: dict[int, Handover] = {}

    def takes(self, s: SequenceState) -> bool:
        """Return whether a request goes on elsewhere after its prompt."""
        return s.output_tokens > 1

    def step_started(self, end_ns: int) -> None:
        """Announce the prompts that a step finishes: their layers are computed evenly up to its end."""
        replica, now = self.replica, self.replica.engine.now_ns
        due = [s for request in replica.batch.first_tokens_due() if self.takes(s := replica.running[request])]
        if not due:
            return
        compute, layers = replica.batch.step_ns(), replica.cache.num_layers
        begin = end_ns - compute
        computed = [max(begin + compute * k // layers, now) for k in self._told_layers]
        times = Transmission(begin, max(begin + compute // layers, now), end_ns, compute // layers, computed)
        for s in due:
            self._announced[s.request] = self._send(s, times)

    def prompt_computed(self, s: SequenceState, now: int) -> None:
        """Send a request away: the step that computed its prompt has ended."""
        milestones = self.replica.milestones
        milestones.prefilled(s, now)
        if self.settings.first_token == "prefill":
            milestones.first_token(s, now)
        milestones.left()
        s.status = Status.TRANSFERRING
        if self.streams:
            self._announced.pop(s.request).prompt_computed()
        else:
            self._send(s, None)

    def _send(self, s: SequenceState, computed: Transmission | None) -> Handover:
        handover = Handover(s, self.replica, self.settings, computed)
        engine = self.replica.engine
        engine.schedule(engine.now_ns, HANDOVER, self.replica.machine, self._assign, handover)
        return handover
