"""How a wait for KV is split among the hops that the KV comes over."""

from __future__ import annotations

from kvcache_sim.cache.transfer import Transfer
from kvcache_sim.channels.channel import Transmission


def split_by_hop(transfer: Transfer, span: tuple[int, int], layer: int) -> dict[str, int]:
    """Return by edge, in ns, how much of a wait ``span`` for layer ``layer`` (from 0) each hop caused.

    From the start of the wait until the lowest hop had brought what the next one needed, it is that hop's,
    from then on the next one's, and so on: the parts sum to the span. A hop that was done before the wait
    began has no part in it. A hop that feeds the next one layer by layer has to bring the layer itself, one
    that is stored first (``remote_disk: staged``) all layers: the next hop starts when it is complete.
    """
    chain = [(transfer, layer)]
    while (hop := chain[-1][0]).below is not None:
        feeds = hop.streams and hop.below.feeds(hop)
        chain.append((hop.below, chain[-1][1] if feeds else hop.mover.layers - 1))
    start, end = span
    parts: dict[str, int] = {}
    for hop, needed in reversed(chain[1:]):
        came = min(max(_arrival(hop.sent, needed), start), end)
        parts[hop.edge] = parts.get(hop.edge, 0) + came - start
        start = came
    parts[transfer.edge] = parts.get(transfer.edge, 0) + end - start
    return parts


def _arrival(sent: Transmission | None, layer: int) -> int:
    if sent is None:
        return 0
    if layer < len(sent.arrivals_ns):
        return sent.arrivals_ns[layer]
    return sent.first_layer_ns if layer == 0 else sent.completion_ns
