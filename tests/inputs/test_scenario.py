"""A scenario is read strictly, refused with a position and a remedy, and written out so that it runs
again."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import KvsimError, UsageError
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kv_capacity import EngineMemory
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.releases import parse_release
from kvcache_sim.scenario.key_list import key_lines
from kvcache_sim.scenario.load import load_scenario, scenario_from_text
from kvcache_sim.scenario.policy_names import eviction_plugins_of, with_absolute_plugins
from kvcache_sim.scenario.presets import starter_text
from kvcache_sim.scenario.resolved import config_hash
from support.product.models import kv_capacity
from support.product.scenarios import Tree, to_yaml


def load(text: str = "", *overrides: str):
    return scenario_from_text(text, "s.yaml", Path.cwd(), overrides)


def test_an_alias_bomb_is_refused_and_a_plain_alias_is_not():
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 9):
        bomb += f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * 10) + "]\n"
    with pytest.raises(UsageError, match="expand to too much"):
        load(bomb)
    shared = load("cluster: {machines: 2}\nmachines:\n  - &m {tiers: {cpu: {capacity: 2GiB}}}\n  - *m\n")
    assert shared.settings.machines[0].tiers == shared.settings.machines[1].tiers


@pytest.mark.parametrize("data", [b"\xff\xfes\x00", b"name: \xff", b"seed: \x00", b"x" * 2_000_000])
def test_bytes_that_are_no_scenario_are_refused(data):
    with pytest.raises(UsageError):
        scenario_from_text(data, "s.yaml", Path.cwd())


def test_a_missing_scenario_names_the_nearest_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("seed: 1\n")
    with pytest.raises(UsageError, match=r"did you mean mine.yaml\?"):
        load_scenario(tmp_path / "mien.yaml")
    with pytest.raises(KvsimError) as refused:
        load_scenario(tmp_path)
    assert refused.value.exit_code == 7
    with pytest.raises(UsageError, match="/dev/zero: scenario too large"):
        load_scenario(Path("/dev/zero"))


def test_an_override_takes_precedence_over_the_file():
    scenario = load(
        "seed: 1\ntiers: {gpu: {capacity: 8 blocks}}", "seed=2", "tiers.gpu.capacity=16384 blocks"
    )
    assert scenario.settings.seed == 2
    assert scenario.settings.machines[0].tiers == (TierSettings("gpu", 16384),)


def test_null_takes_a_setting_out():
    scenario = load("tiers: {cpu: {capacity: 1GiB}}", "tiers.cpu=null")
    assert [tier.name for tier in scenario.settings.machines[0].tiers] == ["gpu"]


def test_a_machine_of_its_own_kind():
    scenario = load(
        "cluster: {machines: 3}\ntiers: {gpu: {capacity: 8 blocks}, cpu: {capacity: 1GiB}}",
        "machines[0].tiers.cpu.capacity=512GiB",
        "machines[2].tiers.cpu=null",
        "machines[2].replica.max_num_seqs=7",
    )
    first, second, third = scenario.settings.machines
    assert first.tiers == (TierSettings("gpu", 8), TierSettings("cpu", (512 << 30) // (512 * 131_072)))
    assert second.tiers == (TierSettings("gpu", 8), TierSettings("cpu", (1 << 30) // (512 * 131_072)))
    assert third.tiers == (TierSettings("gpu", 8),)
    assert third.replica.max_num_seqs == 7
    assert second.replica.max_num_seqs == 256
    assert third.edge_channels == {}


def test_default_channels_are_one_a_machine_edge_and_direction():
    scenario = load("cluster: {machines: 2}\ntiers: {cpu: {capacity: 1GiB}, disk: {capacity: 1TB}}")
    names = [name for machine in scenario.settings.machines for name in machine.edge_channels.values()]
    assert len(names) == len(set(names)) == 8
    assert set(names) == set(scenario.settings.channels)


def test_edges_that_name_a_channel_share_it_and_one_machine_may_differ():
    text = """
cluster: {machines: 2}
tiers: {cpu: {capacity: 1GiB}}
channels:
  pcie: {bandwidth: 50GB/s, latency: 10us, edges: [gpu->cpu, cpu->gpu]}
  slow: {bandwidth: 400Gb/s, scope: cluster, edges: ['1:cpu->gpu']}
"""
    settings = load(text).settings
    assert settings.machines[0].edge_channels == {"gpu->cpu": "pcie-0", "cpu->gpu": "pcie-0"}
    assert settings.machines[1].edge_channels == {"gpu->cpu": "pcie-1", "cpu->gpu": "slow"}
    assert settings.channels["slow"].bandwidth_bytes_per_s == 50 * 10**9
    assert settings.channels["pcie-1"].latency_ns == 10_000


def test_a_default_channel_may_be_changed_in_one_figure():
    settings = load("tiers: {cpu: {capacity: 1GiB}}", "channels.cpu-to-gpu.bandwidth=1GB/s").settings
    assert settings.channels["cpu-to-gpu-0"].bandwidth_bytes_per_s == 10**9
    assert settings.channels["cpu-to-gpu-0"].latency_ns == settings.channels["gpu-to-cpu-0"].latency_ns > 0


def test_paths_start_from_the_scenario_and_the_option_from_here(tmp_path, monkeypatch):
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (folder / "s.yaml").write_text("trace: {path: ../t.jsonl}\n")
    monkeypatch.chdir(tmp_path)
    written = load_scenario(folder / "s.yaml").model.trace
    given = load_scenario(folder / "s.yaml", trace=Path("other.jsonl")).model.trace
    assert written is not None
    assert given is not None
    assert Path(written.path).resolve() == tmp_path / "t.jsonl"
    assert Path(given.path) == tmp_path / "other.jsonl"


CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**63 - 1).map(str),
        "cluster.machines": st.just("3"),
        "tiers.gpu.capacity": st.sampled_from(["7 blocks", "80GiB", "unbounded", "1000001KiB"]),
        "tiers.cpu.capacity": st.sampled_from(["9 blocks", "1TB", "unbounded"]),
        "machines[0].tiers.gpu.capacity": st.just("5 blocks"),
        "machines[0].replica.max_num_seqs": st.just("3"),
        "replica.step_overhead": st.sampled_from(["1500ns", "3ms", "1.5us"]),
        "replica.step_time": st.just("rtx4090-llama-3.1-8b-tp1"),
        "cache.block_size": st.sampled_from(["16", "512"]),
        "cache.kv_bytes_per_token": st.just("100kB"),
        "cache.full_hit": st.just("skip-prefill"),
        "workload.output_tokens": st.just("1"),
        "trace.path": st.sampled_from(["/x: y.jsonl", "/1", "/ü '\"#.jsonl"]).map(lambda p: f"{p!r}"),
    },
)


@given(CHOICES)
def test_the_resolved_scenario_is_the_same_scenario(choices):
    if "tiers.cpu.capacity" not in choices:
        choices.pop("cache.kv_bytes_per_token", None)  # refused: nothing moves
    if "replica.step_time" in choices:
        choices["replica.max_model_len"] = "auto"  # a GPU of 24 GiB holds no request of the model's context
    scenario = load("", *(f"{key}={value}" for key, value in choices.items() if "'\"" not in value))
    text = to_yaml(scenario.resolved)
    again = load(text)
    assert again.settings.machines == scenario.settings.machines
    assert again.settings.channels == scenario.settings.channels
    assert again.resolved == scenario.resolved
    assert to_yaml(again.resolved) == text


def test_the_resolved_scenario_keeps_lower_tiers_machines_and_movement():
    text = """
cluster: {machines: 3}
tiers: {cpu: {capacity: 4GiB}, disk: {capacity: 1TB}}
machines: [{tiers: {disk: null}}, {}, {tiers: {cpu: {capacity: unbounded}}}]
write: {policy: {gpu: through}}
fetch: {policy: never, layer_pipelining: false}
router: {policy: least-loaded}
"""
    scenario = load(text)
    again = load(to_yaml(scenario.resolved))
    assert again.settings == scenario.settings
    movement = scenario.settings.movement
    assert movement.write == {"gpu": "through", "cpu": "back"}
    assert (movement.fetch, movement.layer_pipelining) == ("never", False)


def test_channels_are_shared_as_named_and_unknown_policies_are_refused():
    tiers = "tiers: {cpu: {capacity: 1GiB}}\n"
    fair = load(tiers + "channels: {c: {bandwidth: 1GB/s, sharing: fair, edges: [cpu->gpu]}}")
    assert fair.settings.channels["c-0"].sharing == "fair"
    with pytest.raises(UsageError, match=r"unknown policy; got 'lruu'; .* did you mean lru\?"):
        load("cache: {policy: lruu}")


@pytest.mark.parametrize(
    "path", ["cache", "tiers.cpu", "cluster.pool", "machines[1].tiers.cpu", "machines[1].tiers.disk"]
)
def test_eviction_policies_are_known_wherever_they_are_named(path):
    """An unknown one is refused, and the file of a plug-in starts from the scenario."""
    text = """
cluster: {machines: 2, pool: {capacity: 1GiB}}
machines: [{}, {tiers: {cpu: {capacity: 1GiB}, disk: {capacity: 1GiB}}}]
tiers: {cpu: {capacity: 1GiB}}
"""
    with pytest.raises(UsageError, match="unknown policy; got 'lruu'") as refused:
        load(text, f"{path}.policy=lruu")
    assert refused.value.where == f"--set {path}.policy"
    tree = Tree({"machines": [{}, {}]})
    section = tree.values if not path.startswith("machines") else tree.values["machines"][1]
    for step in path.removeprefix("machines[1].").split("."):
        section = section.setdefault(step, {})
    section["policy"] = "own.py:Mine"
    with_absolute_plugins(tree, Path("/d"))
    assert section == {"policy": "/d/own.py:Mine"}
    keys = ("machines", 1, *path.split(".")[1:]) if "[1]" in path else tuple(path.split("."))
    assert eviction_plugins_of(tree) == [((*keys, "policy"), "/d/own.py:Mine")]


@pytest.mark.parametrize(
    ("fleet", "is_slow"),
    [
        ("plan: [{at: 1s, do: slow, channel: c, share: 0.5}]", True),
        ("faults: [{do: slow, channel: c, share: 0.5, mtbf: 1s}], faults_until: 1000s", True),
        ("faults: [{do: lose-tier, tier: cpu, mtbf: 1s}], faults_until: 9s", False),
    ],
)
def test_channels_are_slow_as_planned_and_by_faults(fleet, is_slow):
    channel = "channels: {c: {bandwidth: 1GB/s, edges: [cpu->gpu]}}"
    channels = load(f"tiers: {{cpu: {{capacity: 1GiB}}}}\n{channel}\nfleet: {{{fleet}}}").settings.channels
    assert [bool(channels[name].slowdowns) for name in ("c-0", "gpu-to-cpu-0")] == [is_slow, False]


def test_reads_between_machines_share_the_channels_that_the_scenario_names():
    """Seed 001's own example: 0 reads from 1 while 1 reads from 0, contending or not."""

    def pairs(machines: int, channels: str = "{}"):
        text = f"tiers: {{cpu: {{capacity: 1GiB}}}}\nfetch: {{lookup: cluster}}\nchannels: {channels}"
        scenario = load(f"{text}\ncluster: {{machines: {machines}}}")
        assert load(to_yaml(scenario.resolved)).settings == scenario.settings
        return scenario.settings.network.pairs

    assert pairs(2) == {}, "by default each ordered pair has a channel of its own"
    one = '{net: {edges: ["1:cpu->0:cpu", "0:cpu->1:cpu"], bandwidth: 1GB/s}}'
    assert pairs(2, one) == {(0, 1): "net", (1, 0): "net"}
    two = '{a: {edges: ["1:cpu->0:cpu"], bandwidth: 1GB/s}, b: {edges: ["0:cpu->1:cpu"], bandwidth: 1GB/s}}'
    assert pairs(2, two) == {(0, 1): "b", (1, 0): "a"}
    all_of_0 = '{nic: {edges: ["0:remote->cpu"], bandwidth: 1GB/s}}'
    assert pairs(3, all_of_0) == {(1, 0): "nic-0", (2, 0): "nic-0"}
    readers = "{nic: {edges: [remote->cpu], bandwidth: 1GB/s, scope: machine}}"
    assert pairs(3, readers)[2, 1] == pairs(3, readers)[0, 1] == "nic-1"
    owners = "{nic: {edges: [cpu->remote], bandwidth: 1GB/s, scope: machine}}"
    assert pairs(3, owners)[2, 1] == pairs(3, owners)[2, 0] == "nic-2"


def test_the_hash_is_of_what_decides_a_run():
    base = load("name: a\ntrace: {path: x.jsonl}").resolved
    renamed = load("name: b\ntrace: {path: y.jsonl}").resolved
    other = load("name: a\ntrace: {path: x.jsonl}\nseed: 1").resolved
    assert config_hash(base, "00") == config_hash(renamed, "00")
    assert len({config_hash(base, "00"), config_hash(base, "01"), config_hash(other, "00")}) == 3


def test_the_starter_is_a_scenario_and_says_what_holds_by_default():
    started = load(starter_text())
    plain = load("name: my-first-run\nworkload: {kind: conversational}\ntiers: {cpu: {capacity: 512GiB}}")
    assert started.settings == plain.settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpt-oss-20b", "its windows use no memory and limit no hit; cache.layer_groups=by-kind"),
        ("qwen3-next-80b-a3b", "its states use no memory"),
        ("deepseek-v4-flash", "its states and windows use no memory and limit no hit; cache.semantics=vllm"),
        ("llama-3-8b", ""),
        ("gpt-oss-20b\ncache: {layer_groups: by-kind}", ""),
        ("gpt-oss-20b\ncache: {layer_groups: as-full}", ""),
        ("gpt-oss-20b\ncache: {semantics: vllm}", ""),
    ],
)
def test_a_tree_says_once_that_it_takes_windows_and_states_for_full_attention(text, said):
    notes = load(f"model: {text}\ntiers: {{gpu: {{capacity: 100 blocks}}}}").notes
    reported = [note for note in notes if "count as full attention" in note]
    assert len(reported) == bool(said)
    assert said in "".join(reported)


@pytest.mark.parametrize(
    ("settings", "gpu", "tokens", "seqs"),
    [
        ("", "a100", 2048, 256),
        ("max_num_batched_tokens: 8192", "a100", 8192, 256),
        ("max_num_batched_tokens: 8191", "a100", 8191, 256),
        ("release: vllm@0.8.5", "a100", 8192, 1024),
        ("release: vllm@0.8.4", "a100", 2048, 256),
        ("release: vllm@0.8.0", "a100", 2048, 1024),
        ("release: vllm@0.8.5, max_num_seqs: 256", "h100", 8192, 256),
        ("release: vllm@0.8.4", "b200", 2048, 256),
        ("", "b200", 16384, 1024),
    ],
)
def test_auto_capacity_is_by_the_given_batch_or_the_releases(settings, gpu, tokens, seqs):
    own = f"step_time: 'roofline:llama-3.1-8b@{gpu}', {settings}".rstrip(", ")
    found = load(f"replica: {{{own}}}")
    replica = found.model.replica
    assert (replica.max_num_batched_tokens, replica.max_num_seqs) == (tokens, seqs)
    named = parse_release(replica.release)
    engine = EngineMemory(replica.gpu_memory_utilization, tokens, seqs, release=named)
    capacity = kv_capacity(load_model("llama-3.1-8b"), load_gpu(gpu), 1, engine)
    assert found.settings.machines[0].tiers[0].capacity_blocks == capacity.kv_bytes // (512 * 131_072)
    assert f"{tokens:,} tokens and {seqs:,} sequences" in found.gpu_capacity.sentence
    assert str(named) in found.gpu_capacity.sentence


def test_auto_capacity_is_what_the_weights_leave_and_the_resolved_scenario_says_how_much():
    scenario = load("replica: {release: vllm@0.11.0}")
    (tier,) = scenario.settings.machines[0].tiers
    engine = EngineMemory(0.9, 8192, 1024)  # the engine's defaults on the GPU
    capacity = kv_capacity(load_model("llama-3-8b"), load_gpu("h100"), 1, engine)
    said = str(capacity).replace("sequences)", "sequences, vllm@0.11.0)")
    expected = capacity.kv_bytes // (512 * 131_072)
    assert capacity.kv_bytes / 2**30 == pytest.approx(51.4, abs=0.1)
    fewer = load("replica: {release: vllm@0.11.0, max_num_seqs: 128}")
    assert fewer.settings.machines[0].tiers[0].capacity_blocks > expected
    assert "8,192 tokens and 128 sequences" in fewer.gpu_capacity.sentence
    assert tier == TierSettings("gpu", expected)
    assert scenario.resolved["tiers"]["gpu"]["capacity"] == f"{expected} blocks"
    assert scenario.gpu_capacity.sentence == f"tiers.gpu.capacity: auto is {expected} blocks here: {said}"
    assert (
        scenario.gpu_capacity.note
        == f"tiers.gpu.capacity: auto is {expected} blocks, 51.4 ± 0.4 GiB a GPU, vllm@0.11.0"
    )
    assert scenario.notes == ()
    given = load("replica: {release: vllm@0.11.0}\ntiers: {gpu: {capacity: 3 blocks}}")
    assert given.notes == ()
    assert given.gpu_capacity.sentence == (
        f"tiers.gpu.capacity: 3 blocks as given; the GPU's memory would hold {expected} blocks: {said}"
    )
    too_many = load(f"replica: {{release: vllm@0.11.0}}\ntiers: {{gpu: {{capacity: {expected + 1} blocks}}}}")
    assert too_many.settings.machines[0].tiers[0].capacity_blocks == expected + 1
    assert too_many.notes == (too_many.gpu_capacity.sentence,)
    assert load("tiers: {gpu: {capacity: unbounded}}").gpu_capacity is None
    other = load(
        "replica: {release: vllm@0.11.0}\ncluster: {machines: 2}\n"
        "machines: [{replica: {step_time: a100-llama-3-8b-tp1}}]"
    )
    first, second = (machine.tiers[0].capacity_blocks for machine in other.settings.machines)
    assert first is not None
    assert second == expected
    assert first > second  # the engine warms up with fewer sequences on an A100
    assert load(to_yaml(other.resolved)).settings.machines[0].tiers[0].capacity_blocks == first
    with pytest.raises(UsageError, match=r"tiers.cpu.capacity has no effect; auto is for the gpu"):
        load("tiers: {cpu: {capacity: auto}}")
    with pytest.raises(UsageError, match="does not fit on 1 × rtx4090"):
        load("replica: {step_time: 'roofline:llama-3-70b@rtx4090'}")


def test_a_channel_preset_gives_the_figures_that_are_not_given():
    scenario = load(
        "tiers: {cpu: {capacity: 1GiB}}\n"
        "channels: {cpu-to-gpu: {preset: pcie4-x16, latency: 3us}, x: {preset: nvme, edges: [gpu->cpu]}}"
    )
    channels = scenario.settings.channels
    assert channels["cpu-to-gpu-0"].bandwidth_bytes_per_s == 27_000_000_000
    assert channels["cpu-to-gpu-0"].latency_ns == 3_000
    assert channels["x-0"].bandwidth_bytes_per_s == 5_400_000_000
    assert load(to_yaml(scenario.resolved)).settings.channels == channels
    with pytest.raises(
        UsageError, match=r"s.yaml:1:16: channels.c.preset: unknown channel preset; got 'pcie6'"
    ):
        load("channels: {c: {preset: pcie6, edges: [cpu->gpu]}}")


def test_every_key_is_explained_and_the_defaults_shown_are_the_defaults():
    lines = key_lines()
    assert all(re.fullmatch(r"\S+ +(\S+|no such tier) +\S.*", line) for line in lines)
    shown = dict(line.split(maxsplit=2)[:2] for line in lines)
    assert shown["tiers.gpu.capacity"] == "auto"
    given = {"trace.path": "t.jsonl", "channels.x.bandwidth": "1GB/s", "channels.x.edges": "[gpu->cpu]"}
    for name, default in shown.items():
        path = name.replace("NAME", "x")
        if default not in ("*", "no", "null", "{}", "[]") and not path.startswith(("channels.", "cost.")):
            # drafts need an acceptance setting
            alongside = (
                ["replica.speculation.mean_length=2"] if path.startswith("replica.speculation.") else []
            )
            if path.startswith("cluster.pool."):  # and a pool its capacity
                alongside = ["cluster.pool.capacity=9GiB", "tiers.cpu.capacity=9GiB"]
            alongside += ["models.of.x.machines=1"] if path.startswith("models.") else []
            alongside += ["cluster.machines=2"] if path.startswith("router.affinity.") else []
            load("trace: {path: t.jsonl}", *alongside, f"{path}={default}")
    assert given.keys() <= {name.replace("NAME", "x") for name, default in shown.items() if default == "*"}
