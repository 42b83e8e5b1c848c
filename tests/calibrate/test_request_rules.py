"""Steps behind a log of requests, and the parts of a correction, by small independent models."""

from itertools import pairwise

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate import command, request_fit
from kvcache_sim.extras.calibrate.command import Correction, fit_correction
from kvcache_sim.extras.calibrate.request_steps import TimedRequests, measured_sums
from kvcache_sim.model.step_time import StepTimeTable
from support.timed_rows import rows_of


def spans(log: TimedRequests, a: float, b: float) -> list[tuple[float, float, float]]:
    """Stretches from a to b in which the same requests decode: their length, number, and mean KV."""
    first, last = log.sent_s + log.ttft_s, log.sent_s + log.e2e_s
    edges = sorted({a, b, *(t for t in (*first, *last) if a < t < b)})
    found = []
    for left, right in pairwise(edges):
        at = (left + right) / 2
        on = [k for k in range(len(log)) if first[k] <= at < last[k]]
        kv = sum(
            log.prompt_tokens[k] + (log.output_tokens[k] - 1) * (at - first[k]) / (last[k] - first[k])
            for k in on
        )
        found.append((right - left, len(on), kv))
    return found


def test_the_steps_behind_a_log_by_a_loop_over_its_requests():
    """Five prompts: two end together, one is computed while they decode, one waits for it, one comes alone."""
    log = TimedRequests(
        sent_s=np.array([0.0, 0.1, 2.0, 2.5, 9.0]),
        ttft_s=np.array([1.0, 0.9002, 1.0, 1.5, 0.5]),
        e2e_s=np.array([5.0, 4.0, 1.2, 3.5, 1.5]),
        prompt_tokens=np.array([100.0, 300.0, 500.0, 40.0, 64.0]),
        output_tokens=np.array([41.0, 31.0, 1.0, 21.0, 11.0]),
        cached_tokens=np.array([0.0, 100.0, 250.0, 40.0, 0.0]),
    )
    found = measured_sums(log, 128)
    first, last = log.sent_s + log.ttft_s, log.sent_s + log.e2e_s
    # prompts that end within half a millisecond: begin, end, chunks, new, past, number
    prompts = [
        (0.0, 1.0002, 3, 300, 100, 2),
        (2.0, 3.0, 2, 250, 250, 1),
        (3.0, 4.0, 1, 1, 40, 1),
        (9.0, 9.5, 1, 64, 0, 1),
    ]
    decodes = [0, 1, 3, 4]
    shares = [
        [
            min(max((min(last[k], end) - max(first[k], begin)) / (end - begin), 0), 1)
            for begin, end, *_ in prompts
        ]
        for k in decodes
    ]
    assert found.shares == pytest.approx(np.array(shares))
    chunks = np.array([one[2] for one in prompts])
    counts = [max(log.output_tokens[k] - 1 - chunks @ own, 0) for k, own in zip(decodes, shares, strict=True)]
    assert found.decode_counts.tolist() == pytest.approx(counts)
    assert found.prompt_of_chunk.tolist() == [0, 0, 0, 1, 1, 2, 3]
    # the third prompt met two decoding requests; the fourth waited; the last met none
    assert [found.first_prompts.tolist(), found.met.tolist()] == [[1, 3], [1, 0]]
    assert found.request.tolist() == [*decodes, 2, 4]
    assert found.measured_ms == pytest.approx(1e3 * np.array([4, 3.0998, 2, 1, 1, 0.5]), rel=1e-6)
    assert found.to_first.tolist() == [False] * 4 + [True] * 2

    steps = found.steps
    means = []
    for k in decodes:
        own = spans(log, first[k], last[k])
        means.append([sum(t * each[j] for t, *each in own) / (last[k] - first[k]) for j in (0, 1)])
    assert steps.decode_sequences[:4].tolist() == [round(n) for n, _ in means]
    assert steps.decode_kv_tokens[:4] == pytest.approx([kv for _, kv in means])
    assert steps.prefill_tokens.tolist() == [0] * 4 + [100] * 3 + [125] * 2 + [1, 64] + [0] * 2
    assert steps.prefill_requests.tolist() == [0] * 4 + [2] * 3 + [1] * 4 + [0] * 2
    assert steps.past_tokens.tolist() == [0] * 4 + [100, 200, 300, 250, 375, 40, 0] + [0] * 2
    before = 1e-9  # a chunk runs with those that decode right before its prompt ends
    for at, time in (
        (4, 1.0002),
        (7, 3.0),
        (9, 4.0),
        (10, 9.5),
        (11, 2.0 + 2 * before),
        (12, 9.0 + 2 * before),
    ):
        ((_, n, kv),) = spans(log, time - 2 * before, time - before)
        assert [steps.decode_sequences[at], steps.decode_kv_tokens[at]] == pytest.approx([n, kv], abs=1e-3)
    n = steps.decode_sequences
    assert steps.decode_max_kv_tokens == pytest.approx(steps.decode_kv_tokens / np.maximum(n, 1))
    values = np.arange(2.0 * len(n)).reshape(-1, 2) + 1
    of_prompt = [
        sum(values[4 + k] for k, own in enumerate(found.prompt_of_chunk) if own == p) for p in range(4)
    ]
    answers = [
        count * values[k] + sum(share * own for share, own in zip(shares[k], of_prompt, strict=True))
        for k, count in enumerate(counts)
    ]
    wanted = [*answers, of_prompt[1] + values[11] / 2, of_prompt[3]]
    assert found.sums(values) == pytest.approx(np.array(wanted))


@pytest.mark.parametrize("name", ["decode", "chunked"])
def test_the_parts_of_a_correction_by_hand(name, monkeypatch):
    base = np.arange(1, 16_386, dtype=np.int64) * 1_000 + 5_000_000
    table = StepTimeTable(
        base, base[:513] - 2_000_000, pair_half_fs=3 * 10**6, kv_decode_fs=4 * 10**8, kv_mixed_fs=5 * 10**8,
        sequence_fs=2 * 10**9, past_fs=3 * 10**7, scan_fs=1, idle_fs=10**5, alongside_fs=10**12, spread_decode_fs=10**8,
        spread_mixed_fs=6 * 10**8, least_kv_tokens=64, least_query_tokens=32, past_base_ns=2 * base,
        unsplit_sequences=9, unsplit_fs=2 * 10**9, unsplit_hidden_fs=6 * 10**9,
    )  # fmt: skip
    draw = np.random.default_rng(3)
    n, new = draw.integers(1, 400, 60), np.where(name == "chunked", draw.integers(1, 4000, 60), 0)
    past = np.where(draw.random(60) < 0.5, draw.integers(1, 20_000, 60), 0) * (new > 0)
    kv = n * draw.integers(8, 3000, 60)
    rows = rows_of(60, prefill_tokens=new, prefill_requests=new > 0, past_tokens=past, decode_sequences=n,
                   decode_kv_tokens=kv, decode_max_kv_tokens=kv / n)  # fmt: skip
    own = 2e-3 * n
    heads = np.maximum(kv, 64 * n)
    if name == "decode":
        parts = [3.002, (base[n] - 2_000_000) / 1e6 + own, heads * 4e-4, n * 3.002 / 100]
    else:
        pairs = (2 * np.maximum(new, 32) * past + new * new) * 3e-6 + 3e-5 * past + 1e-7 * n * new
        parts = [
            5.129,
            np.where(past > 0, 2, 1) * base[new + n] / 1e6 + 1 + own,
            heads * 5e-4,
            n * 5.129 / 100,
            pairs,
        ]
    judged = []
    monkeypatch.setattr(command, "_scales", lambda columns, ms: judged.append((columns, ms)) or (1.0, 2.0))
    assert fit_correction(table, rows) == Correction((1.0, 2.0), (1.0, 2.0))
    found, left = judged if name == "decode" else judged[::-1]
    assert found[0] == pytest.approx(np.stack([part + np.zeros(60) for part in parts], axis=1))
    assert [found[1].tolist(), len(left[1])] == [rows.iter_ms.tolist(), 0]
    for most in ({"prefill_tokens": [16_384], "decode_sequences": [1]}, {"decode_sequences": [513]}):
        with pytest.raises(UsageError, match="more than 16384 tokens or 512 sequences"):
            fit_correction(table, rows_of(1, **most))
    fit_correction(table, rows_of(1, prefill_tokens=[15_872], decode_sequences=[512]))

    twice = Correction((1.0, 2.0, 3.0, 4.0), (0.5, 2.0, 3.0, 4.0, 5.0)).apply(table)
    assert dict(twice.base_points)[1024.0] == pytest.approx(0.5 * 5.129 + 2 * 6.025, rel=1e-5)
    assert dict(twice.past_points)[1024.0] == pytest.approx(0.5 * 5.129 + 2 * 12.05, rel=1e-5)
    assert dict(twice.decode_points)[64.0] == pytest.approx(3.002 + 2 * 3.065, rel=1e-5)
    assert [twice.base_points[-1][0], twice.decode_points[-1][0]] == [16_384, 512]
    found = {
        "beside_ms": 2.0, "pairs_ms_per_million": 30.0, "past_ms_per_thousand": 0.15, "scan_ms_per_thousand": 5e-9,
        "kv_ms_per_thousand": 1.2, "kv_mixed_ms_per_thousand": 1.5, "sequence_ms": 4e-3 + 4 * 0.03002,
        "sequence_mixed_ms": 4e-3 + 4 * 0.05129, "idle_ms_per_million": 0.5, "spread": 0.25, "spread_mixed": 1.0,
        "unsplit_sequences": 9, "unsplit_ms_per_thousand": 6.0, "unsplit_hidden": 3.0, "least_kv_tokens": 64,
        "least_query_tokens": 32, "graph_tokens": 0,
    }  # fmt: skip
    assert {key: getattr(twice, key) for key in found} == pytest.approx(found, rel=1e-5)
    low = Correction((0.0, 1.0, 2.0, 1.0), (0.0, 1.0, 1.0, 0.0, 1.0)).apply(table)
    assert low.kv_mixed_ms_per_thousand == low.kv_ms_per_thousand == pytest.approx(0.8)
    assert low.sequence_mixed_ms == low.sequence_ms == pytest.approx(0.03202)
    falling = np.array([3, 1, 2, 5, 4, 4])
    assert command._never_falling(falling).tolist() == [2, 2, 2, 4, 4, 4]


def test_scales_are_found_and_a_wrong_row_moves_them_little():
    columns = np.random.default_rng(5).random((80, 5))
    true = np.array([0.5, 2.0, 0.25, 1.0, 3.0])
    assert command._scales(columns, columns @ true) == pytest.approx(true, abs=0.03)
    one_off = columns @ true
    one_off[7] *= 10
    assert command._scales(columns, one_off) == pytest.approx(true, abs=0.05)
    for width, own in ((4, (0, 1, 1, 0)), (5, (0, 1, 1, 0, 1))):
        assert command._scales(np.zeros((0, width)), np.zeros(0)) == own


def test_steps_of_a_fit_to_requests_are_those_of_the_log():
    values = np.arange(1.0, 102)
    assert request_fit._percentiles(values) == [11, 51, 91]
    assert request_fit._percentiles(values / 1000) == [1]
    assert [request_fit._mean(np.array(one)) for one in ([0.1], [2.0, 3.2])] == [1, 3]
