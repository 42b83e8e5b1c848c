"""Steps that no CUDA graph holds take at least as long as their launch: in closed form and as measured."""

import csv
import gzip
import json
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.rows import read_iterations
from kvcache_sim.model.adjusted import CAPTURED_TOKENS, WithLaunchTime
from kvcache_sim.model.catalog import topology_suffix
from kvcache_sim.model.hosts import load_host
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from support.docs_data import figures
from support.flat_steps import FLAT, moments_ms, row, run, write_rows
from support.product.models import ScaledStepTime
from support.shared_files import ROOT, shared

SWEEPS = ROOT / "benches" / "measured"
#: Qwen3.6-35B-A3B on B300: tensor, expert and data parallel degrees; one GPU alone charges a step's time to
#: the one before it.
ALONE = ((2, 1, 1), (2, 2, 1), (4, 1, 1), (8, 8, 1))
RANKS = ((1, 2, 2), (1, 4, 4), (1, 8, 8), (2, 4, 2), (4, 8, 2))


@pytest.mark.parametrize("launch_ns", [0, 1, 20_000_000, 90_000_000])
def test_it_is_a_floor_under_long_steps_alone(launch_ns):
    base = load_step_time("roofline:llama-3-8b@h100")
    found = WithLaunchTime(base, launch_ns)
    table = found.table(4096, 700)
    for chunks, n in (
        ((), 0),
        ((), 512),
        ((), 513),
        (((512, 0),), 0),
        (((512, 9),), 1),
        (((300, 9), (3000, 0)), 40),
    ):
        batch = StepBatch(chunks, n, 700 * n, 900 * min(n, 1))
        own, tokens = base.step(batch), n + sum(new for new, _ in chunks)
        expected = max(own, launch_ns) if tokens > CAPTURED_TOKENS else own
        assert [found.step(batch), table.step(batch)] == [expected, expected], batch
    twice = ScaledStepTime(found).times("launch", 2.0)
    assert twice.step(StepBatch(((600, 0),))) == max(base.step(StepBatch(((600, 0),))), 2 * launch_ns)
    kernels = ScaledStepTime(base).times("chunk", 0.5).step(StepBatch(((600, 0),)))
    assert ScaledStepTime(found).times("chunk", 0.5).step(StepBatch(((600, 0),))) == max(kernels, launch_ns)


def test_a_long_prompt_waits_for_its_launch_and_a_short_one_does_not(tmp_path):
    """Steps of 10 ms; 32 layers of 0.75 ms make 24: a prompt of 1,024 takes 24, one of 512 takes 10."""
    (tmp_path / "flat.toml").write_text(FLAT)
    path = write_rows(tmp_path, [row(0, 1024, 3, 0), row(200, 512, 3, 100), row(400, 512, 3, 0)])
    settings = (f"replica.step_time={tmp_path / 'flat.toml'}", "replica.launch_per_layer=750us")
    whole = (*settings, "replica.max_num_batched_tokens=2048")
    assert moments_ms(run(path, *whole)) == ([24, 210, 410], [44, 230, 430])
    chunks = (*settings, "replica.max_num_batched_tokens=768")
    assert moments_ms(run(path, *chunks)) == ([34, 210, 410], [54, 230, 430])


def rows_of(path: Path, **only: str) -> list[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [row for row in csv.DictReader(file) if all(row[key] == own for key, own in only.items())]


def launches_ms(model: str, segment: str) -> list[float]:
    """Decode steps during which the host launched a chunk of 513 to 4,096 tokens, which took most of it."""
    found = []
    for one, after in pairwise(rows_of(SWEEPS / f"h100-{model}-iterations.csv.gz", segment=segment)):
        tokens = int(after["prefill_tokens"]) + int(after["decode_requests"])
        seen = float(one["seen_ms"])
        launched = not int(one["prefill_tokens"]) and int(after["prefill_tokens"]) and 512 < tokens <= 4096
        if launched and seen > 2 * float(one["iter_ms"]):
            found.append(seen)
    return found


@pytest.mark.parametrize(
    ("model", "layers", "host", "stream"),
    [
        ("llama-3.1-8b", 32, "h100-launch-dense", "talks"),
        ("qwen3-30b-a3b", 48, "h100-launch-mixture", "moe-talks"),
    ],
)
def test_a_preset_of_the_h100_is_what_half_of_its_rows_show(model, layers, host, stream):
    """Even rows of the sweep give the preset; odd ones and those of a stream are as the page says."""
    found = launches_ms(model, "sweep")
    even, odd = (median(found[half::2]) / layers for half in (0, 1))
    spec = load_host(host)
    low, high = (each / 1e6 for each in spec.launch_per_layer_range_ns)
    quarters = np.percentile(found, (25, 75)) / layers
    assert [low, high] == pytest.approx(quarters.tolist(), abs=0.006)
    assert spec.launch_per_layer_ns / 1e6 == pytest.approx(even, rel=0.02)
    streamed = median(launches_ms(model, stream)) / layers
    stated = figures("launch-hosts", f"`{host}`")
    assert stated[0] == [spec.launch_per_layer_ns / 1e6, low, high]
    assert stated[1] == [round(even, 2), round(odd, 2), round(streamed, 2)]


def long_rows(file: str, only: dict[str, str], most: int):
    rows = read_iterations(shared("calibration") / file, only)
    tokens = rows.prefill_tokens + rows.decode_sequences
    return rows.take((rows.prefill_tokens > 0) & (tokens > 512) & (tokens <= most))


def off(predicted, rows) -> float:
    return round(100 * float(np.median(np.abs(predicted / rows.iter_ms - 1))), 1)


@pytest.mark.parametrize("topology", [*ALONE, *RANKS])
def test_other_topologies_say_what_a_launch_takes_in_one(topology):
    """Median errors of a roofline on the topology's long steps: alone, with the others' launch, the preset's."""

    def of(one):
        names = dict(zip(("tp", "ep", "dp"), map(str, one), strict=True))
        return long_rows("iter_b300_moe.csv.gz", {"model": "Qwen3.6-35B-A3B", **names}, 2048)

    rows, kind = of(topology), ALONE if topology in ALONE else RANKS
    source = load_step_time(f"roofline:qwen3.6-35b-a3b@b300:tp{min(topology[0], 2)}")
    alone = off(predict_ms(source, rows), rows)
    others = median(float(np.median(of(one).iter_ms)) for one in kind if one != topology)
    left_out = off(predict_ms(WithLaunchTime(source, round(others * 1e6)), rows), rows)
    preset = 40 * load_host("b300-launch-mixture").launch_per_layer_ns
    with_preset = off(predict_ms(WithLaunchTime(source, preset), rows), rows)
    stated = figures("launch-topologies", f"`{topology_suffix(*topology)}`")
    per_layer = round(float(np.median(rows.iter_ms)) / 40, 2)
    assert stated == [[float(len(rows))], [per_layer], [alone], [left_out], [with_preset]]


def test_the_preset_of_dense_models_on_b300_is_that_of_its_fastest_degree():
    """Half of the rows of TP 8 give it, the other half is judged; TP 1 and 2 wait for kernels, not launches."""
    rows = long_rows("iter_b300_qwen3_32b.csv", {"tp": "8", "artefact": "0"}, 1024)
    even, odd = (float(np.median(rows.iter_ms[half::2])) / 64 for half in (0, 1))
    spec = load_host("b300-launch-dense")
    assert spec.launch_per_layer_ns / 1e6 == pytest.approx((even + odd) / 2, rel=0.01)
    assert figures("launch-hosts", "`b300-launch-dense`")[1] == [round(even, 2), round(odd, 2)]
    source = load_step_time("roofline:qwen3-32b@b300:tp8")
    found = [
        off(predict_ms(one, rows), rows)
        for one in (source, WithLaunchTime(source, 64 * spec.launch_per_layer_ns))
    ]
    assert json.dumps(found) == json.dumps(figures("launch-hosts", "`b300-launch-dense`")[2])


def short(rows, source, layers):
    """Return (measured, simulated) ms a layer of each step with a chunk that has at most 512 tokens."""
    model, found = load_step_time(source), []
    for step in rows:
        new, decodes = int(float(step["prefill_tokens"])), int(float(step["decode_requests"]))
        if not new or new + decodes > 512 or int(step.get("artefact") or 0):
            continue
        prompts, past = max(int(step["prefill_requests"]), 1), int(float(step["prefill_past_kv_tokens"]))
        kv = int(float(step["decode_kv_tokens"]))
        chunks = tuple((new // prompts, past // prompts) for _ in range(prompts))
        own = model.step(StepBatch(chunks, decodes, kv, kv // decodes if decodes else 0)) / 1e6
        found.append((float(step["iter_ms"]) / layers, own / layers))
    return np.array(found)


def error(steps, least_ms=0.0):
    """Return the median error in % with a least time a layer."""
    return 100 * float(np.median(np.abs(np.maximum(steps[:, 1], least_ms) / steps[:, 0] - 1)))


@pytest.mark.parametrize("kind", [ALONE, RANKS])
def test_the_mixtures_short_chunks_take_what_its_other_topologies_show(kind):
    every = rows_of(shared("calibration/iter_b300_moe.csv.gz"), model="Qwen3.6-35B-A3B")
    found = {}
    for at in kind:
        own = [row for row in every if tuple(int(row[key]) for key in ("tp", "ep", "dp")) == at]
        found[at] = short(own, f"roofline:qwen3.6-35b-a3b@b300:tp{at[0]}", 40)
    for at, steps in found.items():
        others = float(np.median([np.median(of[:, 0]) for each, of in found.items() if each != at]))
        stated = [row[0] for row in figures("launch-short-chunks", f"`{topology_suffix(*at)}`")]
        measured = [len(steps), np.median(steps[:, 0]), error(steps), error(steps, others)]
        assert stated == [
            pytest.approx(own, abs=off) for own, off in zip(measured, (0, 0.006, 0.06, 0.06), strict=True)
        ]
