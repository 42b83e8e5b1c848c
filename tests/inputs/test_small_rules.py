"""Small rules of several packages on values made by hand: what verbs print and write, topologies, junctions."""

import json
import tomllib
from dataclasses import astuple, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache import lower_engines
from kvcache_sim.cache.operations.transfer import NativeTransfer, latest
from kvcache_sim.channels.channel import NOT_YET
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate import family
from kvcache_sim.extras.live.record import proxy, recording, texts, trace_file
from kvcache_sim.extras.live.shadow import caches as shadow_caches
from kvcache_sim.extras.live.shadow import capture as shadow_capture
from kvcache_sim.extras.live.shadow import feed as shadow_feed
from kvcache_sim.extras.live.shadow import watch as shadow_watch
from kvcache_sim.metrics import event_log, glossary
from kvcache_sim.metrics.cache_groups import JUNCTION_COLUMNS, junction_rows, junctions_of
from kvcache_sim.model.model_file import load_model, model_names, model_text, parse_model
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.policies.plugins import load
from kvcache_sim.policies.resolve import resolve_policy
from kvcache_sim.policies.table import POLICIES
from kvcache_sim.replay import policy_check
from kvcache_sim.replay.policy_check import CheckReport, Comparison
from kvcache_sim.scenario.load import load_served
from kvcache_sim.scenario.policy_kinds import POLICY_KINDS
from kvcache_sim.serving.router.uncomputed import Uncomputed
from kvcache_sim.workload.imports.kv_lookups import LookUp
from support.examples import examples


def test_policies_are_listed_each_with_its_paper(monkeypatch, capsys):
    monkeypatch.setattr(load, "entry_points", lambda group: [SimpleNamespace(name=n) for n in ("b", "a")])
    assert kvsim(["policies", "list"]) == 0
    first, _, others = capsys.readouterr().out.split("\n\n")
    width = max(len(row.name) for row in POLICIES)
    own = [f"{row.name:<{width}}  {row.description}{f'; {row.setting.example}' if row.setting else ''} ({row.paper})" for row in POLICIES]  # fmt: skip
    assert first.splitlines() == [*own, *(f"{name:<{width}}  plug-in of an installed package" for name in "ab")]  # fmt: skip
    assert kvsim(["policies", "list", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["setting"]) for row in body["policies"]] == [
        (row.name, row.setting and row.setting.form) for row in POLICIES
    ]
    assert body["entry_points"] == ["a", "b"]
    assert resolve_policy("a") == ("plugin", "a")
    with pytest.raises(UsageError, match="unknown policy"):
        resolve_policy("c")
    kinds = {".".join(map(str, key)): (*kind.names, *kind.offered()) for key, kind in POLICY_KINDS.items()}
    assert {key: (*row["names"], *row["entry_points"]) for key, row in body["other_kinds"].items()} == kinds
    longest = max(map(len, kinds))
    assert others.splitlines()[1:] == [
        f"{key:<{longest}}  {' | '.join(names)}" for key, names in kinds.items()
    ]


def test_a_checked_policy_is_printed(monkeypatch, capsys):
    rows = (Comparison(1234, 0.5, 0.25, 1.0), Comparison(8, 0.12345, 0.0, 0.5))
    plugin = SimpleNamespace(name="mine", source_sha256="abc")
    report = CheckReport(plugin, 3, 4567, 2, rows)
    monkeypatch.setattr(
        policy_check, "check_policy", lambda *asked: report if asked == ("f.py:A", 5, 7) else None
    )
    asked = ["policies", "check", "f.py:A", "--seed", "5", "--rounds", "7"]
    assert kvsim(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mine: rules kept in 3 traces, 4,567 requests"
    assert [line.split() for line in lines[2:]] == [["1,234", "50.00%", "25.00%", "100.00%"], ["8", "12.35%", "0.00%", "50.00%"]]  # fmt: skip
    assert kvsim([*asked, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body.pop("comparisons")[1] == {"capacity_blocks": 8, "policy": 0.12345, "lru": 0.0, "belady": 0.5}
    assert body == {"policy": "mine", "source_sha256": "abc", "rounds": 3, "n_requests": 4567, "refusals": 2}


@pytest.mark.parametrize("there", ["my_own.py", "test_my_own.py"])
def test_a_new_policy_replaces_no_file_unasked(tmp_path, capsys, there):
    asked = ["policies", "new", "my-own", "-o", str(tmp_path)]
    (tmp_path / there).write_text("kept")
    assert kvsim(asked) == 6
    assert there in capsys.readouterr().err
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(there, "kept")]
    assert kvsim([*asked, "--force"]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["my_own.py", "test_my_own.py"]
    assert (tmp_path / there).read_text() != "kept"
    assert kvsim([*asked[:-1], str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("keeps_text", [False, True])
@pytest.mark.parametrize("quiet", [False, True])
def test_a_recording_is_written_or_given_up(tmp_path, monkeypatch, capsys, breaks, keeps_text, quiet):
    log = []

    class Texts:
        def __init__(self, *asked):
            log.append(("texts", *asked))

        def close(self):
            log.append("closed")

    class TraceFile:
        skipped = 1234

        def __init__(self, path, tokenizer, block_size, salt, force):
            log.append(("trace", path, block_size, len(salt) > 0, force))

        def abandon(self):
            log.append("abandoned")

    def record(recorder, trace, say):
        say("listening")
        if breaks:
            raise UsageError("port in use")
        return 5678

    monkeypatch.setattr(proxy, "Upstream", lambda url: url)
    monkeypatch.setattr(texts, "Texts", Texts)
    monkeypatch.setattr(trace_file, "TraceFile", TraceFile)
    monkeypatch.setattr(
        recording, "Recording", lambda host, port, *rest: log.append((host, port, rest[0], bool(rest[1])))
    )
    monkeypatch.setattr(recording, "record", record)
    out, kept = tmp_path / "t.jsonl", tmp_path / "said.jsonl"
    asked = ["record", "--upstream", "http://h:1", "-o", str(out), "--block-size", "32", "--port", "0"]
    asked += ["--keep-text", str(kept)] * keeps_text + ["--force"] * keeps_text + ["-q"] * quiet
    assert kvsim(asked) == (2 if breaks else 0)
    printed = capsys.readouterr()
    assert log == [
        *([("texts", kept, True)] * keeps_text), ("127.0.0.1", 0, "http://h:1", keeps_text), ("trace", out, 32, True, keeps_text),
        *(["abandoned"] * breaks), *(["closed"] * (keeps_text and not breaks)),
    ]  # fmt: skip
    assert ("listening" in printed.err) is ("tokenizer  " in printed.err) is not quiet
    assert (f"recorded   5,678 requests in {out}, 1,234 left out" in printed.out) is not breaks
    assert ("--set trace.block_size=32" in printed.out) is not breaks


def test_a_word_of_the_glossary_is_found_in_terms_and_meanings(monkeypatch):
    monkeypatch.setattr(
        glossary, "WORDS", {"b Word": "meant", "A": "of a B word; " + "long " * 30, "c": "else"}
    )
    figures = [SimpleNamespace(name=name, unit=unit, meaning="m " * 50) for name, unit in (("x.first", "ms"), ("y", ""))]  # fmt: skip
    monkeypatch.setattr(glossary, "FIGURES", figures)
    monkeypatch.setattr(glossary, "ALSO", {"y": "called First"})

    def entries(page):
        return [part.splitlines() for part in page.split("\n\n")[1:]]

    assert [lines[0] for lines in entries(glossary.glossary_page())] == ["A", "b Word", "c"]
    assert [lines[0] for lines in entries(glossary.glossary_page("B WO"))] == ["A", "b Word"]
    assert entries(glossary.glossary_page("meant")) == [["b Word", "  meant"]]
    first, second = entries(glossary.metrics_page("FIRST"))
    assert (first[0], second[0], second[-1]) == ("x.first [ms]", "y", "  also: called First")
    assert not any("also" in line for line in first)
    assert all(line.startswith("  ") and len(line) <= 80 for line in first[1:])
    assert max(map(len, first)) > 76
    assert entries(glossary.metrics_page("x.")) == [first]


@pytest.mark.parametrize(
    ("options", "degrees"),
    [
        ("", (1, 1, 1)), ("tp4", (4, 1, 1)), ("tp4,ep4", (4, 4, 1)), ("ep8,tp2,dp4", (2, 8, 4)), ("dp2,ep2", (1, 2, 2)), ("tp16", (16, 1, 1)), ("tp4,dp4", (4, 1, 4)),
        ("tp4,ep2", None), ("tp4,dp2,ep4", None), ("tp4,", None), ("tp04", None), ("4", None), ("tp4,tp4", None), ("pp2", None), ("tp1000", None),
    ],
)  # fmt: skip
def test_a_topology_in_words(monkeypatch, options, degrees):
    """``ep`` is 1 or all GPUs, which are tp × dp; a measured topology is its set, others have up to 8 GPUs."""
    entries = {
        ("families", "f"): {"gpus": 8, "costs": {}, "model": "m", "gpu": "g", "source": "s", "held_out": 1, "held_out_ranks": 2},
        ("step_times", "f-tp1"): {"own": True},
        ("step_times", "f-tp4-ep4"): {"tensor_parallel": 4, "expert_parallel": 4, "own": True},
        ("step_times", "g-tp4"): {"tensor_parallel": 4},
    }  # fmt: skip
    monkeypatch.setattr(family, "read_entry", lambda folder, what, name: entries[folder, name])
    monkeypatch.setattr(
        family, "entry_names", lambda folder: [name for own, name in entries if own == folder]
    )
    monkeypatch.setattr(family, "_coefficients", lambda own: own)
    monkeypatch.setattr(family.TopologyFit, "model", lambda self, wanted: astuple(wanted))
    if degrees is None or degrees[0] * degrees[2] > 8:
        with pytest.raises(UsageError, match="not a topology" if degrees is None else "as many GPUs"):
            family.family_entry(f"F:{options}")
        return
    found = family.family_entry(f"F:{options}")
    if degrees in ((1, 1, 1), (4, 4, 1)):
        assert found["own"]
        return
    assert found == {
        "model": "m", "gpu": "g", "source": "s", "held_out": 2 if degrees[2] > 1 else 1,
        "tensor_parallel": degrees[0], "expert_parallel": degrees[1], "data_parallel": degrees[2], "coefficients": degrees,
    }  # fmt: skip


def test_coefficients_of_a_file_are_those_that_are_set():
    own = ParametricStepTime(base_points=((1.0, 2.0), (4.0, 3.0)), kv_ms_per_thousand=0.5, graph_tokens=0)
    common = {"exponent": 1.0, "base_points": [[1.0, 2.0], [4.0, 3.0]]}
    assert family._coefficients(own) == {**common, "kv_ms_per_thousand": 0.5, "graph_tokens": 0}


@examples(40)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 2), st.integers(0, 50)), max_size=12)
)
def test_prompts_wait_for_those_sent_before_them_and_not_computed(steps):
    """Of steps of 8 tokens that take 100 ns and a token 3: as many whole ones as fit, and one of the rest."""
    hooks = []
    step_time = SimpleNamespace(step=lambda batch: 100 + 3 * batch.prefill_chunks[0][0])
    replicas = [
        SimpleNamespace(settings=SimpleNamespace(max_num_batched_tokens=8), when_prefilled=hooks.append)
    ] * 3
    own, waiting = Uncomputed(replicas, [step_time] * 3), {}
    for is_sent, request, machine, tokens in steps:
        if is_sent and request not in waiting:
            own.sent(request, machine, tokens)
            waiting[request] = machine, tokens
        elif not is_sent:
            hooks[machine](request, None)
            waiting.pop(request, None)
        total = tokens + sum(n for at, n in waiting.values() if at == machine)
        assert own.wait_ns(machine, tokens) == 3 * total + 100 * -(-total // 8)


@examples(40)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), max_size=6, unique_by=lambda row: row[0]),
    st.dictionaries(st.tuples(st.integers(0, 8), st.integers(0, 1)), st.tuples(st.integers(1, 99), st.integers(0, 1)), max_size=8),
)  # fmt: skip
def test_a_junction_counts_on_the_machine_that_served_its_request(rows, junctions):
    requests = {name: [row[at] for row in rows] for at, name in enumerate(("request", "machine"))}
    columns = [(*key, *value) for key, value in junctions.items()]
    named = {name: [own[at] for own in columns] for at, name in enumerate(("request", "machine", "junction_tokens", "is_state"))}  # fmt: skip
    expected = [junctions.get(row, (0, 0)) for row in rows]
    found = [own.tolist() for own in junctions_of(requests, named)]
    assert found == [[tokens for tokens, _ in expected], [bool(is_state) for _, is_state in expected]]
    assert not any(map(np.any, junctions_of(requests, None)))
    stores = {machine: SimpleNamespace(junctions=lambda machine=machine: [(key[0], *own) for key, own in junctions.items() if key[1] == machine]) for machine in (1, 0)}  # fmt: skip
    written = junction_rows(stores)
    assert list(zip(*(own.tolist() for own in written.values()), strict=True)) == sorted(columns)
    assert {name: own.dtype for name, own in written.items()} == {name: column.dtype for name, column in JUNCTION_COLUMNS.items()}  # fmt: skip


@pytest.mark.parametrize(
    "changes", [{}, {"stated_params": (7_000, 5_000)}, {"sampling": "top-p", "tied_embeddings": True}]
)
@pytest.mark.parametrize("name", model_names())
def test_a_model_is_read_as_it_was_written(name, changes):
    model = replace(load_model(name), **changes)
    assert parse_model(tomllib.loads(model_text(model)), name, "here") == model


@pytest.mark.parametrize("weights", [{"atention": "bf16"}, {"experts": 8}, {"experts": "bf17"}])
def test_formats_of_weights_are_refused_by_name(weights):
    table = tomllib.loads(model_text(load_model("qwen3-8b"))) | {"weights": weights}
    with pytest.raises(
        UsageError, match=next(str(key if key == "atention" else own) for key, own in weights.items())
    ):
        parse_model(table, "mine", "here")


def test_a_server_has_its_scenario_without_its_requests(tmp_path):
    """Block ids of arrivals are of the cache's blocks, whatever the file's trace has."""
    arrivals, file = tmp_path / "arrivals.jsonl", tmp_path / "s.yaml"
    file.write_text(
        "name: own\ntrace: {path: none, block_size: 4}\nmeasure: {from: 1s}\ncache: {block_size: 32}\n"
    )
    generated = tmp_path / "g.yaml"
    generated.write_text("workload: {kind: conversational, block_size: 64}\n")
    for path, name, size, more in (
        (file, "own", 32, []),
        (None, None, 16, []),
        (generated, None, 64, []),
        (generated, None, 4, ["trace.block_size=4", "workload.block_size=null"]),
        (file, "x", 8, ["name=x", "cache.block_size=8"]),
    ):
        found = load_served(path, more, arrivals)
        trace = found.resolved["trace"]
        assert (trace["path"], trace["format"], trace["block_size"]) == (str(arrivals), "mooncake", size)
        assert name in (found.model.name, None)
        assert found.model.cache.block_size == size
        assert found.resolved.get("measure", {}).get("from") != "1s"


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("captures", [False, True])
def test_shadow_caches_follow_events_and_close_what_they_keep(
    tmp_path, monkeypatch, capsys, breaks, captures
):
    log, out = [], tmp_path / "kept.jsonl"

    class Capture:
        batches = 1234

        def __init__(self, path, salt, force):
            log.append((path, len(salt) > 0, force))

        def close(self):
            log.append("closed")

    class Feed(Capture):
        def __init__(self, *asked):
            log.append(asked)

    def watch(feed, watched, compared, every, stopped):
        log.append((every, stopped(), watched.following._most_blocks, watched.following._pause_ns))
        log.append([(own.name, own.times, own.more_blocks, own.policy) for own in compared.others])
        if breaks:
            raise UsageError("gone")

    monkeypatch.setattr(shadow_capture, "Capture", Capture)
    monkeypatch.setattr(shadow_feed, "Feed", Feed)
    monkeypatch.setattr(shadow_watch, "watch", watch)
    monkeypatch.setattr(shadow_watch, "remarks", lambda following: ["a remark"])
    asked = ["shadow", "--kv-events", "tcp://a:1", "--kv-events-replay", "tcp://a:2", "--cpu", "9", "--times", "1.5", "--pause", "0.5"]  # fmt: skip
    asked += ["--keep", "1000", *["--capture", str(out), "--force"] * captures]
    assert kvsim(asked) == (2 if breaks else 0)
    printed = capsys.readouterr().err
    others = [
        ("again", 1.0, 0, "lru"),
        ("1.5 x GPU", 1.5, 0, "lru"),
        ("+ CPU 9", 1.0, 9, "lru"),
        ("s3fifo", 1.0, 0, "s3fifo"),
        ("unbounded", 1.0, 0, "unbounded"),
    ]
    assert log == [
        *([(out, True, True)] * captures), (["tcp://a:1"], ["tcp://a:2"]), (5.0, False, 1000, 500_000_000), others,
        "closed", *(["closed"] * captures),
    ]  # fmt: skip
    assert ("a remark" in printed) is not breaks
    assert (f"1,234 batches in {out}" in printed) is (captures and not breaks)


# fmt: off
def test_lookups_are_replayed_as_prompts_and_their_answers_are_no_hits():
    """Two blocks of a prompt and three of its answer; the same prompt with one block; one block of another; 4 tokens each."""
    each = [LookUp(at_ns, blocks, 1, prompt, 2) for at_ns, blocks, prompt in ((5, ["a", "b", 7, 8, 9], 2), (6, ["a", "b", 7], 2), (9, ["x"], 1))]
    found = shadow_caches._prompts(each, 4)
    trace = found.trace
    assert [trace.arrival_ns.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist()] == [[5, 6, 9], [9, 9, 5], [12, 4, 1]]
    assert [trace.id_offsets.tolist(), trace.block_ids.tolist()] == [[0, 5, 8, 9], [0, 1, 2, 3, 4, 0, 1, 2, 5]]
    assert [found.limits.tolist(), found.blocks.tolist(), found.private_blocks.tolist()] == [[2, 2, 1], [5, 3, 1], [0, 0, 0]]
    assert {*trace.session.tolist(), *trace.think_ns.tolist()} == {-1}
    assert [found.block_size_tokens, found.blocks_per_id, trace.block_size, trace.turn.any(), trace.is_conversational_turn.any()] == [4, 1, 4, False, False]
    engine = SimpleNamespace(look_ups=each, warming=1, state=SimpleNamespace(block_size=4))
    others = [shadow_caches.OtherCache("one", times=0.5), shadow_caches.OtherCache("all", more_blocks=9, policy="unbounded")]
    share = shadow_caches.Share
    assert shadow_caches.other_shares(engine, 1, others) == [share(1, 3), share(2, 3)]  # the root, of one block; the prompt
    assert [shadow_caches.engine_share(engine), shadow_caches.engine_share(engine, below=True)] == [share(2, 3), share(4, 3)]
    assert [share(1, 2) + share(3, 4), share(1, 4).rate, share().rate] == [share(4, 6), 0.25, None]
    assert [own.blocks(5) for own in others] == [2, 14]
# fmt: on


@pytest.mark.parametrize("packed", [False, True])
def test_events_leave_once_a_part_is_full(monkeypatch, packed):
    """Of four rows those before the time of the last, which others may still share."""
    monkeypatch.setattr(event_log, "_PART_ROWS", 4)
    own, taken, left = event_log.EventLog(), [], []
    own.leave_to(lambda part: taken.extend(part["time_ns"].tolist()))
    for time_ns in (10, 11, 11, 12, 13, 13, 13, 14):
        if packed:
            own.extend(event_log._ROW.pack(time_ns, 0, 0, 0, 0, 0, 0, 0, 0), time_ns)
        else:
            own.add("evict", "", (time_ns, 0, 0, 0, 0, 0, 0))
        left.append(len(taken))
    assert left == [0, 0, 0, 3, 3, 3, 4, 7]
    assert taken == [10, 11, 11, 12, 13, 13, 13]


def test_a_trace_that_cannot_be_read_is_a_problem_in_text_and_json(tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    path.write_text("")
    assert kvsim(["trace", "check", str(path)]) == 3
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{path}: ")
    assert kvsim(["trace", "check", str(path), "--format", "json"]) == 3
    assert json.loads(capsys.readouterr().out) == {"problems": [line], "counts": {}, "remarks": []}
    path.write_text('{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}\n')
    assert kvsim(["trace", "check", str(path), "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["problems"] == []
    assert printed.err.startswith(f"{path}: ")
    path.write_text(path.read_text() + "{}\n")
    assert kvsim(["trace", "check", str(path)]) == 3
    assert f"{path}:2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("threshold", "tiers", "storage"),
    [(200, (5, 7, 30), (30, 2, 350)), (201, (5, 7, None), (None, 3, 350)), (201, (5, 7), None)],
)
def test_pages_worth_a_prefetch_are_rounded_up(monkeypatch, threshold, tiers, storage):
    """Pages of 100 tokens; half of the CPU's tokens may be in flight."""
    monkeypatch.setattr(lower_engines._core, "RadixStore", lambda *asked: asked)
    own = SimpleNamespace(
        policy="lru", lower_write="through", block_size_tokens=100,
        lower_prefetch=SimpleNamespace(threshold_tokens=threshold, share=0.5),
    )  # fmt: skip
    trace = SimpleNamespace(input_tokens=np.array([3]), kv_tokens=np.array([4]))
    make = lower_engines.lower_engine_maker("hicache", own, trace, "keys")
    found = make([SimpleNamespace(capacity_blocks=blocks) for blocks in tiers])
    assert found == ("keys", ("lru", "write_through"), 100, (5, 7), ([3], [4]), storage)


@pytest.mark.parametrize("blocks", [(5, 7), (5, 7, 30), (5, 7, None)])
@pytest.mark.parametrize("engine", ["vllm-offload", "lmcache", "lmcache-server"])
def test_a_store_below_an_engine_gets_its_blocks_and_its_own_policy(monkeypatch, engine, blocks):
    """A tier below without a limit is none: a scenario refuses it."""
    offload, lmcache = (lambda *asked: ("offload", *asked)), (lambda *asked: ("lmcache", *asked))
    own = SimpleNamespace(with_offload=offload, with_lmcache=lmcache)
    monkeypatch.setattr(lower_engines._core, "TieredPoolStore", own)
    cache = SimpleNamespace(block_size_tokens=16, lower_chunk_blocks=4, lower_semantics=engine, policy="no")
    trace = SimpleNamespace(input_tokens=np.array([3, 9]), kv_tokens=np.array([4, 11]))
    make = lower_engines.lower_engine_maker(engine, cache, trace, "keys")
    tiers = [SimpleNamespace(capacity_blocks=n, policy=f"p{at}") for at, n in enumerate(blocks)]
    if engine == "vllm-offload":
        assert make(tiers) == ("offload", "keys", 5, 7, 4, "p1", ([3, 9], 16))
        return
    disk = (*blocks, None)[2] or 0
    assert make(tiers) == ("lmcache", "keys", 5, (7, disk), 4, f"{engine}:p1", ([3, 9], 16))


@pytest.mark.parametrize(("rules", "writes"), [("tree", "back"), ("vllm", "engine")])
def test_cache_groups_with_a_tier_write_as_their_engine_or_as_the_setting_says(monkeypatch, rules, writes):
    monkeypatch.setattr(lower_engines, "native_groups", lambda *asked, **more: (*asked, more))
    monkeypatch.setattr(lower_engines._core, "GroupStore", SimpleNamespace(with_tier=lambda *asked: asked))
    groups = SimpleNamespace(layout="layout", rules=rules, limits="limits")
    cache = SimpleNamespace(lower_write="back", lower_chunk_blocks=4)
    trace = SimpleNamespace(input_tokens=np.array([3, 9]))
    make = lower_engines.groups_with_tier_maker(groups, cache, trace)
    found = make([SimpleNamespace(capacity_blocks=n, policy=f"p{n}") for n in (5, 7)])
    keys = ("layout", trace, {"answers_shared": True})
    assert found == (keys, "limits", 5, rules, (7, 4, "p7", writes), [3, 9])


@pytest.mark.parametrize(
    ("times_ns", "found"),
    [([], 5), ([3], 3), ([3, 7, 2], 7), ([7, 3], 7), ([1, None, 9], None), ([None], None), ([0, 0], 0)],
)
def test_the_latest_of_some_times_and_none_if_one_is_unknown(times_ns, found):
    assert latest(iter(times_ns), 5) == found


def test_a_move_is_ready_when_its_own_layer_is_there():
    first, last = (getattr(NativeTransfer, name).fget for name in ("first_layer_ready_at_ns", "ready_at_ns"))
    for times, expected in (
        (None, (None, None)),
        (SimpleNamespace(first_layer_ns=3, completion_ns=8), (3, 8)),
        (SimpleNamespace(first_layer_ns=3, completion_ns=NOT_YET), (3, None)),
        (SimpleNamespace(first_layer_ns=NOT_YET - 1, completion_ns=NOT_YET + 1), (NOT_YET - 1, None)),
        (SimpleNamespace(first_layer_ns=NOT_YET, completion_ns=NOT_YET), (None, None)),
    ):
        assert (first(SimpleNamespace(times=times)), last(SimpleNamespace(times=times))) == expected
