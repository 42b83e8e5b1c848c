"""``remote_disk: staged`` in closed form: waits for KV on another machine's disk, and their attribution.

Machine 0 has blocks a and b on its disk alone; machine 1 wants them. A block is 4,000 bytes in 4 layers, so the
two blocks are 8,000 bytes and a layer of both 2,000. A layer of both takes, latency first:

| hop | latency | a layer | all four |
|---|---|---|---|
| disk->cpu | 500 ns | 200,000 ns | 800,000 ns |
| remote->cpu | 300 ns | 20,000 ns | 80,000 ns |
| cpu->gpu | 100 ns | 2,000 ns | 8,000 ns |
"""

import numpy as np
import pytest
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.model.step_time import StepTimeTable
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings
from kvcache_sim.simulation import simulate
from support.agreement import by_spec
from support.small_traces import trace_of

SECOND = 10**9
EDGES = {
    "gpu->cpu": (10**9, 100),
    "cpu->disk": (10**9, 500),
    "cpu->gpu": (10**9, 100),
    "disk->cpu": (10**7, 500),
}
#: Round robin: 0 and 2 go to machine 0, 1 and 3 to machine 1. Request 2 pushes a and b out of machine 0's cpu.
ROWS = [["a", "b", "x"], ["q", "r", "s"], ["c", "d", "y"], ["a", "b", "z"]]
COMPUTE_NS = 400


def wait_for_kv(engine="native", sharing="fifo", **movement):
    """Return the stalls of the request that reads a and b from the other machine's disk, by hop."""
    channels = {
        f"{edge} {k}": ChannelSettings(f"{edge} {k}", rate, latency, sharing=sharing)
        for edge, (rate, latency) in EDGES.items()
        for k in range(2)
    }
    table = np.array([0, *[COMPUTE_NS] * 8192], np.int64)
    tiers = (TierSettings("gpu", 3), TierSettings("cpu", 2), TierSettings("disk", 16))
    settings = ClusterSettings(
        machines=tuple(
            MachineSettings(
                tiers, StepTimeTable(table, table), edge_channels={edge: f"{edge} {k}" for edge in EDGES}
            )
            for k in range(2)
        ),
        channels=channels,
        cache=CacheSettings(block_size_tokens=4, kv_bytes_per_token=1_000, num_layers=4),
        movement=MovementSettings(
            write={"gpu": "through", "cpu": "through"}, lookup="cluster", remote_disk="staged", **movement
        ),
        network=NetworkSettings(default=ChannelSettings("net", 10**8, 300, sharing=sharing)),
    )
    trace = trace_of(ROWS, input_tokens=[9] * 4, arrival_ns=[k * SECOND for k in range(4)])
    run = simulate(settings, trace) if engine == "native" else by_spec(settings, trace, engine)
    last = {name: int(column[3]) for name, column in run.requests.items()}
    assert last["cached_remote_tokens"] == 8
    return {hop: last[f"stall_{hop}_ns"] for hop in ("disk_cpu", "remote_cpu", "cpu_gpu")}, last


@pytest.mark.parametrize("sharing", ["fifo", "fair"])
@pytest.mark.parametrize("engine", ["native", "spec", "spec-plain"])
def test_the_disk_pays_until_it_has_been_read_whole(engine, sharing):
    """The network starts when the copy on the owner's CPU is complete; then its layers are copied to the
    GPU."""
    stalls, last = wait_for_kv(engine, sharing)
    disk = 500 + 800_000
    # The first layer comes at disk + 300 + 20,000, then 100 + 2,000. The step that it starts computes four
    # layers of 100 ns each; it ends 100 ns after the last layer, which comes 3 × 20,000 ns after the first.
    stall = 3 * 20_000 + 100 - COMPUTE_NS
    up = 100 + 2_000  # of that too, the last layer's copy from the CPU to the GPU
    assert stalls == {"disk_cpu": disk, "remote_cpu": 300 + 20_000 + stall - up, "cpu_gpu": 2 * up}
    assert sum(stalls.values()) == last["fetch_ns"] == last["fetch_remote_ns"]
    assert last["first_token_ns"] - last["arrival_ns"] == sum(stalls.values()) + COMPUTE_NS


def test_without_pipelining_every_hop_pays_for_its_whole_move():
    stalls, _ = wait_for_kv(layer_pipelining=False)
    assert stalls == {"disk_cpu": 800_500, "remote_cpu": 80_300, "cpu_gpu": 8_100}
