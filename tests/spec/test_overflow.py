"""Evicted blocks that the tier below cannot store yet, and loads without space on the tiers between: both wait.

The narrated example: a GPU of 6 blocks, a CPU of 9 and a disk of 100, write back, prompts A B C A of 5 blocks.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from kvcache_sim import _core
from kvcache_sim.spec.keys import Keys
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN
from support.agreement import agree_on
from support.forests import key_arrays_of
from support.scenarios import drawn
from support.spec_store import WholeStore

BLOCK = 512
#: First ids of A, B, C and A; the last prompt has one token more, so that all five blocks of A hit.
ABCA = [(1, 5 * BLOCK), (11, 5 * BLOCK), (21, 5 * BLOCK), (1, 5 * BLOCK + 1)]
TIERS = """
trace: {{path: {trace}}}
tiers: {{gpu: {{capacity: 6 blocks}}, cpu: {{capacity: {cpu} blocks}}, disk: {{capacity: {disk} blocks}}}}
"""


def written(path: Path, prompts: list[tuple[int, int]], gap_ms: int = 20_000) -> Path:
    rows = [
        {
            "timestamp": k * gap_ms,
            "input_length": tokens,
            "output_length": 1,
            "hash_ids": list(range(first, first + -(-tokens // BLOCK))),
        }
        for k, (first, tokens) in enumerate(prompts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def ran(tmp_path: Path, *sets: str, cpu: int = 9, disk: int = 100, prompts: list[tuple[int, int]] = ABCA):
    trace = written(tmp_path / "abca.jsonl", prompts)
    text = TIERS.format(trace=trace, cpu=cpu, disk=disk)
    return agree_on(*sets, text=text, directory=tmp_path)


def test_six_victims_move_on_while_the_load_holds_the_cpu(tmp_path: Path):
    run = ran(tmp_path)
    # A's load holds 5 of the 9 blocks of the CPU. Four victims fit now; to make space, B's four blocks move
    # on to the disk. The other two victims wait until two of the four have moved on.
    assert run.counters["dropped_blocks"] == 0
    assert (run.counters["evictions.gpu"], run.counters["evictions.cpu"]) == (15, 6)
    # cpu -> disk 4, gpu -> cpu 4, cpu -> disk 2, gpu -> cpu 2 in turn: the wait is for free blocks
    last = {name: values[-1] for name, values in run.requests.items()}
    assert last["cached_cpu_tokens"] == 5 * BLOCK
    assert last["fetch_room_ns"] > 0
    parts = ("client_ns", "queue_ns", "lookup_ns", "fetch_ns", "prefill_ns", "first_decode_ns")
    assert sum(last[part] for part in parts) == last["first_token_ns"] - last["arrival_ns"]


def test_under_drop_what_does_not_fit_is_lost(tmp_path: Path):
    assert ran(tmp_path, "cache.overflow=drop").counters["dropped_blocks"] == 6


def test_a_load_that_waits_holds_nothing_on_the_tiers_it_waits_for(tmp_path: Path):
    # Of A's 10 blocks the GPU has one and the CPU four, which leave no space to stage the others.
    prompts = [(1, 10 * BLOCK), (11, 10 * BLOCK), (1, 10 * BLOCK + 1)]
    run = ran(tmp_path, "tiers.gpu.capacity=11 blocks", cpu=4, prompts=prompts)
    last = {name: values[-1] for name, values in run.requests.items()}
    assert (last["cached_cpu_tokens"], last["cached_disk_tokens"]) == (4 * BLOCK, 5 * BLOCK)
    # B's blocks cannot leave: the loads that wait for the space they leave hold the whole CPU.
    assert run.counters["dropped_blocks"] == 10


#: Draws with a tier below the GPU, most of which wait for blocks there, drop them, or hand over through the CPU.
@pytest.mark.parametrize("seed", [1, 11, 83, 85, 86, 90, 94, 181, 203, 211, 251])
def test_every_request_ends_above_tiny_tiers(seed: int):
    draw = random.Random(seed)
    settings = drawn(seed, only_spec=True).settings
    settings |= {"cache.block_size": 512, "tiers.gpu.capacity": "40 blocks"}
    settings |= {"workload.requests": 25, "tiers.cpu.capacity": f"{draw.randint(1, 12)} blocks"}
    if "tiers.disk.capacity" in settings:
        settings["tiers.disk.capacity"] = f"{draw.choice([5, 40, 1000])} blocks"
    said = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
    run = agree_on(*(f"{key}={value}" for key, value in said.items()), text="")
    assert not isinstance(run, str), run
    assert len(run.requests["status"]) == 25


STEPS_FREE_BUFFERS = """
seed: 46
workload:
  kind: conversational
  requests: 40
  arrivals: {process: poisson, rate_per_s: 5}
  turns: {kind: uniform, min: 2, max: 5}
  think_time: {kind: uniform, min: 50ms, max: 1s}
  output_tokens: {kind: uniform, min: 1, max: 60}
  first_input_tokens: {kind: uniform, min: 16, max: 200}
  new_input_tokens: {kind: uniform, min: 16, max: 100}
cache: {block_size: 16}
tiers: {gpu: {capacity: 80 blocks}, cpu: {capacity: 6 blocks}, disk: {capacity: unbounded}}
fetch: {read_buffer_layers: 1}
channels: {x: {bandwidth: 1GB/s, edges: [cpu->gpu]}}
"""


def test_blocks_wait_for_no_load_whose_step_waits_for_them(tmp_path: Path):
    # A load ends with the step that frees its read buffers; the step waits for a block of a running request.
    assert len(agree_on(text=STEPS_FREE_BUFFERS, directory=tmp_path).requests["status"]) == 40


def stores(*sizes: int) -> list[Any]:
    """Return the core's store and the specification's, of these tiers above a disk of 100 blocks."""
    arrays = key_arrays_of(([[0], [1], [2, 3]], [NO_NEXT_TURN] * 3))
    plan = [*sizes, 100], [True, True, False]
    return [_core.Store(_core.Keys(*arrays), *plan), WholeStore(Keys(arrays), *plan)]


def computed(store: Any, request: int, blocks: int, at_ns: int = 1, spare: int = 0) -> None:
    lease = store.acquire(request, 0)
    for move in store.reserve(lease, blocks + spare, at_ns):
        store.take_orders()
        store.finish_move(move)
    store.commit(lease, blocks, (at_ns, at_ns))
    store.release(lease, at_ns)


@pytest.mark.parametrize("store", stores(8, 2), ids=["core", "spec"])
def test_a_block_that_waits_is_as_recent_as_when_it_was_evicted(store: Any):
    computed(store, 0, 2, 1)
    computed(store, 2, 4, 2)
    computed(store, 1, 2, 3, spare=2)  # now the CPU has the blocks of the first request
    store.lend(0, 2, 1)
    lease = store.acquire(2, 2)
    assert store.reserve(lease, 4, 4) is not None  # two blocks wait for the CPU
    store.commit(lease, 4, (5, 5))  # and are computed again
    _, copies = store.residency(2, 4)[-1]
    assert [(tier, accessed_ns) for tier, *_, accessed_ns in copies] == [(0, 4), (1, 2)]


@pytest.mark.parametrize("store", stores(4, 4), ids=["core", "spec"])
def test_two_loads_that_hold_the_cpu_for_each_other_both_end(store: Any):
    for request, blocks in ((0, 2), (1, 2), (2, 4)):
        computed(store, request, blocks)
    # Two requests hold the whole CPU, and each has two victims on the GPU that find no space there.
    lent = [store.lend(request, 2, 1) for request in (0, 1)]
    waits, loads = [], []
    for request in (0, 1):
        lease = store.acquire(request, 0)
        waits.append(store.reserve(lease, 2, 2))
        loads.append(store.load(lease, 2, waits[-1]))
    for hold in lent:
        store.finish_move(hold)
    [first], [second] = waits
    orders = [order[:4] for order in store.take_orders()]
    # The first victims are dropped, or neither load could ever end; the others wait for the first load.
    assert (first, 0, 1, 0) in orders
    assert store.eviction_counts(0)[1] == 2
    assert (second, 0, 1, 2) not in orders
    store.finish_move(first)
    store.finish_move(loads[0])
    written = [order[:4] for order in store.take_orders()]
    assert [order[1:] for order in written] == [(1, 2, 2), (0, 1, 2)]
    for move, *_ in written:
        store.finish_move(move)
    store.finish_move(loads[1])
    assert store.take_orders() == []
    assert store.eviction_counts(0)[1] == 2
    store.check()
