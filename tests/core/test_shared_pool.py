"""A shared pool node: its channel to the nanosecond, its capacity by a separate model, and invariants.

In the closed forms a block is 4,000 bytes in 4 layers, a prompt's two blocks 8,000 and a layer of both 2,000:
20,000 ns over the pool's channel after 300 ns, then 2,000 ns over ``cpu->gpu`` after 100 ns.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import InvariantError
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, PoolSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.model.step_time import StepTimeTable
from kvcache_sim.serving.membership.plan import MembershipPlan, PoolLoss
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings
from kvcache_sim.simulation import simulate
from support.agreement import by_spec
from support.clusters import READ, WRITE
from support.examples import examples
from support.small_traces import trace_of, tree_traces
from support.spec_pool import Pool
from support.tiered_scenario import run_with

SECOND = 10**9
COMPUTE_NS = 400
NIC = {READ: ChannelSettings(READ, 10**8, 300), WRITE: ChannelSettings(WRITE, 10**8, 300)}


def pooled(machines: int, pool: PoolSettings | None, cpu: int | None = None, nic=NIC) -> ClusterSettings:
    """Return machines that write through, and their pool."""
    own = {f"{edge} {m}": edge for m in range(machines) for edge in ("gpu->cpu", "cpu->gpu")}
    channels = {name: ChannelSettings(name, 10**9, 100) for name in own}
    steps = StepTimeTable(*[np.array([0, *[COMPUTE_NS] * 8192], np.int64)] * 2)
    pairs = {(machines, m): READ for m in range(machines)} | {(m, machines): WRITE for m in range(machines)}
    return ClusterSettings(
        machines=tuple(
            MachineSettings(
                (TierSettings("gpu", 64), TierSettings("cpu", cpu)),
                steps,
                edge_channels={own[name]: name for name in own if name.endswith(f" {m}")},
            )
            for m in range(machines)
        ),
        channels=channels | (nic if pool else {}),
        cache=CacheSettings(block_size_tokens=4, kv_bytes_per_token=1_000, num_layers=4),
        movement=MovementSettings(write={"gpu": "through", "cpu": "back"}),
        network=NetworkSettings(pairs if pool else {}),
        pool=pool,
    )


def one_after_another(rows: list[list], seconds: int = 1):
    """Return a trace of prompts that come long after each other, each a token longer than its blocks."""
    tokens = [4 * len(row) - 3 for row in rows]
    return trace_of(rows, input_tokens=tokens, arrival_ns=[k * seconds * SECOND for k in range(len(rows))])


@pytest.mark.parametrize("engine", ["native", "spec", "spec-plain"])
@pytest.mark.parametrize("readers", [1, 2, 5])
def test_readers_take_turns_on_the_pools_channel(readers, engine):
    """Machine 0 computes two blocks; the others want them at once: each waits for those before it."""
    rows = [["a", "b", f"x{k}"] for k in range(readers + 1)]
    trace = trace_of(rows, input_tokens=[9] * len(rows), arrival_ns=[0, *[SECOND] * readers])
    settings = pooled(readers + 1, PoolSettings(None))
    run = simulate(settings, trace) if engine == "native" else by_spec(settings, trace, engine)
    ttft = run.requests["first_token_ns"] - run.requests["arrival_ns"]
    # the last layer: over the network, up to the GPU, and its quarter of the step
    alone = 300 + 4 * 20_000 + 100 + 2_000 + COMPUTE_NS // 4
    assert ttft.tolist() == [COMPUTE_NS, *(alone + k * 4 * 20_000 for k in range(readers))]
    assert run.requests["cached_remote_tokens"].tolist() == [0, *[8] * readers]
    assert run.counters["pool.hit_tokens"] == 8 * readers
    assert run.counters["pool.read_blocks"] == 2 * readers
    assert run.counters["pool.put_blocks"] == run.counters["pool.kept_blocks"] == 2
    assert run.counters[f"channel.{READ}.bytes"] == 8_000 * readers
    assert run.counters[f"channel.{READ}.queued_ns"] == sum(k * 4 * 20_000 for k in range(readers))
    assert run.counters[f"channel.{WRITE}.bytes"] == 8_000


def test_what_a_machine_has_itself_is_not_read():
    """Machine 1 has the first block and reads the second: one block over the channel, one hit of the pool."""
    rows = [["a", "b", "x"], ["a", "y"], ["q", "r"], ["a", "b", "z"]]
    run = simulate(pooled(2, PoolSettings(None)), one_after_another(rows))
    assert run.requests["machine"].tolist() == [0, 1, 0, 1]
    assert run.requests["cached_gpu_tokens"].tolist() == [0, 0, 0, 4]
    assert run.requests["cached_remote_tokens"].tolist() == [0, 4, 0, 4]
    assert run.counters["pool.read_blocks"] == 2
    assert run.counters["pool.hit_tokens"] == 8


def test_the_pools_channels_carry_reads_and_puts_in_opposite_directions():
    run = run_with("cluster.pool={capacity: unbounded}")
    size = run.counters[f"channel.{WRITE}.bytes"] // run.counters["pool.put_blocks"]
    assert size == 64 * 131_072
    assert run.counters[f"channel.{READ}.bytes"] == run.counters["pool.read_blocks"] * size
    assert run.counters["pool.put_blocks"] != run.counters["pool.read_blocks"]


def test_puts_of_several_machines_take_turns_too():
    rows = [["a", "b", "x"], ["c", "d", "y"], ["e", "f", "z"]]
    trace = trace_of(rows, input_tokens=[9] * 3)
    counters = simulate(pooled(3, PoolSettings(None)), trace).counters
    assert counters["pool.put_blocks"] == 6
    assert counters[f"channel.{WRITE}.queued_ns"] == 80_000 + 160_000


def test_a_put_stops_at_a_block_that_is_still_being_written():
    """Eight blocks take 32 µs over a channel that both share, the ninth 8 µs: it comes before those that it follows.

    The pool takes none before the eight are there, so a prompt in between finds nothing.
    """
    settings = pooled(2, PoolSettings(None))
    own = replace(settings.machines[0], replica=ReplicaSettings(max_num_batched_tokens=32))
    fair = replace(settings.channels["gpu->cpu 0"], sharing="fair")
    settings = replace(
        settings, machines=(own, *settings.machines[1:]), channels=settings.channels | {"gpu->cpu 0": fair}
    )
    row = [f"a{k}" for k in range(9)]
    trace = trace_of([[*row, "x"], [*row, "y"]], input_tokens=[37, 37], arrival_ns=[0, 20_000])
    run = simulate(settings, trace)
    assert run.requests["machine"].tolist() == [0, 1]
    assert run.requests["cached_remote_tokens"].tolist() == [0, 0]


class PathPool:
    """Single blocks by the path that leads to them; the oldest leaf goes first, a chain its end first."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.used, self.clock = capacity, {}, 0
        self.evicted = self.refused = 0

    def _tick(self, paths) -> None:
        self.clock += 1
        self.used |= dict.fromkeys(paths, self.clock)

    def serve(self, prompt: tuple) -> int:
        """Return how many blocks of a prompt are there, then take the others in."""
        *_, own = prompt
        del own  # its last block is not full
        path = [prompt[: k + 1] for k in range(len(prompt) - 1)]
        hit = next((k for k, block in enumerate(path) if block not in self.used), len(path))
        if hit:
            self._tick(path[:hit])
        missing = path[hit:]
        keep = set(path[:hit])
        if len(missing) > self.capacity - len(keep):
            self.refused += len(missing)
            return hit
        while len(self.used) + len(missing) > self.capacity:
            leaves = [b for b in self.used if not any(o[:-1] == b for o in self.used) and b not in keep]
            del self.used[min(leaves, key=self.used.__getitem__)]
            self.evicted += 1
        if missing:
            self._tick(missing)
        return hit


@examples(12)
@given(st.data())
def test_a_pools_capacity_agrees_with_a_model_of_single_blocks(data):
    """Each request is alone and on a separate machine, so all its hits come from the pool."""
    capacity, rows, fresh = data.draw(st.integers(1, 14)), [], 0
    for _ in range(data.draw(st.integers(1, 14))):
        base = data.draw(st.sampled_from(rows))[:-1] if rows else []
        kept = base[: data.draw(st.integers(0, len(base)))]
        new = data.draw(st.integers(1, 5))
        rows.append([*kept, *range(fresh, fresh + new)])
        fresh += new
    model = PathPool(capacity)
    expected = [model.serve(tuple(row)) for row in rows]
    clusters = pooled(len(rows), PoolSettings(capacity))
    for engine in ("native", "spec", "spec-plain"):
        trace = one_after_another(rows)
        run = simulate(clusters, trace) if engine == "native" else by_spec(clusters, trace, engine)
        assert (run.requests["cached_remote_tokens"] // 4).tolist() == expected
        assert run.counters["pool.evicted_blocks"] == model.evicted
        assert run.counters["pool.refused_blocks"] == model.refused
        assert run.counters["pool.kept_blocks"] == len(model.used) <= capacity


@examples(8)
@given(tree_traces(most_requests=16), st.integers(1, 3))
def test_a_pool_of_nothing_is_no_pool_and_one_without_end_gives_as_much_as_one_cache(trace, machines):
    """Prompts alone: an endless pool behind an endless network finds what one endless cache has."""
    trace = replace(
        trace, arrival_ns=np.arange(len(trace)) * SECOND, output_tokens=np.ones(len(trace), np.int64)
    )
    run = partial(simulate, requests=trace)
    without = run(pooled(machines, None))
    nothing = run(pooled(machines, PoolSettings(0)))
    assert nothing.digest_results == without.digest_results
    fast = {name: ChannelSettings(name, 10**15) for name in (READ, WRITE)}
    endless = run(pooled(machines, PoolSettings(None), nic=fast))
    alone = run(pooled(1, None))
    cached = endless.requests["cached_prefix_length_used"]
    assert cached.tolist() == alone.requests["cached_prefix_length_used"].tolist()
    assert (cached >= without.requests["cached_prefix_length_used"]).all()


def test_a_lost_pool_is_empty_and_fills_again():
    rows = [["a", "b", f"x{k}"] for k in range(4)]
    plan = MembershipPlan(pool_losses=(PoolLoss(int(0.5 * SECOND)),))
    run = simulate(replace(pooled(4, PoolSettings(None)), membership=plan), one_after_another(rows))
    assert run.requests["cached_remote_tokens"].tolist() == [0, 0, 8, 8]
    assert run.counters["pool.lost_blocks"] == run.counters["membership.blocks_lost"] == 2
    assert run.counters["pool.put_blocks"] == 4


def test_the_end_of_a_run_recounts_the_pool(monkeypatch):
    """A put that is not counted, or counted twice, does not pass."""
    count = Pool.put

    def twice(self, machine, request, end):
        before = self.put_blocks
        count(self, machine, request, end)
        self.put_blocks += self.put_blocks - before

    monkeypatch.setattr(Pool, "put", twice)
    with pytest.raises(InvariantError, match="put there"):
        by_spec(pooled(2, PoolSettings(None)), one_after_another([["a", "b", "x"]]), "spec")
