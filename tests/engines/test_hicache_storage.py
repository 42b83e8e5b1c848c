"""A storage below HiCache's host in timed runs: what waits comes from it, by SGLang's stop policies."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hicache_scenarios import CHECKED, WRITES
from hicache_scenarios import scenario as without_storage
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.settings import StoragePrefetch
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest, StorageCapacity
from kvcache_sim.scenario.engine_tiers import storage_prefetch
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.toolbox.transforms import head
from support.examples import examples
from support.instant_runs import instant
from support.recorded import recorded
from support.shared_files import ROOT
from support.small_traces import trace_of, tree_traces
from support.traces import random_trace


def scenario(
    capacities: tuple[int, int, int | None], policy: str, write: str, block: int, fetch: str, lookahead: str
) -> str:
    tiers = [
        f"{name}: {{capacity: {'unbounded' if pages is None else f'{pages} blocks'}"
        for name, pages in zip(("gpu", "cpu", "disk"), capacities, strict=True)
    ]
    tiers[1] += ", semantics: hicache"
    return (
        f"cache: {{block_size: {block}, policy: {policy}}}\ntiers: {{{'}, '.join(tiers)}}}}}\n"
        f"write: {{policy: {write}}}\nfetch: {{{fetch}}}\nprefetch: {{policy: queued, {lookahead}}}\n"
    )


@given(
    tree_traces(4, 20),
    st.sampled_from([1, 2, 4]),
    st.integers(0, 40),
    st.integers(2, 120),
    st.one_of(st.none(), st.integers(1, 200)),
    st.sampled_from(["lru", "lfu", "fifo", "slru", "mru"]),
    st.sampled_from(list(WRITES)),
    st.sampled_from([1, 4, 8]),
)
@examples(15)
def test_an_instant_run_gives_the_replays_integers(trace, page, spare, host, disk, policy, write, threshold):
    longest = int((trace.input_tokens + trace.output_tokens - 1).max())
    device, host = -(-longest // page) + 2 + spare // page, -(-host // page) + 1
    # every copy ends before the next request, as in the replay
    trace = replace(trace, arrival_ns=np.arange(len(trace), dtype=np.int64) * 10**9)
    text = scenario((device, host, disk), policy, write, page, "policy: wait", f"threshold: {threshold}")
    done = instant(text, trace, CHECKED)
    request = ReplayRequest(
        trace,
        page,
        device,
        outputs="computed",
        write_policy=WRITES[write],
        host_blocks=host,
        storage=StorageCapacity(disk, threshold),
    )
    replayed = REPLAYERS["sglang-unified"](request, policy)
    evicted, moved = done.summary["cache"]["evictions"], done.run.counters
    token_bytes = 131_072
    assert done.run.requests["cached_gpu_tokens"].sum() == replayed["hit_tokens"]
    assert done.run.requests["cached_cpu_tokens"].sum() == replayed["loaded_tokens"]
    assert evicted["gpu"] * page == replayed["evicted_tokens"]
    assert evicted["cpu"] * page == replayed["host_evicted_tokens"]
    # the run ends with the last request, whose pages are still in transit to the storage
    figures = [replayed["storage_evicted_tokens"], replayed["storage_written_tokens"]]
    less = dict.fromkeys(("storage_evicted_tokens", "storage_written_tokens"), 0)
    if len(trace) > 1:
        less = REPLAYERS["sglang-unified"](replace(request, trace=head(trace, len(trace) - 1)), policy)
    assert less["storage_evicted_tokens"] <= evicted["disk"] * page <= figures[0]
    # a page evicted for others of its own write is not counted again
    sent = moved.get("edge.cpu->disk.bytes", 0) // token_bytes
    assert figures[0] or less["storage_written_tokens"] <= sent <= figures[1]
    assert moved.get("prefetched_blocks", 0) * page == replayed["prefetched_tokens"]
    assert moved.get("edge.disk->cpu.bytes", 0) == replayed["prefetched_tokens"] * token_bytes


#: A prompt of 300 pages comes back after others have pushed it to the storage: three reads of 128, 128 and 44
#: pages.
PAGES = 300


def read_back(fetch: str):
    """The run of it: a read of 128 pages takes 1.28 s."""
    rows = [[f"{name}{k}" for k in range(PAGES + 1)] for name in "abc"] + [
        [f"a{k}" for k in range(PAGES + 1)]
    ]
    prompts = [PAGES * 16 + 1] * 4
    times = [k * 100 * 10**9 for k in range(4)]
    trace = trace_of(rows, 16, prompts, times, [1] * 4)
    return instant(text_of(fetch), trace, CHECKED).run


def timed(text: str, trace):
    """The run, with time."""
    return execute(scenario_from_text(text, "s.yaml", ROOT, []), trace, CHECKED).run


def text_of(fetch: str, lookahead: str = "threshold: 16") -> str:
    """A storage that gives a hundred pages a second."""
    text = scenario((320, 700, 4000), "lru", "through", 16, fetch, lookahead)
    return text + f"channels: {{disk-to-cpu: {{bandwidth: {100 * 16 * 131_072}B/s, edges: [disk->cpu]}}}}\n"


@pytest.mark.parametrize(
    ("fetch", "pages", "waits_s"),
    [
        ("policy: wait", 300, 3.0),
        ("policy: best-effort", 0, 0.0),
        # 4,800 tokens asked for: the wait is 1 s and 0.25 s for each 1,024 tokens, 2.17 s, so one read has
        # come
        ("policy: timeout", 128, 2.171875),
        ("policy: timeout, timeout: 1500ms", 256, 2.671875),
        ("policy: timeout, timeout: 1s, timeout_per_ki_token: 0s", 0, 1.0),
        ("policy: timeout, timeout: 3s", 300, 3.0),
    ],
)
def test_a_request_waits_as_its_stop_policy_says(fetch, pages, waits_s):
    run = read_back(fetch)
    assert run.counters.get("prefetched_blocks", 0) == pages
    row = {name: run.requests[name][3] for name in ("cached_cpu_tokens", "queue_ns")}
    assert row["cached_cpu_tokens"] == pages * 16
    assert abs(row["queue_ns"] / 1e9 - waits_s) < 1e-3


def test_while_one_waits_another_goes_first():
    """The fourth prompt waits three seconds for its pages; one that comes a second after it does not."""
    rows = [[f"{name}{k}" for k in range(PAGES + 1)] for name in "abca"] + [["e"]]
    times = [100 * 10**9 * k for k in range(4)] + [301 * 10**9]
    trace = trace_of(rows, 16, [PAGES * 16 + 1] * 4 + [9], times, [1] * 5)
    run = timed(text_of("policy: wait"), trace)
    waited, first = run.requests["queue_ns"].tolist()[3:]
    assert abs(waited - 3 * 10**9) < 10**7
    assert first < 10**7
    assert run.requests["finish_ns"][4] < run.requests["finish_ns"][3]


def test_prefetches_in_flight_take_at_most_a_share_of_the_host():
    """Two prompts come back at once: 300 pages asked for are less than half of 700, and 600 are more."""
    rows = [[f"{name}{k}" for k in range(PAGES + 1)] for name in "abcdab"]
    times = [100 * 10**9 * k for k in range(5)] + [400 * 10**9 + 1]
    trace = trace_of(rows, 16, [PAGES * 16 + 1] * 6, times, [1] * 6)
    brought = []
    for share in (0.4, 0.5, 1.0):
        run = timed(text_of("policy: wait", f"threshold: 16, share: {share}"), trace)
        brought.append(run.counters.get("prefetched_blocks", 0))
    # the prompt on the device has its copies on the host too, which stay: a hundred pages fit
    assert brought == [300, 400, 400]


@examples(25)
@given(
    capacities=st.sampled_from([(60, 40, 30), (70, 120, 400), (110, 60, 90), (60, 20, 900)]),
    policy=st.sampled_from(["lru", "lfu", "fifo", "slru", "mru"]),
    write=st.sampled_from(list(WRITES)),
    fetch=st.sampled_from(["wait", "best-effort", "timeout, timeout: 5ms", "timeout, timeout: 200ms"]),
    threshold=st.sampled_from([16, 64, 256]),
    share=st.sampled_from([0.2, 1.0]),
    machines=st.sampled_from([1, 1, 2]),
    seed=st.integers(1, 99),
)
def test_drawn_runs_keep_every_invariant(capacities, policy, write, fetch, threshold, share, machines, seed):
    """Check that a run with every check and record equals a run with lookahead and without them, in whole
    pages."""
    text = scenario(
        capacities, policy, write, 16, f"policy: {fetch}", f"threshold: {threshold}, share: {share}"
    )
    text += f"cluster: {{machines: {machines}}}\n"
    settings, trace = scenario_from_text(text, "s.yaml", ROOT, []).settings, random_trace(seed, 40, 7)
    _, checked = recorded(settings, trace)
    run = simulate(settings, trace)
    assert [run.digest_events, run.digest_results, run.counters, run.end_ns] == checked["digests"]
    written, read = (run.counters.get(f"edge.{edge}.bytes", 0) for edge in ("cpu->disk", "disk->cpu"))
    assert written % (16 * 131_072) == read % (16 * 131_072) == 0
    assert read >= run.counters.get("prefetched_blocks", 0) * 16 * 131_072


def test_without_a_storage_nothing_is_worth_a_prefetch():
    text = without_storage(100, 100, "lru", "through", 512) + "prefetch: {threshold: 9}\n"
    with pytest.raises(UsageError, match=r"no disk lies below tiers\.cpu\.semantics hicache"):
        scenario_from_text(text, "s.yaml", ROOT, [])


@pytest.mark.parametrize(
    ("semantics", "disk", "own", "fetch", "prefetch", "expected"),
    [
        ("hicache", True, [], {}, {}, ("wait", 10**9, 25 * 10**7, 256, 0.5)),
        ("hicache", True, [{}], {"timeout": 0}, {"threshold": 7}, ("wait", 0, 25 * 10**7, 7, 0.5)),
        ("hicache", False, [{}, {"disk": 1}], {"timeout_per_ki_token": 3}, {}, ("wait", 10**9, 3, 256, 0.5)),
        ("hicache", True, [{"cpu": 1}], {"policy": "timeout", "timeout": 5}, {"share": 0.1}, ("timeout", 5, 25 * 10**7, 256, 0.1)),
        ("hicache", False, [{"disk": None}, {}], {}, {}, None),
        ("hicache", False, [], {}, {}, None),
        ("lmcache", True, [], {}, {}, None),
    ],
)  # fmt: skip
def test_a_prefetch_from_storage_has_sglangs_defaults(semantics, disk, own, fetch, prefetch, expected):
    lower = {"cpu": SimpleNamespace(semantics=semantics)} | ({"disk": object()} if disk else {})
    model = SimpleNamespace(
        tiers=SimpleNamespace(lower=lower),
        machines=[{"tiers": tiers} if tiers else {"tiers": None} for tiers in own],
        cache=SimpleNamespace(semantics="sglang", layer_groups="as-full"),
        fetch=SimpleNamespace(**{"policy": "wait", "timeout": None, "timeout_per_ki_token": None, **fetch}),
        prefetch=SimpleNamespace(**{"threshold": None, "share": 0.5, **prefetch}),
    )
    assert storage_prefetch(model) == (None if expected is None else StoragePrefetch(*expected))
