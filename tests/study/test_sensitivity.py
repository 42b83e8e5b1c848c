"""``kvsim explain --sensitivity``: moves of known size in closed form, and planted causes that it names."""

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.study.sensitivity.moves import ANSWERS, Move, Sensitivity
from kvcache_sim.extras.study.sensitivity.text import _moves_table, sentences
from kvcache_sim.model.adjusted import ScaledStepTime, WithSequenceTime
from kvcache_sim.model.channels import load_channel
from kvcache_sim.model.run_intervals import source_kind, step_interval
from kvcache_sim.model.stated_errors import Factors, stated_step_errors
from kvcache_sim.model.step_time import StepBatch, StepTime
from kvcache_sim.model.step_times import load_step_time, step_time_names
from kvcache_sim.report.intervals import assumptions, links
from kvcache_sim.serving.settings import MachineSettings, ReplicaSettings
from support.examples import examples
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


def test_a_run_bound_by_prompts_names_the_step_time_of_chunks(tmp_path, capsys):
    rows = [(n * 1000, 8192, 2, [16 * n + k for k in range(16)]) for n in range(30)]
    found, text = asked(tmp_path, capsys, rows, UNBOUNDED)
    assert found["decides"] == CHUNK
    assert f"Decisive assumption: {CHUNK}." in text


def test_a_run_bound_by_answers_names_the_step_time_of_decodes(tmp_path, capsys):
    """Four answers at a time; the others wait for slots."""
    rows = [(n * 10, 64, 500, [n]) for n in range(30)]
    scenario = f"{UNBOUNDED}replica: {{step_time: set.toml, max_num_seqs: 4}}\n"
    found, _ = asked(tmp_path, capsys, rows, scenario, weights=10.0, token=0.0001)
    assert found["decides"] == DECODE


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


def test_a_presets_submission_moves_within_its_measured_range(tmp_path, capsys):
    up = "{preset: pcie5-h100-batched-h2d, edges: [cpu->gpu]}"
    found, _ = asked(tmp_path, capsys, turns(), COPIED.format(up=up), token=0.0001)
    submission = named(found, "submission of pieces: cpu-to-gpu")
    assert submission["stated"] == "range of pcie5-h100-batched-h2d"
    moved = submission["slow"]["TTFT p50"] - submission["fast"]["TTFT p50"]
    assert moved == pytest.approx(12 * 32 * (952 - 577) / 1e6, abs=0.002)


def test_links_that_submit_pieces_alike_move_together(monkeypatch):
    """Within the range of their preset, the usual error without one; pieces that only take a time, up to twice."""
    rows = {
        "a": (10, 0),
        "b": (10, 3),
        "c": (20, 0),
        "d": (0, 3),
        "e": (0, 0),
        "": (10, 1),
        "f": (0, 7),
        "g": (30, 1),
    }
    channels = [
        SimpleNamespace(name=name, piece_submit_ns=submit, piece_overhead_ns=overhead)
        for name, (submit, overhead) in (*rows.items(), ("a", (10, 0)), ("d", (0, 3)))
    ]
    presets = {
        10: SimpleNamespace(name="wide", piece_submit_ns=10, piece_submit_range_ns=(5, 40)),
        20: SimpleNamespace(name="plain", piece_submit_ns=20, piece_submit_range_ns=None),
    }
    monkeypatch.setattr(assumptions, "channels_of", lambda _: channels)
    monkeypatch.setattr(assumptions, "section_of", lambda name, _: name)
    monkeypatch.setattr(assumptions, "figures_of", lambda channel: channel.piece_submit_ns)
    monkeypatch.setattr(assumptions, "preset_of", presets.get)
    scenario = SimpleNamespace(resolved={"channels": {}}, settings=None)
    usual = "as given it states no error: ±20 % assumed"
    found = [
        (
            one.name.removeprefix("submission of pieces: "),
            one.factors,
            one.stated.split(" (")[0],
            one.is_stated,
        )
        for one in assumptions.copy_assumptions(scenario, ())
    ]
    assert found == [
        ("d, f", (1, 2), "pieces submitted while others go", True),
        ("a, b", (0.5, 4), "range of wide", True),
        ("c", pytest.approx((1 / 1.2, 1.2)), usual, False),
        ("g", pytest.approx((1 / 1.2, 1.2)), usual, False),
    ]


@dataclass
class Chosen:
    """A machine's section, and the host that adds to it."""

    host: str = ""
    instant: bool = False
    step_time: str = "a"
    async_scheduling: str = "none"
    copy_submit: int = 0
    copy_gpu_share: float = 0.0
    launch_per_layer: int = 0
    step_overhead_per_sequence: int = 0


@dataclass
class Cluster:
    """Settings of a cluster, as far as assumptions of machines change them."""

    machines: tuple


class Base(StepTime):
    def table(self, max_tokens, max_sequences):
        raise NotImplementedError


def test_assumptions_of_machines_by_hand(monkeypatch):
    """Each is of the machines that have it, alike ones together, and changes only these, by its factor."""
    machines = [
        Chosen(host="h", copy_submit=40, copy_gpu_share=0.8, launch_per_layer=5, step_overhead_per_sequence=100),
        Chosen(step_time="b", copy_submit=40, async_scheduling="vllm", step_overhead_per_sequence=100),
        Chosen(host="h", instant=True, copy_submit=40, copy_gpu_share=0.8, launch_per_layer=5),
        Chosen(host="h", copy_gpu_share=0.8, step_overhead_per_sequence=100, step_time="none"),
    ]  # fmt: skip
    base = Base()
    settings = Cluster(
        tuple(
            MachineSettings((TierSettings("gpu", blocks, "lru"), TierSettings("cpu", 9, "lru")), base, ReplicaSettings(copy_submit_ns=40, copy_gpu_share=0.8))
            for blocks in (100, 100, None, 3)
        ),
    )  # fmt: skip
    sections = tuple(SimpleNamespace(replica=own) for own in machines)
    errors = {
        "a": SimpleNamespace(decode=Factors(0.5, 2.0), chunk=None, source="runs", mixed_kv=Factors(0.9, 1.1)),
        "b": SimpleNamespace(decode=None, chunk=None, source="runs", mixed_kv=Factors(1.0, 1.0)),
    }
    ranges = SimpleNamespace(copy_submit_range_ns=(20, 80), copy_submit_ns=40, step_overhead_per_sequence_ns=90, step_overhead_per_sequence_range_ns=(1, 2))  # fmt: skip
    for name, value in {
        "with_host": lambda replica: replica, "stated_step_errors": errors.get, "gives_tokens": lambda tree: False, "link_assumptions": lambda scenario: (),
        "_submissions": lambda scenario: (), "build_machines": lambda model, tree: sections,
        "capacity_uncertainty": lambda model, replica, blocks, given: 0.25 if blocks == 100 else None,
    }.items():  # fmt: skip
        monkeypatch.setattr(assumptions, name, value)
    monkeypatch.setattr("kvcache_sim.report.intervals.assumption.load_host", lambda host: ranges)
    scenario = SimpleNamespace(settings=settings, model=None, tree=None)
    found = {}
    for one in assumptions.assumptions(scenario):
        changed = one.apply(settings, 4.0).machines
        found[one.name] = (
            one.factors,
            one.is_stated,
            [n for n, own in enumerate(changed) if own != settings.machines[n]],
            changed,
        )

    def scaled(**parts):
        return ScaledStepTime(base, **parts)

    usual = pytest.approx((1 / 1.1, 1.1))
    steps = {
        "step time: decode steps of a": ((0.5, 2.0), True, [0], scaled(decode=4.0)),
        "step time: steps with a prefill chunk of a": (usual, False, [0], scaled(chunk=4.0)),
        "step time: KV read alongside a chunk of a": ((0.9, 1.1), True, [0], scaled(mixed_kv=4.0)),
        "step time: decode steps of b": (usual, False, [1], scaled(decode=4.0)),
        "step time: steps with a prefill chunk of b": (usual, False, [1], scaled(chunk=4.0)),
        "host time a sequence": (usual, False, [0, 3], WithSequenceTime(base, 300)),
        "launch of a step past its graphs": (usual, False, [0], scaled(launch=4.0)),
    }
    for name, (factors, stated, changed, step_time) in steps.items():
        assert found[name][:3] == (factors, stated, changed), name
        assert all(found[name][3][n].step_time == step_time for n in changed), name
    copies = pytest.approx((1 / 1.2, 1.2))
    others = {
        "KV capacity of the gpu of machines 0, …": (pytest.approx((0.8, 1.25)), True, [0, 1], (400, 40, 0.8)),
        "KV capacity of the gpu of machines 3, …": (usual, False, [3], (12, 40, 0.8)),
        "CPU time to submit copies of h": ((0.5, 2.0), True, [0], (100, 160, 0.8)),
        "CPU time to submit copies of other machines": (copies, False, [1], (100, 160, 0.8)),
        "GPU share of copies": (copies, False, [0, 3], (None, 40, 1.0)),
    }
    for name, (factors, stated, changed, figures) in others.items():
        assert found[name][:3] == (factors, stated, changed), name
        for n in changed:
            own = found[name][3][n]
            blocks = own.tiers[0].capacity_blocks if figures[0] else None
            assert (blocks, own.replica.copy_submit_ns, own.replica.copy_gpu_share) == figures, name
            assert own.tiers[1] == settings.machines[n].tiers[1]
    assert found.keys() == steps.keys() | others.keys()
    assert assumptions._with_capacity([3], settings, 0.1).machines[3].tiers[0].capacity_blocks == 1


def test_channels_of_sections_change_wherever_they_stand(monkeypatch):
    """One a machine is called NAME-0; the longest name that fits is a channel's section."""

    def channel(name, rate=100):
        return ChannelSettings(name, rate, latency_ns=10, piece_overhead_ns=30, piece_submit_ns=8)

    cluster = SimpleNamespace
    own = {name: channel(name) for name in ("up-0", "up-0-1", "ups", "down")}
    settings = cluster(
        channels=own,
        network=cluster(default=channel("net")),
        handover=cluster(network=cluster(default=channel("up-1", 200))),
    )
    monkeypatch.setattr(links, "replace", lambda was, **new: cluster(**{**vars(was), **new}))
    sections = ("up", "up-0", "down", "net")

    def changed(apply, *given):
        made = apply(*given, settings, 1.25)
        found = {**made.channels, "net": made.network.default, "up-1": made.handover.network.default}
        was = {**own, "net": settings.network.default, "up-1": settings.handover.network.default}
        assert {name: one.name for name, one in found.items()} == {name: name for name in was}
        return {
            name: (one.piece_submit_ns, one.piece_overhead_ns)
            for name, one in found.items()
            if one != was[name]
        }

    assert changed(assumptions._with_submission, ["up"], sections) == {"up-1": (10, 30)}
    assert changed(assumptions._with_submission, ["up-0", "net"], sections) == dict.fromkeys(
        ("up-0", "up-0-1", "net"), (10, 30)
    )
    assert changed(assumptions._with_submission_first, ["down"], sections) == {"down": (16, 22)}
    assert [links.section_of(name, sections) for name in ("ups", "up", "up-3", "up-0-1", "x")] == [
        "",
        "up",
        "up",
        "up-0",
        "",
    ]
    named = {
        one.name: (one.factors, one.is_stated)
        for one in links.link_assumptions(
            SimpleNamespace(settings=settings, resolved={"channels": dict.fromkeys(sections)})
        )
    }
    usual = (pytest.approx((1 / 1.2, 1.2)), False)
    assert named == {"link: up-0, down, net": usual, "link: up": usual}
    spec = load_channel("pcie5-h100-batched-h2d")
    settings.channels = {
        "down": replace(
            channel("down"),
            **dict(
                zip(
                    (
                        "bandwidth_bytes_per_s",
                        "latency_ns",
                        "piece_overhead_ns",
                        "piece_gap_ns",
                        "piece_submit_ns",
                    ),
                    links.figures_of(spec),
                    strict=True,
                )
            ),
        )
    }
    first, *_ = links.link_assumptions(
        SimpleNamespace(settings=settings, resolved={"channels": dict.fromkeys(sections)})
    )
    said = "on its own measurements" if spec.error_percent is not None else "states no error"
    assert (first.name, said in first.stated) == ("link: down", True)
    figures = links.figures_of(spec)
    assert links.preset_of(figures).name == spec.name
    assert all(
        links.preset_of((*figures[:n], own + 1, *figures[n + 1 :])) is None for n, own in enumerate(figures)
    )


def test_copies_that_cost_steps_move_within_their_hosts_range(tmp_path, capsys):
    up = "{bandwidth: 1000TB/s, latency: 0ns, piece_overhead: 0ns, edges: [cpu->gpu]}"
    replica = "replica: {step_time: set.toml, host: h100-copies-batched}\n"
    found, text = asked(tmp_path, capsys, turns(), COPIED.format(up=up) + replica, token=0.0001)
    submit, share = named(found, "CPU time to submit copies"), named(found, "GPU share of copies")
    assert (submit["low"], submit["high"]) == pytest.approx((516 / 739, 952 / 739))
    assert (share["low"], share["high"]) == pytest.approx((0.5, 0.049 / 0.03))
    moved = submit["slow"]["TTFT p50"] - submit["fast"]["TTFT p50"]
    assert moved > 0.9 * 12 * 32 * (952 - 516) / 1e6, "the load is submitted before its step"
    assert "between both directions and sizes of h100-copies-batched" in " ".join(text.split())


def test_a_run_close_to_its_capacity_names_the_capacity(tmp_path, capsys):
    """Fifteen prefixes of eight blocks take turns on a GPU of 121 blocks; with fewer, none is kept."""
    rows = [(n * 1000, 4096, 2, [100 * (n % 15) + k for k in range(8)]) for n in range(150)]
    found, text = asked(tmp_path, capsys, rows, "tiers: {gpu: {capacity: 121 blocks}}\n")
    assert found["decides"] == FREE_BLOCKS
    assert found["answers"]["hit rate"] > 0.75
    assert named(found, FREE_BLOCKS)["slow"]["hit rate"] < 0.1
    assert "blocks as given state no error: ±10 % assumed" in " ".join(text.split())


def test_a_capacity_computed_from_memory_states_its_own_error(tmp_path, capsys):
    rows = [(n * 1000, 600, 3, [2 * n, 2 * n + 1]) for n in range(5)]
    scenario = "tiers: {gpu: {capacity: auto}}\nreplica: {step_time: h100-llama-3-8b-tp1}\n"
    found, _ = asked(tmp_path, capsys, rows, scenario)
    capacity = named(found, FREE_BLOCKS)
    assert capacity["is_stated"]
    assert 1.01 < capacity["high"] < 1.05
    assert named(found, "step time: KV read alongside a chunk")["high"] == pytest.approx(1.1, rel=1e-3)


def test_an_invented_step_time_with_unbounded_capacity_has_no_assumptions(tmp_path, capsys):
    rows = [(n * 1000, 600, 3, [2 * n, 2 * n + 1]) for n in range(5)]
    scenario = "replica: {step_time: 'linear:base=1ms,token=1us'}\ntiers: {gpu: {capacity: unbounded}}\n"
    found, text = asked(tmp_path, capsys, rows, scenario)
    assert found["assumptions"] == []
    assert found["decides"] is None
    assert "This run assumes nothing with an error" in text


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
    assert ("was measured" in errors.source) != is_measured
    assert np.isfinite(errors.mixed_kv).all()


_value = st.sampled_from((None, 0.0, 0.25, 1.0, 1.0005, 4.0))
_words = [words for words, _, _ in ANSWERS]
_answers = st.tuples(*[_value] * len(_words)).map(lambda values: dict(zip(_words, values, strict=True)))


_none = dict.fromkeys(_words, 0.0)


@examples(100)
@example(_none, [(_none | {"hit rate": 0.001}, _none, True)], False)  # at the least change that counts
@given(_answers, st.lists(st.tuples(_answers, _answers, st.booleans()), max_size=3), st.booleans())
def test_changes_are_those_of_the_answers_alone(answers, drawn, together):
    """Points of the hit rate, per cent of all else, a dash for what has no figure; the largest change decides."""
    moves = tuple(
        Move(SimpleNamespace(name=f"a{k}", interval="1 … 2", stated="by hand", is_stated=stated), slow, fast)
        for k, (slow, fast, stated) in enumerate(drawn)
    )
    both = Move(None, answers, answers) if together and moves else None
    found = Sensitivity(answers, moves, None, both, {})

    def change(word, value):
        was = answers[word]
        if was is None or value is None or (word != "hit rate" and not was):
            return None
        return value - was if word == "hit rate" else value / was - 1

    def cell(word, move):
        ends = [change(word, values[word]) for values in (move.slow, move.fast)]
        if None in ends:
            return "–"
        return f"{100 * ends[0] + 0.0:+.1f} … {100 * ends[1] + 0.0:+.1f} {'points' if word == 'hit rate' else '%'}"

    def size(word, move):
        ends = [change(word, values[word]) for values in (move.slow, move.fast)]
        return max((abs(end) for end in ends if end is not None), default=0.0)

    table = _moves_table(found)
    assert table.headings == ("", *answers)
    assert [row[0] for row in table.rows] == [
        "as simulated",
        *(f"a{k}" for k in range(len(moves))),
        *["together (independent)"] * bool(both),
    ]
    for row, move in zip(table.rows[1:], [*moves, *([both] if both else [])], strict=True):
        assert list(row[1:]) == [cell(word, move).replace("-0.0", "+0.0") for word in answers]
    said = sentences(found)
    totals = [sum(size(word, move) for word in answers) for move in moves]
    if not moves:
        assert said[0].startswith("This run assumes nothing")
        return
    if max(totals) < 0.001:
        assert said == ["No assumption is decisive: none moves an answer by 0.1 % within its interval."]
        return
    expected = [f"Decisive assumption: a{totals.index(max(totals))}."]
    for word in answers:
        sizes = [size(word, move) for move in moves]
        first = sizes.index(max(sizes))
        if max(sizes) >= 0.001:
            expected.append(
                f"{word} depends most on a{first}: {cell(word, moves[first]).replace('-0.0', '+0.0')}."
            )
        elif answers[word] is not None:
            expected.append(f"{word} depends on none of them.")
    unstated = "; ".join(f"a{k}" for k, (*_, stated) in enumerate(drawn) if not stated)
    expected += [f"No error is stated for {unstated}: the intervals are assumed."] if unstated else []
    expected += (
        ["All at their worst at once is not a 90 % interval; together, as independent errors, is."]
        if both
        else []
    )
    assert said == expected
