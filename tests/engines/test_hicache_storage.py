"""A storage below HiCache's host in timed runs: what waits comes from it, by SGLang's stop policies."""

import pytest
from hicache_scenarios import CHECKED, scenario
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.settings import StoragePrefetch
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from support.instant_runs import instant
from support.shared_files import ROOT
from support.small_traces import trace_of

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


def text_of(fetch: str, lookahead: str = "threshold: 16", host: int = 700) -> str:
    """A storage that gives a hundred pages a second."""
    text = scenario((320, host, 4000), "lru", "through", 16, fetch, lookahead)
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


def test_a_prefetch_runs_on_while_a_preempted_request_is_first():
    """Two answers outgrow the device: one goes back and is first until the other ends, seconds later.

    The prompt behind it could not be admitted before, so all of its 300 pages come, under any order.
    """
    lengths = {**dict.fromkeys("abcf", PAGES + 1), "d": 60, "e": 60}
    rows = [[f"{name}{k}" for k in range(lengths[name])] for name in "abcfdea"]
    prompts = [PAGES * 16 + 1] * 4 + [960, 960, PAGES * 16 + 1]
    times = [*(100 * 10**9 * k for k in range(5)), 400 * 10**9 + 1, 418 * 10**9]
    trace = trace_of(rows, 16, prompts, times, [1, 1, 1, 1, 2600, 2600, 1])
    steady = "replica: {step_time: 'linear:base=10ms', queue_order: shortest-first}\n"
    run = timed(text_of("policy: best-effort", host=1000) + steady, trace)
    order = run.requests["request"].argsort()
    assert run.requests["preemptions"][order].tolist() == [0, 0, 0, 0, 0, 1, 0]
    assert run.requests["cached_cpu_tokens"][order][6] == PAGES * 16


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


def test_without_a_storage_nothing_is_worth_a_prefetch():
    text = scenario((100, 100), "lru", "through", 512) + "prefetch: {threshold: 9}\n"
    with pytest.raises(UsageError, match=r"no disk lies below tiers\.cpu\.semantics hicache"):
        scenario_from_text(text, "s.yaml", ROOT, [])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("", StoragePrefetch("wait", 10**9, 25 * 10**7, 256, 0.5)),
        ("fetch.timeout=5ms fetch.policy=timeout", StoragePrefetch("timeout", 5 * 10**6)),
        ("fetch.timeout_per_ki_token=3ns fetch.policy=timeout", StoragePrefetch("timeout", 10**9, 3)),
        ("prefetch.threshold=7 prefetch.share=0.1", StoragePrefetch("wait", threshold_tokens=7, share=0.1)),
        ("tiers.disk=null fetch.policy=always prefetch.policy=none", None),
        ("tiers.cpu.semantics=lmcache cache.policy=lru fetch.policy=always prefetch.policy=none", None),
    ],
)
def test_a_prefetch_from_storage_has_sglangs_defaults(change, expected):
    text = scenario((99, 99, 99), "lru", "through", 16, "policy: wait")
    settings = scenario_from_text(text, "s.yaml", ROOT, change.split()).settings
    assert settings.cache.lower_prefetch == expected
