"""What a copy of cache groups' blocks is, layer by layer: a block is a page of each layer of its group."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.channels.channel import Transmission


class LayerPages:
    """The layers of a model's cache groups, and the bytes of a page on all GPUs."""

    def __init__(self, groups: GroupSettings, layers: int) -> None:
        self.page_bytes = groups.layout.page_bytes * groups.gpus
        #: By group its layers.
        self.layers_of = [list(group.layers) for group in groups.layout.groups]
        self._layers = max(layers, 1 + max(max(of) for of in self.layers_of))

    def of(self, blocks: Sequence[int]) -> tuple[int, ...]:
        """Return the pages of each layer in so many blocks of each group."""
        pages = [0] * self._layers
        for count, layers in zip(blocks, self.layers_of, strict=True):
            for layer in layers:
                pages[layer] += count
        return tuple(pages)


def by_layer(sent: Transmission, latency_ns: int, pages: Sequence[int]) -> Transmission:
    """Return a transmission whose layers come one after another, each after its own pages.

    The channel is occupied as long as it was. A layer without pages is there with the one before it.
    """
    start = sent.start_ns + latency_ns
    total, occupied = sum(pages), sent.completion_ns - start
    arrivals = [start - (-occupied * come // total) for come in accumulate(pages)]
    return Transmission(sent.start_ns, arrivals[0], sent.completion_ns, sent.per_layer_ns, arrivals)
