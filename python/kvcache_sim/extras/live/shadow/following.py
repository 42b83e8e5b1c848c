"""The kept lookups of engines whose KV events are followed; the oldest are forgotten."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from kvcache_sim.workload.imports.kv_batch import KvBatch
from kvcache_sim.workload.imports.kv_lookups import PAUSE_NS, LookUp, LookUps

#: Share of the kept lookups that only fills the caches, once older lookups were forgotten.
_WARMING = 1 / 3


@dataclass(slots=True)
class Engine:
    """One engine: the lookups from its events, oldest first."""

    name: str
    state: LookUps
    look_ups: deque[LookUp] = field(default_factory=deque)
    #: Lookups after blocks that were stored before the start, and forgotten lookups.
    unknown: int = 0
    forgotten: int = 0

    @property
    def warming(self) -> int:
        """Number of kept lookups that only warm the caches and are not counted."""
        return int(len(self.look_ups) * _WARMING) if self.forgotten else 0


class Following:
    """Follows engines by name; keeps lookups of at most ``most_blocks`` blocks in all.

    Memory: about 30 bytes per kept block.
    """

    def __init__(self, most_blocks: int, pause_ns: int = PAUSE_NS) -> None:
        self.engines: dict[str, Engine] = {}
        #: Missed batches, unreadable messages, restarted engines.
        self.missed = self.unreadable = self.restarts = 0
        #: Events that are not used, by reason.
        self.left_out: Counter[str] = Counter()
        self._most_blocks, self._pause_ns = most_blocks, pause_ns

    def take(self, source: str, batch: KvBatch) -> None:
        """Process a batch of an engine; ValueError if block sizes differ."""
        name = f"{source} rank {batch.rank}" if batch.rank else source
        engine = self.engines.get(name)
        if engine is None:
            engine = self.engines[name] = Engine(name, self._empty())
        for look_up in engine.state.take(batch):
            if look_up.beginning_unknown:
                engine.unknown += 1
            else:
                engine.look_ups.append(look_up)

    def _empty(self) -> LookUps:
        return LookUps(lambda reason: self.left_out.update((reason,)), self._pause_ns)

    def restarted(self, source: str) -> None:
        """Forget the blocks of a source's engines: it counts its batches from 0 again."""
        self.restarts += 1
        for name, engine in self.engines.items():
            if name.split(" rank ")[0] == source:
                engine.state = self._empty()

    def forget(self) -> None:
        """Forget the oldest lookups of engines that keep more than their share."""
        most = self._most_blocks // max(len(self.engines), 1)
        for engine in self.engines.values():
            kept = sum(len(each.blocks) for each in engine.look_ups)
            while kept > most and len(engine.look_ups) > 1:
                kept -= len(engine.look_ups.popleft().blocks)
                engine.forgotten += 1
