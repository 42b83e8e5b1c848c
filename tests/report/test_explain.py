"""``kvsim explain``: which sentences a run earns, each from its border on, and what they are computed from."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.metrics.columns import MISS_COLUMNS, REQUEST_COLUMNS, TTFT_PARTS, miss_column
from kvcache_sim.replay.miss_causes import reported_by
from kvcache_sim.report.explain.break_even import break_even_tokens, compute_ns, load_ns
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.sentences import explain
from kvcache_sim.scenario.load import scenario_from_text
from report.finished_rows import written
from report.report_traces import make_trace
from support.examples import examples
from support.request_rows import rows

MS = 1_000_000
CACHE = {
    "evictions": {"gpu": 1, "cpu": 0, "disk": 0},
    "token_hit_rate": 0.25,
    "upper_bound_token_hit_rate": 0.5,
}


def said(columns, scenario="tiers: {gpu: {capacity: 9 blocks}}\n", trace=None, **summary):
    """Return the sentences of a run by name."""
    run = written(columns, scenario=scenario, trace=trace, summary={"cache": CACHE} | summary)
    return {name: text for group in explain(Case(run)).values() for name, text in group.items()}


def waiting(count=1, **ns):
    """Return requests of which each waits a million ns, in the parts that are named, the rest in the client."""
    parts = {f"{part}_ns": 0 for part in TTFT_PARTS} | ns
    fetched = sum(time for name, time in ns.items() if name.startswith("fetch_"))
    client = MS - sum(parts[f"{part}_ns"] for part in TTFT_PARTS if part != "fetch") - fetched
    named = {"client_ns": client, "fetch_ns": fetched, **ns}
    return rows(count, first_token_ns=[MS] * count, **{name: [time] * count for name, time in named.items()})


#: Sentence → the time that earns it, and its least share of TTFT in thousandths.
PARTS = {
    "queueing": ("queue_ns", 500),
    "prefilling": ("prefill_ns", 500),
    "fetching": ("fetch_cpu_ns", 250),
    "waiting-for-room": ("fetch_room_ns", 50),
    "handovers": ("handover_ns", 50),
}


@examples(60)
@given(st.sampled_from(sorted(PARTS)), st.integers(-3, 3), st.sampled_from([1, 3]))
def test_a_part_of_ttft_is_named_from_its_least_share_on(name, more, count):
    column, least = PARTS[name]
    found = said(waiting(count, **{column: 1000 * (least + more)}))
    assert (name in found) is (more >= 0)
    assert f"{(least + more) / 10:.1f} %" in found.get(name, f"{(least + more) / 10:.1f} %")


@examples(60)
@given(st.sampled_from([*reported_by("timed")]), st.integers(-3, 3))
def test_a_cause_of_misses_is_named_from_half_a_per_cent_on(cause, more):
    """Of a thousand prompt tokens; what lies behind the last whole block from two per cent on."""
    tokens = (20 if cause.name == "shorter" else 5) + more
    trace = make_trace([(0, 1000, [1, 2])])
    columns = waiting() | {name: np.zeros(1, np.int64) for name in MISS_COLUMNS}
    columns |= {"input_tokens": np.array([1000]), miss_column(cause): np.array([tokens])}
    found = said(columns, trace=trace)
    assert (cause.name.replace("_", "-") in found) is (more >= 0)
    assert "no-trace" in said(columns)


@examples(40)
@given(st.integers(0, 1000))
def test_what_a_larger_cache_can_avoid_is_a_share_of_all_prefill(hit):
    """Of a thousand prompt tokens 500 could hit: of 1,000 - hit / 2 computed ones 500 - hit / 2 are avoidable."""
    found = said(waiting(), cache=CACHE | {"token_hit_rate": hit / 2000})
    avoidable = (1000 - hit) / (2000 - hit)
    assert ("at-upper-bound" in found) is (avoidable <= 0.02)
    assert ("avoidable" in found) is (avoidable > 0.02)
    said_of_it = found.get("avoidable", found.get("at-upper-bound"))
    assert f"{100 * avoidable:.1f} %" in said_of_it or avoidable < 0.0005
    assert f"{hit / 10:.1f} % of the upper bound of 50.0 %" in found["upper-bound"]
    assert "nothing-repeats" in said(
        waiting(), cache=CACHE | {"token_hit_rate": 0.0, "upper_bound_token_hit_rate": 0.0}
    )


def test_a_queue_that_grows_in_bursts_is_named_by_its_share_of_the_mean():
    """Ninety requests do not wait; ten that arrive within a second wait a thousand seconds each."""
    arrival = [second * 10**9 for second in range(90)] + [90 * 10**9 + n for n in range(10)]
    queue = [0] * 90 + [1000 * 10**9] * 10
    first = [at + wait + 10**9 for at, wait in zip(arrival, queue, strict=True)]
    columns = rows(100, arrival_ns=arrival, queue_ns=queue, first_token_ns=first, prefill_ns=[10**9] * 100)
    text = said(columns)["growing-queue"]
    assert re.search(
        r"99\.0 % of the mean TTFT \(median wait 0 ns\); it grows in 1\.0 % .* to 10 requests", text
    )
    columns["queue_ns"] //= 101
    assert "growing-queue" not in said(columns)


def test_a_load_that_the_slow_bound_would_not_hold_is_named():
    for slow, near in ((4.9, False), (5.1, True)):
        certainty = {"ttft_mean": {"model_low": 0.5, "model_high": slow}}
        assert ("near-saturation" in said(waiting(), certainty=certainty)) is near


def test_the_cost_of_writes_to_a_tier_is_named_with_its_hits():
    columns = waiting(4, fetch_room_ns=MS // 2, prefill_ns=MS // 4)
    reason = {"cpu": {"no_effect": "cpu served nothing: no block"}}
    assert "costs 500 us of the mean TTFT" in said(columns, DISK, tiers=reason)["cpu-unused"]
    columns |= {name: np.full(4, 100) for name in ("cached_cpu_tokens", "num_tokens_actually_prefilled")}
    columns |= {"input_tokens": np.full(4, 200)}
    used = said(columns, DISK)["cpu-used"]
    assert "saves about 250 us of prefill; loads cost 0 ns and waits for writes 500 us" in used


DISK = "tiers: {gpu: {capacity: 9 blocks}, cpu: {capacity: 9 blocks}, disk: {capacity: 9 blocks}}\n"


def test_a_prompt_as_long_as_the_context_is_too_long_and_any_other_needs_too_many_blocks():
    columns = rows(5, status=[1, 1, 0, 1, 1], input_tokens=[100, 99, 100, 101, 7], first_token_ns=[1] * 5)
    text = said(columns, "replica: {max_model_len: 100}\n")["rejections"]
    assert re.findall(r"\d+(?= requests? w)", text) == ["2", "2"]
    assert "rejections" not in said({name: column[2:3] for name, column in columns.items()})


@pytest.mark.parametrize("seed", range(4))
def test_reuse_is_that_of_the_prompts_before(seed):
    """Prompts are paths of a tree, of whole blocks or a token more, in which the last block may not be found whole."""
    draw, prompts = np.random.default_rng(seed), []
    for n in range(40):
        path = ("0", "1", "0")[n] if n < 3 else "".join(draw.choice(["0", "1"], draw.integers(1, 5)))
        ids = [int("1" + path[: k + 1], 2) for k in range(len(path))]
        prompts.append((n * 10**9, 512 * len(ids) + int(draw.integers(2)), ids))
    columns = {name: np.zeros(40, column.dtype) for name, column in REQUEST_COLUMNS.items()}
    columns["request"] = np.arange(40)
    columns["arrival_ns"], columns["input_tokens"] = (np.array([row[k] for row in prompts]) for k in (0, 1))
    lasts = draw.choice([109, 3000], 40)  # some prompts come before the one that they repeat has ended
    ends = columns["finish_ns"] = columns["arrival_ns"] + lasts * 10**6
    reuse = Case(written(columns, trace=make_trace(prompts))).reuse
    for n, (arrival_ns, tokens, ids) in enumerate(prompts):
        held = [max((m for m in range(n) if block in prompts[m][2]), default=-1) for block in ids]
        found = held.index(-1) if -1 in held else len(held)
        last = held[found - 1] if found else -1
        assert reuse.seen[n] == min(512 * found, (tokens - 1) // 512 * 512)
        assert reuse.last_user[n] == last
        assert reuse.idle_ns[n] == (max(arrival_ns - ends[last], 0) if found else -1)


def loading(bandwidth, base="1ms", budget=100):
    """Return the settings of three tiers whose block of 16 tokens and 2 MB crosses two links."""
    return scenario_from_text(
        f"{DISK}cache: {{block_size: 16}}\nreplica: {{step_time: 'linear:base={base},token=1us'"
        f", max_num_batched_tokens: {budget}}}\nchannels:\n"
        f"  up: {{bandwidth: {bandwidth}, latency: 7ns, edges: [cpu->gpu, gpu->cpu]}}\n"
        "  drive: {bandwidth: 1GB/s, latency: 9ns, edges: [disk->cpu, cpu->disk]}\n",
        "s.yaml",
        None,
    ).settings


def test_hops_of_a_load_overlap_and_the_slowest_counts_whole():
    settings = loading("10GB/s")
    load = 160 * settings.cache.kv_bytes_per_token  # as many ns over a GB/s
    assert load_ns(settings, "cpu", 160) == pytest.approx(load / 10 + 7, abs=32)
    assert load_ns(settings, "disk", 160) == pytest.approx(load + 7 + 9, abs=32)


@examples(60)
@given(st.integers(0, 1000))
def test_a_prompt_is_computed_in_chunks_of_the_steps_budget(tokens):
    assert compute_ns(loading("1GB/s"), tokens) == -(-tokens // 100) * MS + 1000 * tokens


@pytest.mark.parametrize("rate", [1, 2, 10, 12, 14, 16, 18, 100])
@pytest.mark.parametrize("base", ["1us", "100us"])
def test_the_shortest_length_that_loads_faster_is_that_of_all_lengths_tried(rate, base):
    settings = loading(f"{10 * rate}GB/s", base, 4096)
    faster = (
        n * 16 for n in range(1, 4097) if load_ns(settings, "cpu", n * 16) < compute_ns(settings, n * 16)
    )
    assert break_even_tokens(settings, "cpu") == next(faster, None)
