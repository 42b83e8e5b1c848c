"""Calls from Python: the strings of the command line, classes as policies, one line for whatever is wrong."""

import json
from pathlib import Path

import kvcache_sim as kv
import pytest
from kvcache_sim.cli import main
from kvcache_sim.workload.toolbox.write import mooncake_lines

TIERS = {"gpu": "64 blocks"}


@pytest.fixture(scope="module")
def trace():
    return kv.generate("conversational", seed=2, requests=40)


class ToTheFirst:
    """A router that chooses the first machine."""

    def __init__(self, machines):
        pass

    def choose(self, sequence):
        return 0


class LeastRecent:
    """An eviction policy: the leaf that was used least recently."""

    mode = "leaves"

    def __init__(self, tier):
        self.order = {}

    def on_insert(self, block, now):
        self.order[block.id] = now

    def on_hit(self, block, now):
        del self.order[block.id]
        self.on_insert(block, now)

    def victims(self, n, now, pinned):
        found = [block for block in self.order if block not in pinned][:n]
        return found if len(found) == n else None

    def on_remove(self, block, now):
        del self.order[block.id]


def longest_unused(block, now):
    return block.last_use


def test_a_class_is_what_its_name_is(trace, tmp_path):
    """The run of a class, of its file and name, and of the policy of its rule have equal digests; a saved
    run names the file."""
    for key, given, rule, more in (
        ("cache.policy", LeastRecent, "lru", {}),
        ("cache.policy", longest_unused, "lru", {}),
        ("router.policy", ToTheFirst, None, {"cluster": 2}),
    ):
        mine = kv.simulate(trace, tiers=TIERS, **more, **{key: given})
        name = f"{__file__}:{given.__name__}"
        assert mine.scenario[key] == name
        same = [name] if rule is None else [name, rule]
        for text in same:
            assert kv.simulate(trace, tiers=TIERS, **more, **{key: text}).digests == mine.digests
    assert set(mine.requests["machine"].to_pylist()) == {0}
    assert main.run(["reproduce", str(mine.save(tmp_path / "run")), "--plugins"]) == 0
    lru, own = (kv.cachesim(trace, policy, capacity=48) for policy in ("lru", LeastRecent))
    assert own["hit_blocks"] == lru["hit_blocks"] > 0
    rows = kv.sweep(trace, grid={"cluster": [2], "router": [ToTheFirst, "round-robin"]}, repeats=1).rows
    assert [row["set.router.policy"] for row in rows] == [name, "round-robin"]


def test_classes_of_one_name_are_different_policies(trace):
    """Two classes made by one function: each scenario keeps its own."""

    def router(machine):
        class Fixed(ToTheFirst):
            def choose(self, sequence):
                return machine

        return Fixed

    scenarios = [kv.Scenario(cluster=2, tiers=TIERS, router=router(machine)) for machine in (0, 1)]
    for machine, scenario in enumerate(scenarios):
        assert set(kv.simulate(trace, scenario).requests["machine"].to_pylist()) == {machine}
    with pytest.raises(kv.UsageError, match="it has no choose"):
        kv.simulate(trace, cluster=2, router=LeastRecent)


def test_a_setting_that_nothing_uses_is_an_error_or_a_warning_that_the_run_keeps(trace, tmp_path, capsys):
    with pytest.raises(kv.UsageError, match=r"write.policy has no effect"):
        kv.simulate(trace, tiers=TIERS, write="through")
    run = kv.simulate(trace, tiers=TIERS, write="through", idle="warn")
    (said,) = [line for line in run.warnings if "no effect" in line]
    assert run.digests == kv.simulate(trace, tiers=TIERS).digests
    base = kv.Scenario(tiers=TIERS, idle="warn")
    assert said in kv.load_run(kv.simulate(trace, base, write="through").save(tmp_path / "a")).warnings
    assert kv.simulate(trace, base, tiers={"cpu": "1GiB"}, write="through").warnings == []
    (tmp_path / "t.jsonl").write_text("".join(mooncake_lines(trace)))
    line = [
        "simulate",
        str(tmp_path / "t.jsonl"),
        "--set",
        "tiers.gpu.capacity=64 blocks",
        "-o",
        str(tmp_path / "b"),
    ]
    idle = [*line, "--set", "write.policy=through"]
    assert (main.run(idle), main.run([*idle, "--idle", "warn"])) == (2, 0)
    assert said in capsys.readouterr().err
    assert said in kv.load_run(tmp_path / "b").warnings
    # hardware that others rule out stays an error
    with pytest.raises(kv.UsageError):
        kv.simulate(
            trace, tiers=TIERS, idle="warn", cache={"semantics": "tokens"}, replica={"max_num_seqs": 0}
        )


def test_capacity_takes_the_strings_of_the_command_line(trace, tmp_path):
    (tmp_path / "t.jsonl").write_text("".join(mooncake_lines(trace)))
    reported = kv.command(
        "capacity",
        tmp_path / "t.jsonl",
        "--slo",
        "ttft=200ms",
        "--attain",
        "95%",
        "--max-rate",
        "20/s",
        "-o",
        tmp_path / "c",
        "--format",
        "json",
        "-j",
        1,
    )
    rate = json.loads(reported.text)["candidates"][0]["rate_per_s"]
    for attain, most, slo in ((0.95, 20, "ttft=200ms"), ("95%", "20/s", {"ttft": "200ms"})):
        assert kv.capacity(trace, slo=slo, attain=attain, max_rate=most).rate_per_s == rate


def test_a_search_finds_the_best_settings_that_meet_the_conditions(trace):
    space = {"tiers.gpu.capacity": ["40 blocks", "400 blocks"], "tiers.cpu": ["1GiB"]}
    found = kv.optimize(trace, space=space, maximize="hit_rate", subject_to="ttft.p99 < 1h", trials=6)
    assert found.settings["tiers.gpu.capacity"] == "400 blocks"
    rates = [row["cache.token_hit_rate"] for row in found.rows]
    assert rates == sorted(rates, reverse=True)
    assert kv.simulate(trace, **found.settings).summary["cache"]["token_hit_rate"] == rates[0]
    none = kv.optimize(trace, space=space, minimize="ttft.p99", subject_to=["ttft.p99 < 1ns"], trials=2)
    assert (none.settings, len(none), str(none)) == (None, 0, "no settings tried meet every condition")


def test_a_slice_has_the_requests_and_a_frame_their_columns(trace):
    part = trace[5:15]
    frame, whole = part.to_pandas(), trace.to_pandas()
    assert len(part) == len(frame) == 10
    assert list(frame.arrival_ns) == list(whole.arrival_ns[5:15])
    lengths = [len(ids) for ids in whole.block_ids]
    assert [len(ids) for ids in frame.block_ids] == lengths[5:15]
    assert kv.simulate(trace[:]).digests == kv.simulate(trace).digests
    assert len(trace[::4]) == 10
    for rows in (slice(7, 3), slice(None, None, -1), 3, slice(99, None)):
        with pytest.raises(kv.UsageError, match="not requests of the trace"):
            _ = trace[rows]
    closed = {
        "arrival_s": [0, None],
        "think_s": [None, 1],
        "input_tokens": [600, 1200],
        "output_tokens": [9, 9],
    }
    waits = kv.make_trace({**closed, "session": ["a", "a"], "turn": [0, 1]})
    with pytest.raises(kv.UsageError, match="wait for others outside"):
        _ = waits[1:]


def test_launch_lines_presets_reports_and_pictures(trace, tmp_path):
    line = "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 --max-num-seqs 64"
    scenario = kv.Scenario.from_launch_line(line, gpu="h200", **{"replica.max_num_seqs": 32})
    assert (scenario["model"], scenario["replica.max_num_seqs"]) == ("qwen3-32b", 32)
    assert kv.Scenario.load("preset:quickstart")["workload.kind"]
    run = kv.simulate(trace, tiers=TIERS)
    page = run.report(tmp_path / "r.html").read_text()
    assert page == Path(kv.compare(run, run).report(tmp_path / "two.html")).read_text() or "<html" in page
    with pytest.raises(kv.OutputExistsError):
        run.report(tmp_path / "r.html")
    curve = kv.curve(trace, policy="lfu", capacity=[8, "32"])
    assert {row["policy"] for row in curve.plot().data} >= {"lru", "lfu", "knee"}
    assert kv.curve(trace, model="gpt-oss-20b", capacity="2GiB").plot().save(tmp_path / "c.svg").exists()


def test_scenario_files_are_compared_as_the_command_does(tmp_path):
    small = {"kind": "conversational", "requests": 30}
    for name, size in (("a", "32 blocks"), ("b", "256 blocks")):
        scenario = kv.Scenario(workload=small, tiers={"gpu": size})
        (tmp_path / f"{name}.yaml").write_text(scenario.to_yaml())
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    reported = kv.command("compare", *files, "--repeats", 2, "--format", "json")
    assert kv.compare(*files, repeats=2).figures == json.loads(reported.text)


WRONG = [
    ("capacity", {"slo": "ttft=200"}, "slo ttft: time without a known unit; got '200'"),
    ("capacity", {"slo": {"ttft": 5}}, "slo: not usable here; got {'ttft': 5} of type dict"),
    (
        "capacity",
        {"slo": "ttft=1s", "attain": 95},
        "attain: not a share; got '9500.000000%'; expected above 0% up to 100%",
    ),
    ("capacity", {"slo": "ttft=1s", "attain": [1]}, "expected str | float"),
    ("capacity", {"slo": "ttft=1s", "need": -1}, "need: not a rate; got '-1.000000/s'"),
    ("capacity", {"slo": "ttft=1s", "max_rate": float("nan")}, "max_rate: not a rate; got 'nan/s'"),
    ("sweep", {"grid": 5}, "grid: not usable here; got 5 of type int; expected "),
    ("sweep", {"grid": {"seed": [1, 2]}, "jobs": 0}, "jobs: not usable here; got 0; expected 1 or more"),
    ("simulate", {"options": 3}, "options: not usable here; got 3 of type int; expected RunOptions"),
    (
        "simulate",
        {"idle": "wrn"},
        "idle: not usable here; got 'wrn' of type str; expected Optional[Literal['error', 'warn']]",
    ),
    ("simulate", {"router": ToTheFirst(0)}, "router: not a setting; got ToTheFirst"),
    ("cachesim", {"capacity": None}, "capacity: not usable here; got None"),
    ("cachesim", {"capacity": 5, "window": "3"}, "window: not usable here; got '3' of type str"),
    ("cachesim", {"policy": ToTheFirst, "capacity": 5}, "not a policy class; got no on_insert"),
    ("curve", {"policy": 3}, "policy: not usable here; got 3 of type int"),
    ("optimize", {"space": {"seed": 5}, "minimize": "ttft.p99"}, "space: seed: not a mapping; got 5"),
    ("optimize", {"space": {"seed": [5]}}, "one goal is needed; expected minimize METRIC or maximize METRIC"),
    ("optimize", {"minimize": "ttft.p99"}, "optimize: missing a required argument: 'space'"),
    ("compare", {}, "baseline: not usable here; got <Trace"),
    ("explain", {"rum": 3}, "explain: missing a required argument: 'run'; did you mean 'run'"),
]


@pytest.mark.parametrize(("call", "named", "line"), WRONG)
def test_whatever_is_wrong_is_one_typed_line(call, named, line, trace):
    given = () if "rum" in named else (trace,)
    with pytest.raises(kv.UsageError) as refused:
        getattr(kv, call)(*given, **named)
    assert line in str(refused.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: kv.load_run(5),
        lambda: kv.explain(3),
        lambda: kv.generate(5),
        lambda: kv.read_trace(None),
        lambda: kv.make_trace(3),
        lambda: kv.Scenario.load("no.yaml"),
        lambda: kv.Scenario.load("\0"),
        lambda: kv.Scenario.from_launch_line("ls"),
        lambda: kv.RunOptions(record_window_ns=5),
        lambda: kv.command("simulat"),
        lambda: kv.command("trace stats 'a"),
        lambda: kv.command("trace", "stats", "/none"),
        lambda: kv.simulate("a" * 5000),
        lambda: kv.simulate("\ud800"),
    ],
)
def test_no_call_raises_an_untyped_error(call):
    with pytest.raises(kv.KvsimError) as refused:
        call()
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code in (2, 3, 7)


@pytest.mark.parametrize(
    ("word", "line"),
    [("router", "router.policy "), ("least-loaded", "handover.router "), ("saturated", "saturated\n")],
)
def test_help_finds_any_word_of_a_key_a_value_or_a_figure(word, line):
    assert line in kv.command("help", word).text
    with pytest.raises(kv.UsageError, match="no help on 'sdfsdf'"):
        kv.command("help sdfsdf")
