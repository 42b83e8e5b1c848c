"""The request that ``spec/__init__.py`` follows with numbers, on the core and on the specification."""

import kvcache_sim.spec
import pytest
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.small_traces import trace_of

MS = 10**6


def settings(pipelining: bool) -> ClusterSettings:
    machine = MachineSettings(
        tiers=(TierSettings("gpu", 5), TierSettings("cpu", 100)),
        step_time=load_step_time("linear:base=10ms,token=100us,decode=1ms,context=0ns"),
        replica=ReplicaSettings(client_offset_ns=2 * MS),
        edge_channels={"gpu->cpu": "down", "cpu->gpu": "up"},
    )
    cache = CacheSettings(block_size_tokens=16, num_layers=4, kv_bytes_per_token=62_500, lookup_ns=MS)
    channels = {name: ChannelSettings(name, 10**9, 500_000) for name in ("down", "up")}
    return ClusterSettings(
        (machine,), channels, cache, movement=MovementSettings(layer_pipelining=pipelining)
    )


#: In µs: parts of TTFT in turn, then the first token and the end after the arrival.
PARTS = ("client_ns", "lookup_ns", "fetch_room_ns", "fetch_cpu_ns", "prefill_ns", "batch_stall_ns")


@pytest.mark.parametrize("engine", ["native", "spec", "spec-plain"])
@pytest.mark.parametrize(
    ("pipelining", "parts", "first_token", "finish"),
    [
        (False, [2000, 1000, 3500, 3500, 11_600, 0], 21_600, 45_300),
        (True, [2000, 1000, 3500, 1250, 11_600, 0], 19_350, 43_050),
    ],
)
def test_the_request_takes_the_times_that_the_page_says(engine, pipelining, parts, first_token, finish):
    requests = ("abcd", "efgh", "abcx")
    trace = trace_of(requests, 16, arrival_ns=[0, 1000 * MS, 2000 * MS], output_tokens=[3] * 3)
    rows = simulate(settings(pipelining), trace, options=RunOptions(engine=engine)).requests
    row = {name: int(column[2]) for name, column in rows.items()}
    assert [row[part] / 1000 for part in PARTS] == parts
    assert row["first_token_ns"] - row["arrival_ns"] == first_token * 1000
    assert row["finish_ns"] - row["arrival_ns"] == finish * 1000
    assert (row["cached_cpu_tokens"], row["num_tokens_actually_prefilled"]) == (48, 16)
    text = kvcache_sim.spec.__doc__ or ""
    said = [f"{first_token / 1000:g}", "7.75"] if pipelining else ["6.5", "21.6", "23.1", "34.2", "45.3"]
    assert [number for number in said if number not in text] == []
