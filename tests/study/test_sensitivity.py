"""``kvsim explain --sensitivity``: moves of known size in closed form, and planted causes that it names."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.study.sensitivity.moves import ANSWERS, Move, Sensitivity
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time, step_time_names
from kvcache_sim.report.intervals.assumptions import assumptions
from kvcache_sim.scenario.load import scenario_from_text
from support.examples import examples
from support.product.models import (
    ScaledStepTime,
    WithSequenceTime,
    load_channel,
    source_kind,
    stated_step_errors,
    step_interval,
)
from support.sensitivity_runs import asked


def named(found, name):
    return next(one for one in found["assumptions"] if one["name"] == name)


DECODE, CHUNK = "step time: decode steps", "step time: steps with a prefill chunk"
FREE_BLOCKS = "KV capacity of the gpu"
UNBOUNDED = "tiers: {gpu: {capacity: unbounded}}\n"


def test_one_prompt_at_a_time_moves_by_its_step_times_in_closed_form(tmp_path, capsys):
    """A prompt of 4,096 tokens takes 40.96 ms, its second token 5 ms and a little KV."""
    rows = [(n * 1000, 4096, 11, [8 * n + k for k in range(8)]) for n in range(20)]
    found, text = asked(tmp_path, capsys, rows, UNBOUNDED, weights=5.0)
    chunk, decode = named(found, CHUNK), named(found, DECODE)
    low, high = step_interval(source_kind(str(tmp_path / "set.toml"))).factors
    assert [(one["low"], one["high"]) for one in (chunk, decode)] == [(low, high)] * 2
    ttft = found["answers"]["TTFT p50"]
    assert chunk["slow"]["TTFT p50"] == pytest.approx(high * ttft, rel=1e-3)
    assert chunk["fast"]["TTFT p50"] == pytest.approx(low * ttft, rel=1e-3)
    tpot = found["answers"]["TPOT mean"]
    assert decode["slow"]["TPOT mean"] == pytest.approx(high * tpot, rel=1e-3)
    assert decode["slow"]["TTFT p50"] == ttft
    assert chunk["slow"]["TPOT mean"] == tpot
    at_once = found["all_at_once"]["slow"]
    assert at_once["TTFT p50"] == chunk["slow"]["TTFT p50"]
    assert at_once["TPOT mean"] == decode["slow"]["TPOT mean"]
    assert found["decides_each"] == {"TTFT p50": CHUNK, "TTFT p99": CHUNK, "TPOT mean": DECODE}
    assert [one["name"] for one in found["assumptions"]] == [DECODE, CHUNK]
    moved = f"{100 * (high - 1):+.1f} … {100 * (low - 1):+.1f} %"
    assert f"TTFT p50 depends most on {CHUNK}: {moved}." in text
    assert f"TPOT mean depends most on {DECODE}: {moved}." in text


def test_a_run_bound_by_a_link_names_the_link(tmp_path, capsys):
    """Two long prefixes take turns on a GPU that holds one; the other is loaded over a slow link."""
    rows = [(n * 4000, 8192, 2, [100 * (n % 2) + k for k in range(16)]) for n in range(20)]
    scenario = """tiers: {gpu: {capacity: 20 blocks}, cpu: {capacity: 1000 blocks}}
fetch: {layer_pipelining: false}
channels:
  cpu-to-gpu: {bandwidth: 1GB/s, edges: [cpu->gpu]}
  gpu-to-cpu: {bandwidth: 1GB/s, edges: [gpu->cpu]}
"""
    found, text = asked(tmp_path, capsys, rows, scenario, token=0.0001)
    link = next(one for one in found["assumptions"] if one["name"].startswith("link: "))
    assert found["decides"] == link["name"]
    assert not link["is_stated"]
    assert "figures of no preset states no error: ±20 % assumed" in " ".join(link["stated"].split())
    ttft = found["answers"]["TTFT p50"]
    assert link["slow"]["TTFT p50"] == pytest.approx(1.2 * ttft, rel=0.01)
    assert "No error is stated for" in text


COPIED = """tiers: {{gpu: {{capacity: 20 blocks}}, cpu: {{capacity: 1000 blocks}}}}
fetch: {{layer_pipelining: false}}
channels:
  cpu-to-gpu: {up}
  gpu-to-cpu: {{bandwidth: 1000GB/s, latency: 0ns, piece_overhead: 0ns, edges: [gpu->cpu]}}
"""


def turns(blocks=16):
    """Two prefixes take turns on a GPU that holds one; the other is loaded, all but its last block."""
    return [(n * 4000, 512 * blocks, 2, [100 * (n % 2) + k for k in range(blocks)]) for n in range(20)]


def test_the_submission_of_pieces_moves_a_lone_load_by_all_of_it(tmp_path, capsys):
    """Twelve blocks are loaded (three are still there), 384 pieces of 1 ms: with the bytes at the least,
    before them at the most."""
    up = "{bandwidth: 1000GB/s, latency: 0ns, piece_overhead: 1ms, edges: [cpu->gpu]}"
    found, _ = asked(tmp_path, capsys, turns(), COPIED.format(up=up), token=0.0001)
    submission = named(found, "submission of pieces: cpu-to-gpu")
    assert (submission["low"], submission["high"], submission["is_stated"]) == (1, 2, True)
    moved_ms = 12 * 512 * 131072 / 1e9
    loaded = [submission[end]["TTFT p50"] for end in ("fast", "slow")]
    assert loaded[0] == found["answers"]["TTFT p50"]
    assert loaded[1] - loaded[0] == pytest.approx(moved_ms, rel=1e-3)


def assumed(text):
    """Return a scenario's settings and its assumptions by name."""
    trace = "trace: {path: t.jsonl}\ncache: {block_size: 16}\n"
    scenario = scenario_from_text(trace + text, "s.yaml", Path.cwd())
    return scenario.settings, {one.name: one for one in assumptions(scenario)}


USUAL_STEP, USUAL_COPY = (1 / 1.1, 1.1), (1 / 1.2, 1.2)
LINKS = """replica: {step_time: 'linear:base=1ms,token=1us'}
tiers: {gpu: {capacity: unbounded}, cpu: {capacity: 90 blocks}, disk: {capacity: 900 blocks}}
channels:
  cpu-to-gpu: {bandwidth: 10GB/s, piece_submit: 8us, piece_overhead: 0ns, edges: [cpu->gpu]}
  gpu-to-cpu: {bandwidth: 10GB/s, piece_submit: 8us, piece_overhead: 0ns, edges: [gpu->cpu]}
  disk-to-cpu: {bandwidth: 2GB/s, piece_overhead: 40us, edges: [disk->cpu]}
  cpu-to-disk: {preset: pcie5-h100-batched-h2d, edges: [cpu->disk]}
"""


def test_links_of_equal_figures_are_one_assumption_and_change_wherever_they_stand():
    """On each of two machines; of pieces submitted alike their time, of others what is before the first byte."""
    settings, found = assumed(LINKS + "cluster: {machines: 2}\n")
    links = {name: one for name, one in found.items() if name.startswith(("link", "submission"))}
    usual = {
        "link: gpu-to-cpu, cpu-to-gpu",
        "link: disk-to-cpu",
        "submission of pieces: gpu-to-cpu, cpu-to-gpu",
    }
    for name in usual:
        assert links[name].factors == pytest.approx(USUAL_COPY), name
        assert not links[name].is_stated, name
    first = links["submission of pieces: disk-to-cpu"]
    assert (first.factors, first.is_stated) == ((1, 2), True)
    ranged = links["submission of pieces: cpu-to-disk"]
    spec = load_channel("pcie5-h100-batched-h2d")
    assert ranged.factors == pytest.approx([own / spec.piece_submit_ns for own in spec.piece_submit_range_ns])
    assert links.keys() - usual == {first.name, ranged.name, "link: cpu-to-disk"}

    def changed(name, factor):
        made = links[name].apply(settings, factor).channels
        assert made.keys() == settings.channels.keys()
        return {key: own for key, own in made.items() if own != settings.channels[key]}

    for name, factor, keys in (
        ("submission of pieces: gpu-to-cpu, cpu-to-gpu", 1.25, ("gpu-to-cpu", "cpu-to-gpu")),
        ("submission of pieces: disk-to-cpu", 1.25, ("disk-to-cpu",)),
        ("link: disk-to-cpu", 2.0, ("disk-to-cpu",)),
    ):
        moved = changed(name, factor)
        assert set(moved) == {key for key in settings.channels if key.startswith(keys)}
        assert len(moved) == 2 * len(keys)
        for key, own in moved.items():
            was = settings.channels[key]
            pieces = own.piece_submit_ns, own.piece_overhead_ns
            if name.startswith("link"):
                assert own.bandwidth_bytes_per_s == was.bandwidth_bytes_per_s / 2
                assert pieces == (was.piece_submit_ns, 2 * was.piece_overhead_ns)
            elif was.piece_submit_ns:
                assert pieces == (10_000, was.piece_overhead_ns)
            else:
                assert pieces == (10_000, 30_000)


MACHINES = """tiers: {gpu: {capacity: 100 blocks}, cpu: {capacity: 900 blocks}}
cluster: {machines: 4}
machines:
- replica: {step_time: h100-llama-3-8b-tp1, copy_submit: 40ns, copy_gpu_share: 0.8, launch_per_layer: 5ns,
            step_overhead_per_sequence: 100ns, async_scheduling: none}
- replica: {step_time: h100-llama-3-70b-tp4, copy_submit: 40ns, step_overhead_per_sequence: 100ns}
- replica: {step_time: 'linear:base=1ms,token=1us'}
- {replica: {step_time: 'linear:base=1ms,token=1us', copy_gpu_share: 0.8}, tiers: {gpu: {capacity: 3 blocks}}}
"""


def test_assumptions_of_machines_change_the_machines_that_have_them():
    """Alike ones together; each changes only these, by its factor."""
    settings, found = assumed(MACHINES)
    own, other = "h100-llama-3-8b-tp1", "h100-llama-3-70b-tp4"
    expected = {
        f"step time: decode steps of {own}": ([0], "decode"),
        f"step time: steps with a prefill chunk of {own}": ([0], "chunk"),
        f"step time: KV read alongside a chunk of {own}": ([0], "mixed_kv"),
        f"step time: decode steps of {other}": ([1], "decode"),
        f"step time: steps with a prefill chunk of {other}": ([1], "chunk"),
        f"step time: KV read alongside a chunk of {other}": ([1], "mixed_kv"),
        "launch of a step past its graphs": ([0], "launch"),
        "host time a sequence": ([0, 1], WithSequenceTime),
        "KV capacity of the gpu": ([0, 1, 2, 3], 0),
        "CPU time to submit copies": ([0, 1], "copy_submit_ns"),
        "GPU share of copies": ([0, 3], "copy_gpu_share"),
    }
    assert {name for name in found if not name.startswith(("link", "submission"))} == expected.keys()
    for name, (indices, what) in expected.items():
        machines = found[name].apply(settings, 1.2).machines
        assert [n for n, one in enumerate(machines) if one != settings.machines[n]] == indices, name
        for n in indices:
            was = settings.machines[n]
            if what == 0:
                blocks = round(1.2 * was.tiers[0].capacity_blocks)
                made = replace(was, tiers=(replace(was.tiers[0], capacity_blocks=blocks), *was.tiers[1:]))
            elif what == "copy_submit_ns":
                made = replace(was, replica=replace(was.replica, copy_submit_ns=48))
            elif what == "copy_gpu_share":
                made = replace(was, replica=replace(was.replica, copy_gpu_share=pytest.approx(0.96)))
            elif what is WithSequenceTime:
                made = replace(was, step_time=WithSequenceTime(was.step_time, 20))
            else:
                made = replace(was, step_time=ScaledStepTime(was.step_time, **{what: 1.2}))
            assert machines[n] == made, name
    shares = found["GPU share of copies"].apply(settings, 9.0).machines
    assert shares[0].replica.copy_gpu_share == 1
    tiny = found["KV capacity of the gpu"].apply(settings, 0.1).machines
    assert tiny[3].tiers[0].capacity_blocks == 1
    for name, factors in (
        ("launch of a step past its graphs", USUAL_STEP),
        ("host time a sequence", USUAL_STEP),
        ("KV capacity of the gpu", USUAL_STEP),
        ("CPU time to submit copies", USUAL_COPY),
        ("GPU share of copies", USUAL_COPY),
    ):
        assert (found[name].factors, found[name].is_stated) == (pytest.approx(factors), False), name
    assert found[f"step time: decode steps of {own}"].is_stated


def test_a_capacity_computed_from_memory_states_its_own_error(tmp_path, capsys):
    rows = [(n * 1000, 600, 3, [2 * n, 2 * n + 1]) for n in range(5)]
    scenario = "tiers: {gpu: {capacity: auto}}\nreplica: {step_time: h100-llama-3-8b-tp1}\n"
    found, _ = asked(tmp_path, capsys, rows, scenario)
    capacity = named(found, FREE_BLOCKS)
    assert capacity["is_stated"]
    assert 1.005 < capacity["high"] < 1.05
    assert named(found, "step time: KV read alongside a chunk")["high"] == pytest.approx(1.1, rel=1e-3)


def test_other_requests_than_those_that_ran_are_refused(tmp_path, capsys):
    asked(tmp_path, capsys, [(0, 600, 3, [0, 1])], UNBOUNDED)
    row = {"timestamp": 0, "input_length": 601, "output_length": 3, "hash_ids": [0, 1]}
    (tmp_path / "trace.jsonl").write_text(json.dumps(row) + "\n")
    assert kvsim(["explain", str(tmp_path / "run"), "--sensitivity"]) == 3
    assert "not the trace that ran" in capsys.readouterr().err


chunks = st.lists(st.tuples(st.integers(1, 400), st.integers(0, 4000)), max_size=3)


@examples(100)
@given(st.data(), st.sampled_from(step_time_names()), chunks, st.floats(0.5, 2), st.floats(0.5, 2))
def test_scaled_steps_are_steps_so_many_times_as_long(data, name, prefill, decode, chunk):
    n = data.draw(st.integers(0 if prefill else 1, 200))
    longest = data.draw(st.integers(1, 5000)) if n else 0
    kv = data.draw(st.integers(longest, longest * n)) if n else 0
    batch = StepBatch(tuple(prefill), n, kv, longest)
    base = load_step_time(name)
    factor = chunk if prefill else decode
    found = ScaledStepTime(base, decode, chunk).step(batch)
    if prefill and base.table(2000, 300).longest_fs.any() and decode != chunk:
        low, high = sorted((decode, chunk))  # the longest sequence's floor is scaled as that of decode steps
        assert low * base.step(batch) - n - 9 <= found <= high * base.step(batch) + n + 9
    else:
        assert found == pytest.approx(factor * base.step(batch), abs=n + 9, rel=1e-6)


def test_every_packaged_set_states_the_errors_of_whole_runs_of_its_kind():
    for name in step_time_names():
        errors = stated_step_errors(name)
        assert errors is not None
        factors = step_interval(source_kind(name)).factors
        assert errors.decode == errors.chunk
        assert errors.decode.high >= factors.high, name
        assert f"{step_interval(source_kind(name)).runs} whole runs" in errors.source
    far_off = stated_step_errors("b300-deepseek-v4-flash-tp1-ep4-dp4")
    assert far_off.decode.high > step_interval(source_kind("b300-qwen3.6-35b-a3b-tp2")).factors.high
    assert "9.77 % off on rows held out of its own grid" in far_off.source
    assert "no row held out" in stated_step_errors("b300-qwen3-32b-tp4").source
    assert "some with this set" in stated_step_errors("h100-llama-3-8b-tp1").source
    assert stated_step_errors("a100-llama-3-8b-tp1").mixed_kv == pytest.approx((1 / 2.2, 2.9 / 2.2), rel=1e-3)
    assert stated_step_errors("rtx4090-llama-3.1-8b-tp1").mixed_kv is None


@pytest.mark.parametrize(
    ("name", "is_measured"),
    [
        ("roofline:llama-3-8b@h100", True),
        ("roofline:mixtral-8x7b@h100:tp2", True),
        ("roofline:llama-3-8b@h20", False),
        ("roofline:llama-3-8b@mi300x", False),
    ],
)
def test_a_roofline_states_what_whole_runs_were_off_by(name, is_measured):
    errors = stated_step_errors(name)
    assert errors.decode == errors.chunk == step_interval(source_kind(name)).factors
    assert ("not measured on" in errors.source) != is_measured
    assert not is_measured or np.isfinite(errors.mixed_kv).all()


_value = st.sampled_from((None, 0.0, 0.25, 1.0, 1.0005, 4.0))
_words = [words for words, _, _ in ANSWERS]
_answers = st.tuples(*[_value] * len(_words)).map(lambda values: dict(zip(_words, values, strict=True)))
_none = dict.fromkeys(_words, 0.0)


@examples(100)
@example(_none, [(_none | {"hit rate": 0.001}, _none)])  # at the least change that counts
@given(_answers, st.lists(st.tuples(_answers, _answers), max_size=3))
def test_the_largest_change_of_the_answers_decides(answers, drawn):
    """Points of the hit rate, shares of all else; what has no figure does not move."""
    moves = tuple(Move(None, *ends) for ends in drawn)
    found = Sensitivity(answers, moves, None, None, {})

    def change(word, value):
        was = answers[word]
        if was is None or value is None or (word != "hit rate" and not was):
            return None
        return value - was if word == "hit rate" else value / was - 1

    sizes = []
    for move in moves:
        changes = {word: [change(word, ends[word]) for ends in (move.slow, move.fast)] for word in _words}
        for word in _words:
            assert [found.change(ends, word) for ends in (move.slow, move.fast)] == changes[word]
        sizes.append([max((abs(c) for c in own if c is not None), default=0.0) for own in changes.values()])
        assert [found.size(move, word) for word in _words] == sizes[-1]
    for n, word in enumerate(_words):
        most = max((own[n] for own in sizes), default=0.0)
        first = next((move for move, own in zip(moves, sizes, strict=True) if own[n] == most), None)
        assert found.decides(word) is (first if most >= 0.001 else None)
    totals = [sum(own) for own in sizes]
    most = max(totals, default=0.0)
    assert found.decisive() is (moves[totals.index(most)] if most >= 0.001 else None)
