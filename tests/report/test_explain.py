"""``kvsim explain``: which sentences a run earns, each from its border on, and what they are computed from."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.metrics.columns import MISS_COLUMNS, REQUEST_COLUMNS, TTFT_PARTS
from kvcache_sim.report.explain.break_even import break_even_lengths, compute_ns, load_of, loads_faster
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.sentences import explain
from kvcache_sim.scenario.load import scenario_from_text
from report.finished_rows import written
from report.report_traces import make_trace
from support.examples import examples
from support.product.machines import reported_by
from support.product.reports import miss_column
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
@given(st.integers(0, 900), st.sampled_from([*reported_by("timed")]))
def test_what_a_larger_cache_can_avoid_is_what_no_other_cause_took(missed, cause):
    """Of a thousand prompt tokens; the rest is requested for the first time."""
    columns = waiting() | {name: np.zeros(1, np.int64) for name in MISS_COLUMNS}
    columns |= {"input_tokens": np.array([1000]), miss_column(cause): np.array([missed])}
    columns["miss_never_seen_tokens"] = columns["miss_never_seen_tokens"] + 1000 - missed
    found = said(columns, trace=make_trace([(0, 1000, [1, 2])]))
    hopeless = ("never_seen", "diverged", "shorter", "partial_block", "window_moved_on", "no_checkpoint")
    assert ("at-upper-bound" in found) is (cause.name in hopeless or missed <= 20)
    if cause.name == "evicted" and missed >= 5:
        assert f"({missed / 10:.1f} % of all prefill)" in found["evicted"]
    assert "50.0 % of the upper bound of 50.0 %" in found["upper-bound"]
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


def test_the_cost_of_writes_to_a_tier_is_named():
    columns = waiting(4, fetch_room_ns=MS // 2, prefill_ns=MS // 4)
    reason = {"cpu": {"no_effect": "cpu served nothing: no block"}}
    assert "costs 500 us of the mean TTFT" in said(columns, DISK, tiers=reason)["cpu-unused"]


@examples(30)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 20))
def test_hits_below_the_gpu_are_judged_by_the_prefill_that_they_save(fetch, queue, stall):
    """Half of the prompts load 1,000 tokens, of 1 us each: 500 us saved of each TTFT of a ms; times in 25 us."""
    columns = waiting(4, fetch_cpu_ns=25_000 * fetch, queue_ns=0)
    columns["queue_ns"], columns["batch_stall_ns"] = np.full(4, 25_000 * queue), np.full(4, 25_000 * stall)
    columns |= {"cached_cpu_tokens": np.array([1000, 0] * 2), "input_tokens": np.full(4, 1010)}
    columns["num_tokens_actually_prefilled"] = np.full(4, 10)
    text = said(columns, f"{DISK}replica: {{step_time: 'linear:base=1ms,token=1us'}}\n")["net-of-loads"]
    assert "save about 500 us of prefill" in text
    net, rest = 20 - fetch - stall, 40 - queue
    if abs(abs(net) - rest / 10) > 1e-6:
        assert ("without them" in text) is (abs(net) > rest / 10)
    if "without them" in text:
        assert ("longer" in text) is (net > 0)


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
    load, layers = (
        160 * settings.cache.kv_bytes_per_token,
        settings.cache.num_layers,
    )  # as many ns over a GB/s
    assert load_of(settings, "cpu", 160) == pytest.approx((load / 10 / layers + 7, load / 10 + 7), abs=32)
    assert load_of(settings, "disk", 160) == pytest.approx((load / layers + 7 + 9, load + 7 + 9), abs=32)


@examples(60)
@given(st.integers(0, 1000))
def test_a_prompt_is_computed_in_chunks_of_the_steps_budget(tokens):
    assert compute_ns(loading("1GB/s"), tokens) == -(-tokens // 100) * MS + 1000 * tokens


@examples(60)
@given(
    st.sampled_from([1, 10, 13, 16, 50, 100, 160]),
    st.sampled_from(["1us", "100us", "9ms"]),
    st.integers(0, 400),
)
def test_the_lengths_that_load_faster_are_those_of_all_lengths_tried(rate, base, rest):
    settings = loading(f"{10 * rate}GB/s", base, 4096)
    faster = [n * 16 for n in range(1, 129) if loads_faster(settings, "cpu", n * 16, rest)]
    found = break_even_lengths(16, 2048, lambda tokens: loads_faster(settings, "cpu", tokens, rest))
    if not faster or found is None:
        assert found is None
        assert not {16 << n for n in range(8)} & set(faster)
    else:
        assert found == (faster[0], None if faster[-1] == 2048 else faster[-1])


@pytest.mark.parametrize(("tokens", "earlier"), [(16, True), (608, True), (624, False), (1600, False)])
def test_a_load_hides_behind_the_computing_of_the_rest(tokens, earlier):
    """A token loads in 1.31 us and computes in 1: 31 of 100 ns a token hide behind a rest of 200 us."""
    settings = loading("100GB/s", "0us", 4096)
    assert loads_faster(settings, "cpu", tokens, 200) is earlier
