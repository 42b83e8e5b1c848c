"""Steps with a chunk of at most 512 tokens: what they take a layer, and whether one deployment's time serves another."""

import csv
import gzip

import numpy as np
import pytest
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from support.docs_data import figures
from support.shared_files import ROOT, shared

#: Tensor, expert and data parallel degrees; one GPU alone charges a step's time to the one before it.
ALONE = ((2, 1, 1), (2, 2, 1), (4, 1, 1), (8, 8, 1))
RANKS = ((1, 2, 2), (1, 4, 4), (1, 8, 8), (2, 4, 2), (4, 8, 2))
#: What the mixture takes a layer without ranks.
MIXTURE_MS = 0.41


def read(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


def short(rows, source, layers):
    """Return (measured, simulated) ms a layer of each step with a chunk that has at most 512 tokens."""
    model, found = load_step_time(source), []
    for row in rows:
        new, decodes = int(float(row["prefill_tokens"])), int(float(row["decode_requests"]))
        if not new or new + decodes > 512 or int(row.get("artefact") or 0):
            continue
        prompts, past = max(int(row["prefill_requests"]), 1), int(float(row["prefill_past_kv_tokens"]))
        kv = int(float(row["decode_kv_tokens"]))
        chunks = tuple((new // prompts, past // prompts) for _ in range(prompts))
        own = model.step(StepBatch(chunks, decodes, kv, kv // decodes if decodes else 0)) / 1e6
        found.append((float(row["iter_ms"]) / layers, own / layers))
    return np.array(found)


def error(steps, least_ms=0.0):
    """Return the median error in % with a least time a layer."""
    return 100 * float(np.median(np.abs(np.maximum(steps[:, 1], least_ms) / steps[:, 0] - 1)))


@pytest.mark.parametrize("kind", [ALONE, RANKS])
def test_the_mixtures_short_chunks_take_what_its_other_topologies_show(kind):
    every = read(shared("calibration/iter_b300_moe.csv.gz"))
    found = {}
    for at in kind:
        own = [r for r in every if "Qwen" in r["model"] and (int(r["tp"]), int(r["ep"]), int(r["dp"])) == at]
        found[at] = short(own, f"roofline:qwen3.6-35b-a3b@b300:tp{at[0]}", 40)
    for at, steps in found.items():
        named = "".join(
            f"{key}{n}-" for key, n in zip(("tp", "ep", "dp"), at, strict=True) if n > 1 or key == "tp"
        )
        others = float(np.median([np.median(of[:, 0]) for each, of in found.items() if each != at]))
        stated = figures("launch-short-chunks", f"`{named[:-1]}`")
        assert [row[0] for row in stated[:2]] == [
            len(steps),
            pytest.approx(np.median(steps[:, 0]), abs=0.006),
        ]
        assert [row[0] for row in stated[2:]] == [
            pytest.approx(error(steps), abs=0.06),
            pytest.approx(error(steps, others), abs=0.06),
        ]


def test_other_deployments_do_not():
    dense = [row for row in read(shared("calibration/iter_b300_qwen3_32b.csv")) if row["tp"] == "8"]
    on_b300 = short(dense, "roofline:qwen3-32b@b300:tp8", 64)
    assert [error(on_b300), error(on_b300, MIXTURE_MS)] == pytest.approx([28.8, 154.9], abs=0.1)
    measured = ROOT / "benches/measured"
    sweeps = {
        model: [
            row for row in read(measured / f"h100-{model}-iterations.csv.gz") if row["segment"] == "sweep"
        ]
        for model in ("llama-3.1-8b", "qwen3-30b-a3b")
    }
    on_h100 = short(sweeps["llama-3.1-8b"], "roofline:llama-3.1-8b@h100", 32)
    assert [error(on_h100), error(on_h100, MIXTURE_MS)] == pytest.approx([13.1, 31.3], abs=0.1)
    mixture = short(sweeps["qwen3-30b-a3b"], "roofline:qwen3-30b-a3b@h100", 48)
    assert [error(mixture), error(mixture, MIXTURE_MS)] == pytest.approx([4.7, 4.7], abs=0.1)
