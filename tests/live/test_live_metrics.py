"""The figures of `/metrics`, of clocks and of lags, by closed forms and by the rows of the run."""

import json
import re
from collections import defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

pytest.importorskip("prometheus_client")

from kvcache_sim.extras.live import clock
from kvcache_sim.extras.live.fleet import TokenLags
from kvcache_sim.extras.live.metrics import GapHistogram
from kvcache_sim.metrics.columns import STATUSES
from live_apps import LiveApp, live

S = 10**9
COMPLETIONS = "/v1/completions"


async def values(app: LiveApp) -> dict[str, float]:
    """Return each value, summed over machines, without vLLM's prefix; of histograms the sum and the count."""
    answer = await app.ask("/metrics", method="GET")
    found: dict[str, float] = defaultdict(float)
    for name, labels, value in re.findall(
        r"^vllm:(\w+)({[^}]*})? (\S+)$", b"".join(answer.pieces).decode(), re.MULTILINE
    ):
        label = re.search(r'(?:source|finished_reason)="(\w+)"', labels)
        found[f"{name}:{label[1]}" if label else name] += float(value)
    return found


def test_requests_that_take_turns_count_by_closed_forms(tmp_path):
    """Four at once on a machine that serves one at a time, a token each 10 ms: four, two, one and one token."""

    async def go(app: LiveApp) -> None:
        clients = [
            app.client(COMPLETIONS, {"prompt": [n] * 40, "max_tokens": tokens})
            for n, tokens in enumerate((4, 2, 1, 1))
        ]
        await app.passed(55)
        found = await values(app)
        gauges = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        assert [found[name] for name in gauges] == [1, 2, 0.003]
        await app.passed(1000)
        for client in clients:
            await client.task
        found = await values(app)
        ms = {
            "time_to_first_token_seconds": (10 + 50 + 70 + 80, 4),
            "e2e_request_latency_seconds": (40 + 60 + 70 + 80, 4),
            "request_queue_time_seconds": (0 + 40 + 60 + 70, 4),
            "request_inference_time_seconds": (40 + 20 + 10 + 10, 4),
            "request_prefill_time_seconds": (10 * 4, 4),
            "request_decode_time_seconds": (30 + 10, 4),
            "request_time_per_output_token_seconds": (10 + 10, 2),
            "inter_token_latency_seconds": (10 * 4, 4),
        }
        for name, (total, count) in ms.items():
            seen = found[f"{name}_sum"] * 1e3, found[f"{name}_count"]
            assert seen == (pytest.approx(total, abs=1e-4), count), name
        tokens = {
            "request_params_n": 4,
            "request_num_preemptions": 0,
            "request_prompt_tokens": 160,
            "request_generation_tokens": 8,
            "request_max_num_generation_tokens": 8,
            "request_params_max_tokens": 8,
            "request_prefill_kv_computed_tokens": 160,
        }
        assert {name: found[f"{name}_sum"] for name in tokens} == tokens

    live(tmp_path, go, "replica.max_num_seqs=1")


@pytest.mark.parametrize("machines", [1, 2])
def test_counters_are_the_sums_of_the_rows_of_the_run(tmp_path, machines):
    """Prompts that share their first blocks, on GPUs that hold few of them above a tier that holds all."""

    async def go(app: LiveApp) -> dict[str, float]:
        draw = np.random.default_rng(2)
        clients = []
        for n in range(60):
            prompt = [int(draw.integers(5))] * (16 * int(draw.integers(1, 12))) + [n] * 20
            body = {"prompt": prompt, "max_tokens": int(draw.integers(1, 40)), "stream": n % 7 == 3}
            clients.append(app.client(COMPLETIONS, body))
            await app.passed(30)
            if n % 7 == 3:
                clients[-1].left.set()
        await app.passed(10_000)
        found = await values(app)
        app.end()
        return found

    tiers = ("tiers.gpu.capacity=40 blocks", "tiers.cpu.capacity=1000 blocks")
    found = live(tmp_path, go, *tiers, f"cluster.machines={machines}")
    table = pq.read_table(tmp_path / "run" / "requests.parquet").to_pydict()
    rows = {name: np.array(own) for name, own in table.items() if isinstance(own[0], int)}
    aborted = rows["status"] == STATUSES.index("aborted")
    inputs, used = rows["input_tokens"].sum(), np.maximum(rows["cached_prefix_length_used"], 0).sum()
    here = rows["cached_gpu_tokens"].sum()
    arrivals = [json.loads(line) for line in (tmp_path / "run" / "arrivals.jsonl").open()]
    assert inputs == sum(row["input_length"] for row in arrivals)
    assert 0 < here < used
    assert 0 < aborted.sum() < 20
    totals = {
        "prefix_cache_queries": inputs,
        "prefix_cache_hits": here,
        "external_prefix_cache_queries": inputs - here,
        "external_prefix_cache_hits": used - here,
        "prompt_tokens": inputs,
        "prompt_tokens_cached": used,
        "num_preemptions": rows["preemptions"].sum(),
        "request_success_total:length": (~aborted).sum(),
        "request_success_total:abort": aborted.sum(),
        "prompt_tokens_by_source_total:local_compute": inputs - used,
        "prompt_tokens_by_source_total:local_cache_hit": here,
        "prompt_tokens_by_source_total:external_kv_transfer": used - here,
    }
    assert {name: found[name if "total:" in name else f"{name}_total"] for name in totals} == totals
    began = rows["first_token_ns"] >= 0
    ttft_s = (rows["first_token_ns"] - rows["arrival_ns"])[began].sum() / S
    assert found["time_to_first_token_seconds_sum"] == pytest.approx(ttft_s)
    assert found["time_to_first_token_seconds_count"] == began.sum()
    assert found["request_queue_time_seconds_sum"] == pytest.approx(rows["queue_ns"][began].sum() / S)
    assert found["request_num_preemptions_sum"] == rows["preemptions"].sum()


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 7).map(lambda n: n * S // 2), st.integers(1, 4))))
def test_gaps_are_counted_up_to_and_with_each_edge(gaps):
    own = GapHistogram("gaps", "", "m", 2, (0.5, 1, 2.5))
    for gap in gaps:
        own.add(*gap)
    [family] = own.collect()
    found = {(s.name, s.labels["engine"], s.labels.get("le")): s.value for s in family.samples}
    for machine in (0, 1):
        all_of = [gap / S for at, gap, times in gaps if at == machine for _ in range(times)]
        for edge in ("0.5", "1.0", "2.5", "+Inf"):
            upto = sum(gap <= float(edge) for gap in all_of)
            assert found["gaps_bucket", str(machine), edge] == upto
        assert found["gaps_sum", str(machine), None] == sum(all_of)


@pytest.mark.parametrize("speed", [0.5, 1.0, 4.0])
def test_simulated_time_passes_at_the_speed_asked(speed):
    at_ns = iter((0, *[6 * S] * 3))
    own = clock.WallClock(speed, lambda: next(at_ns))
    now = 6 * S * speed
    assert own.now_ns() == now
    assert own.seconds_until(now + 8 * S) == 8 / speed
    assert own.behind_ns(now - 8 * S) == 8 * S / speed
    assert own.date_s(8 * S) == own.started_s + 8 / speed


@examples(60)
@given(st.lists(st.tuples(st.integers(-5, 2_000_000_000), st.integers(1, 5)), max_size=30))
def test_a_percentile_of_lags_is_at_most_a_step_above_that_of_a_sorted_list(drawn):
    """A step is 50 µs; lags of a second and more are one step, and no percentile is above the longest."""
    lags, listed = TokenLags(), []
    for lag, tokens in drawn:
        lags.add(lag, tokens)
        listed += [max(lag, 0)] * tokens
    listed.sort()
    assert lags.tokens == len(listed)
    for part in (0.01, 0.5, 0.9, 1.0):
        own = listed[max(int(np.ceil(part * len(listed))) - 1, 0)] / 1e6 if listed else 0.0
        found = lags.percentile_ms(part)
        assert own <= found <= own + 0.05 or 1000 <= found <= own
        assert found <= max(listed, default=0) / 1e6
