"""Whose fault a wait for KV was: each hop on its way has the time between two arrivals."""

from __future__ import annotations

from kvcache_sim.cache.channel import Transmission
from kvcache_sim.cache.transfer import Transfer

#: Every edge over which KV comes up, from the last hop of its way to the first.
HOPS = ("cpu->gpu", "remote->cpu", "disk->cpu")


def split_by_hop(transfer: Transfer, span: tuple[int, int], layer: int) -> dict[str, int]:
    """Return by edge, in ns, whose hop a wait ``span`` for layer ``layer`` (from 0) of a transfer was for.

    From the start of the wait until the layer had come over the lowest hop it is that hop's, from then until
    it had come over the next one that one's, and so on: the parts sum to the span. A hop that was done before
    the wait began has no part in it.
    """
    chain = [transfer]
    while chain[-1].below is not None:
        chain.append(chain[-1].below)
    start, end = span
    parts: dict[str, int] = {}
    for hop in reversed(chain[1:]):
        came = min(max(_arrival(hop.sent, layer), start), end)
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
