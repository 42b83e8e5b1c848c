"""A small cluster of prefill and decode machines, for tests."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
from kvcache_sim.base.tiers import TIERS
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.model.step_time import StepTimeTable
from kvcache_sim.serving.settings import ClusterSettings, HandoverSettings, MachineSettings, ReplicaSettings
from kvcache_sim.workload.trace import Trace

from support.small_traces import trace_of

BLOCK, LAYERS, BLOCK_BYTES = 16, 4, 16_000
MS = 1_000_000
TOKEN_NS, DECODE_NS = 10_000, 2 * MS


@cache
def step_times(max_tokens: int = 512, max_seqs: int = 8) -> StepTimeTable:
    """A step of n prefill tokens takes n · 10 µs, a step of decoding alone 2 ms."""
    base = np.arange(max_tokens + 1, dtype=np.int64) * TOKEN_NS
    decode = np.full(max_seqs + 1, DECODE_NS, np.int64)
    decode[0] = 0
    return StepTimeTable(base, decode, 0, 0, 0, 0, 0, 0, 0)


def channel(name: str = "handover", **figures) -> ChannelSettings:
    """A wire of 16 MB/s, so that a block takes 1 ms, with a latency of 0.1 ms."""
    return ChannelSettings(name, **({"bandwidth_bytes_per_s": 16_000_000, "latency_ns": 100_000} | figures))


def pools(
    roles: str,
    handover: HandoverSettings | None = None,
    tiers: tuple[int | None, ...] = (None,),
    step_time: StepTimeTable | None = None,
    **replica,
) -> ClusterSettings:
    """A cluster with a machine for each character: ``p`` prefills, ``d`` decodes, ``b`` does both."""
    names = {"p": "prefill", "d": "decode", "b": "both"}
    edges = [*pairwise(TIERS[: len(tiers)]), *((b, a) for a, b in pairwise(TIERS[: len(tiers)]))]
    local = {f"{a}->{b}-{m}": channel(f"{a}->{b}-{m}") for a, b in edges for m in range(len(roles))}
    machines = [
        MachineSettings(
            tiers=tuple(TierSettings(name, blocks) for name, blocks in zip(TIERS, tiers, strict=False)),
            step_time=step_time or step_times(),
            replica=ReplicaSettings(**({"max_num_batched_tokens": 512, "max_num_seqs": 8} | replica)),
            edge_channels={f"{a}->{b}": f"{a}->{b}-{m}" for a, b in edges},
            role=names[role],
        )
        for m, role in enumerate(roles)
    ]
    handover = handover or HandoverSettings()
    if handover.network == HandoverSettings().network:
        handover = replace(handover, network=NetworkSettings(default=channel()))
    return ClusterSettings(
        machines=tuple(machines),
        channels=local,
        cache=CacheSettings(
            block_size_tokens=BLOCK, kv_bytes_per_token=BLOCK_BYTES // BLOCK, num_layers=LAYERS
        ),
        handover=handover,
    )


def requests(*rows: tuple[float, int, int], shared: int = 0) -> Trace:
    """Requests of (arrival ms, input tokens, output tokens); their first ``shared`` ids are the same."""
    ids = [
        [block if block < shared else 1000 * (row + 1) + block for block in range(-(-tokens // BLOCK))]
        for row, (_, tokens, _) in enumerate(rows)
    ]
    arrivals, prompts, outputs = zip(*rows, strict=True)
    return trace_of(ids, BLOCK, prompts, [round(ms * MS) for ms in arrivals], outputs)
