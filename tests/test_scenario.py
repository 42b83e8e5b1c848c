"""A scenario is read strictly, refused with the place and a way out, and written out so that it runs again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.errors import KvsimError, UsageError
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kv_room import EngineMemory, kv_room
from kvcache_sim.model.model_file import load_model
from kvcache_sim.scenario.key_list import key_lines
from kvcache_sim.scenario.load import load_scenario, scenario_from_text
from kvcache_sim.scenario.presets import starter_text
from kvcache_sim.scenario.resolved import config_hash, to_yaml
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.section import keys, parts, section_in


def load(text: str = "", *overrides: str):
    return scenario_from_text(text, "s.yaml", Path.cwd(), overrides)


REFUSED = {
    # unknown keys, with the line and the nearest name (31)
    "tiers:\n  cpu:\n    capcity: 16GiB": "s.yaml:3:5: unknown key 'tiers.cpu.capcity'; did you mean 'capacity'?",
    "cach: {}": "s.yaml:1:1: unknown key 'cach'; did you mean 'cache'?",
    "machines: [{tiers: {cpx: {capacity: 1 blocks}}}]": "s.yaml:1:21: unknown key 'machines[0].tiers.cpx'; did you mean",
    "workload: {output_token: 1}": "s.yaml:1:12: unknown key 'workload.output_token'; did you mean 'output_tokens'?",
    # units (32, 33)
    "tiers: {cpu: {capacity: 16}}": "s.yaml:1:15: tiers.cpu.capacity: a bare number has no unit; got 16",
    "tiers: {cpu: {capacity: 16 GX}}": "tiers.cpu.capacity: size without a known unit; got '16 GX'",
    "tiers: {cpu: {capacity: -16GiB}}": "tiers.cpu.capacity: negative size",
    "cache: {lookup_time: 3}": "cache.lookup_time: a bare number has no unit; got 3; expected a time",
    "channels: {c: {bandwidth: 32, edges: [gpu->cpu]}}": "channels.c.bandwidth: a bare number has no unit",
    "channels: {c: {bandwidth: 0GB/s, edges: [gpu->cpu]}}": "channels.c.bandwidth: rate must be above zero",
    "channels: {c: {bandwidth: .inf, edges: [gpu->cpu]}}": ".inf is not a finite number",
    "channels: {c: {bandwidth: .nan, edges: [gpu->cpu]}}": "s.yaml:1:27: .nan is not a finite number",
    "channels: {c: {bandwidth: 32 GB, edges: [gpu->cpu]}}": "channels.c.bandwidth: rate without a known unit",
    # capacities (34)
    "tiers: {gpu: {capacity: 0 blocks}}": "tiers.gpu.capacity: zero capacity",
    "tiers: {gpu: {capacity: 0GiB}}": "tiers.gpu.capacity: zero capacity",
    "tiers: {gpu: {capacity: 1MiB}}": "s.yaml:1:15: tiers.gpu.capacity is below one block; got 1MiB",
    # the tier graph (35)
    "tiers: {disk: {capacity: 1TB}}": "s.yaml:1:9: tiers.disk has no effect; blocks reach the disk through the cpu",
    "tiers: {gpu: {capacity: 1 blocks}, gpu: {capacity: 2 blocks}}": "s.yaml:1:36: duplicate key 'gpu'",
    "tiers: {gpu: null}": "tiers.gpu: not usable; got None",
    # YAML's traps (36)
    "cache: {enabled: yes}": "cache.enabled: not usable; got 'yes'; expected true or false; yes, no, on and off",
    "cache: {block_size: 017}": "cache.block_size: not usable; got '017'; expected a whole number",
    "cache: {block_size: 1:30}": "cache.block_size: not usable; got '1:30'",
    "cache: {block_size: 512.0}": "cache.block_size: not usable; got 512.0; expected a whole number",
    "cache: {block_size: true}": "cache.block_size: not usable; got True",
    "cache: {block_size: 0}": "cache.block_size: not usable; got 0",
    "seed: 1\nseed: 2": "s.yaml:2:1: duplicate key 'seed'",
    "a: !!python/object:os.system x": "s.yaml:1:4: tag",
    "seed: !mine 3": "s.yaml:1:7: tag !mine is not allowed",
    "a: [": "s.yaml:1:5: not YAML",
    "- a": "s.yaml:1: not a mapping of settings",
    "seed: 1\n---\nseed: 2": "not YAML",
    "? [a]\n: b": "a key must be a word",
    "a: &a [*a]": "s.yaml:1:4: aliases or nesting expand to too much",
    # ranges and choices
    "seed: -1": "seed: not usable; got -1; expected greater than or equal to 0",
    "seed: 1e30": "seed: not usable",
    "seed: abc": "seed: not usable; got 'abc'; expected a whole number",
    "name: ../x": "name: not usable; got '../x'",
    "write: {policy: thru}": "write.policy: no such write policy; got 'thru'; expected one of back, through",
    "write: {policy: {gpu: thru}}": "write.policy.gpu: no such write policy; got 'thru'",
    "model: llama-3-8": "s.yaml:1:1: model: unknown model; got 'llama-3-8'",
    "replica: {step_time: h100-lama}": "s.yaml:1:11: replica.step_time: unknown step time; got 'h100-lama'",
    "machines: [{}, {}]": "s.yaml:1:16: machines[1] does not exist; expected at most 1 entries",
    # settings that cannot have an effect
    "write: {policy: through}": "write.policy has no effect; no machine has a tier below the gpu",
    "write: {policy: {cpu: through}}\ntiers: {cpu: {capacity: 1GiB}}": "write.policy.cpu has no effect",
    "write: {selective_uses: 3}": "write.selective_uses has no effect",
    "fetch: {policy: never}": "fetch.policy has no effect",
    "fetch: {layer_pipelining: false}": "fetch.layer_pipelining has no effect",
    "fetch: {timeout: 3s}": "fetch.timeout has no effect; fetch.policy is not timeout",
    "fetch: {exclusive: [cpu->gpu]}": "fetch.exclusive.0 has no effect; no machine has this edge",
    "prefetch: {policy: queued}": "prefetch.policy has no effect",
    "router: {policy: least-loaded}": "router.policy has no effect; there is one machine",
    "router: {load_threshold: 3}": "router.load_threshold has no effect; there is one machine",
    "cluster: {machines: 2}\nrouter: {load_threshold: 3}": "router.load_threshold has no effect; router.policy is not longest-prefix",
    "cluster: {machines: 2}\nrouter: {policy: random, overlap_weight: 2}": "router.overlap_weight has no effect; router.policy is not overlap-cost",
    "cluster: {machines: 2}\ncache: {enabled: false}\nrouter: {policy: longest-prefix}": "router.policy has no effect; cache.enabled is false",
    "cluster: {machines: 2}\nrouter: {policy: nearest}": "router.policy: no such router; got 'nearest'; expected one of round-robin, random",
    "cache: {enabled: false, cache_output: false}": "cache.cache_output has no effect; cache.enabled is false",
    "cache: {enabled: false}\ntiers: {cpu: {capacity: 1GiB}}": "tiers.cpu has no effect; cache.enabled is false",
    "cache: {semantics: vllm}\ntiers: {cpu: {capacity: 1GiB}}": "tiers.cpu has no effect; semantics vllm has a gpu tier only",
    "channels: {c: {bandwidth: 1GB/s, edges: [gpu->cpu]}}": "channel 'c' has no effect; got 'gpu->cpu'; no machine has this edge",
    "channels: {cpu-to-gpu: {bandwidth: 1GB/s}}": "channel 'cpu-to-gpu' has no effect",
    "tiers: {cpu: {capacity: 1GiB}}\nchannels: {c: {bandwidth: 1GB/s, priority: loads-first, edges: [cpu->gpu]}}": "channels.c.priority has no effect; the channel carries no loads beside stores",
    "tiers: {cpu: {capacity: 1GiB}}\nchannels: {c: {bandwidth: 1GB/s, latency_occupies: true, edges: [cpu->gpu]}}": "channels.c.latency_occupies has no effect; the channel has no latency",
    "tiers: {cpu: {capacity: 1GiB}}\nchannels: {c: {bandwidth: 1GB/s, latency: 1us, sharing: fair, latency_occupies: true, edges: [cpu->gpu]}}": "channels.c.latency_occupies has no effect; a fair channel is not taken in turns",
    "tiers: {cpu: {capacity: 1GiB}}\nprefetch: {policy: queued}": "prefetch.policy has no effect; nothing lies below the cpu",
    "tiers: {cpu: {capacity: 1GiB}}\nprefetch: {lead: 2s}": "prefetch.lead has no effect; prefetch.policy is not session",
    "tiers: {cpu: {capacity: 1GiB}}\nprefetch: {share: 0.25}": "prefetch.share has no effect; prefetch.policy is none",
    "tiers: {cpu: {capacity: 1GiB}}\nfetch: {policy: wait}": "fetch.policy has no effect; nothing is fetched before the admission",
    "tiers: {cpu: {capacity: 1GiB}, disk: {capacity: 1TB}}\nwrite: {policy: {cpu: through-sync}}": "write.policy.cpu has no effect; no batch waits",
    "fetch: {lookup: cluster}": "fetch.lookup has no effect; there is one machine",
    "cluster: {machines: 2}\nfetch: {lookup: cluster}": "fetch.lookup has no effect; KV of other machines is read from and lands on a cpu",
    "tiers: {cpu: {capacity: 1GiB}}\nfetch: {remote_disk: staged}": "fetch.remote_disk has no effect; fetch.lookup is local",
    "tiers: {cpu: {capacity: 1GiB}}\ncluster: {machines: 2}\nchannels: {n: {bandwidth: 1GB/s, edges: [remote->cpu]}}": "channel 'n' has no effect; got 'remote->cpu'; no machine reads from another",
    'tiers: {cpu: {capacity: 1GiB}}\ncluster: {machines: 2}\nfetch: {lookup: cluster}\nchannels: {n: {bandwidth: 1GB/s, edges: ["2:cpu->0:cpu"]}}': "channel 'n' has no effect; got '2:cpu->0:cpu'; no such machines",
    "channel_choice: emptiest\ntiers: {cpu: {capacity: 1GiB}}": "channel_choice has no effect; no edge is on two channels",
    "fetch: {read_buffer_layers: 4}": "fetch.read_buffer_layers has no effect; no machine has a tier",
    "tiers: {cpu: {capacity: 1GiB}}\nfetch: {read_buffer_layers: 4, layer_pipelining: false}": "fetch.read_buffer_layers has no effect; fetch.layer_pipelining",
    "tiers: {cpu: {capacity: 1GiB}}\nfetch: {read_buffer_layers: 4, policy: never}": "fetch.read_buffer_layers has no effect; fetch.policy",
    "cache: {scheduler_aware_window: 4}\nreplica: {instant: true}": "scheduler_aware_window has no effect; replica",
    "cache: {scheduler_aware_window: 4, enabled: false}": "scheduler_aware_window has no effect; cache.enabled",
    "cache: {scheduler_aware_window: 4, semantics: vllm}": "scheduler_aware_window has no effect; semantics",
    "cache: {accounting: simplified, discard_on_finish: true}": "cache.discard_on_finish has no effect; cache.accounting simplified",
    "cache: {admission: prompt, cache_output: false}": "cache.admission has no effect; cache.cache_output is false",
    "trace: {path: t.jsonl}\nworkload: {kind: conversational}": "trace has no effect; workload.kind generates",
    # channels
    "channels: {c: {bandwidth: 1GB/s, edges: [gpu->disk]}}": "s.yaml:1:42: no such edge; got 'gpu->disk'",
    'channels: {c: {bandwidth: 1GB/s, edges: ["0:cpu->1:disk"]}}': "s.yaml:1:42: no such edge; got '0:cpu->1:disk'; expected one of gpu->cpu, cpu->gpu, cpu->disk, disk->cpu, remote->cpu, remote->gpu; 1:cpu->0:cpu is what machine 0 reads from machine 1",
    "channels: {c: {bandwidth: 1GB/s, edges: []}}": "channel 'c' carries nothing",
    "tiers: {cpu: {capacity: 1GiB}}\nchannels:\n  a: {bandwidth: 1GB/s, edges: [cpu->gpu]}\n  b: {bandwidth: 1GB/s, edges: [cpu->gpu]}": "edge 'cpu->gpu' is on two channels; got 'a' and 'b'",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refusal_in_one_line_with_its_place(text):
    with pytest.raises(UsageError) as refused:
        load(text)
    line = str(refused.value)
    assert REFUSED[text] in line
    assert line.startswith("s.yaml")
    assert "\n" not in line


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


def test_override_goes_over_the_file_and_is_named_in_refusals():
    scenario = load(
        "seed: 1\ntiers: {gpu: {capacity: 8 blocks}}", "seed=2", "tiers.gpu.capacity=16384 blocks"
    )
    assert scenario.settings.seed == 2
    assert scenario.settings.machines[0].tiers == (TierSettings("gpu", 16384),)
    for assignment, said in {
        "tiers.cpu.capcity=1GiB": "--set tiers.cpu.capcity: unknown key 'tiers.cpu.capcity'; did you mean",
        "tiers.cpu.capacity=16": "--set tiers.cpu.capacity: tiers.cpu.capacity: a bare number has no unit",
        "tiers.gpu.capacity.x=3": "--set tiers.gpu.capacity.x",
        "seed": "--set: not an assignment; got 'seed'; expected KEY=VALUE",
        "=3": "not a key",
        "a..b=3": "not a key",
        "machines[99999].tiers=3": "index too large",
        "seed=a: b": "--set seed: not YAML",
        "seed=1\nname: x": "--set seed: not one value",
        "seed[0]=1": "--set seed[0]: seed: not usable; got [1]",
    }.items():
        with pytest.raises(UsageError) as refused:
            load("", assignment)
        assert said in str(refused.value)


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


@pytest.mark.parametrize(
    ("section", "key"), [("cache", "semantics"), ("cache", "touch"), ("cache", "full_hit")]
)
def test_every_choice_that_the_schema_knows_is_lowered(section, key):
    choices = next(
        part
        for part in parts(keys(section_in(keys(ScenarioModel)[section].type))[key].type)
        if get_origin(part) is Literal
    )
    for choice in get_args(choices):
        below = "" if choice in ("vllm", "sglang") else ", cpu: {capacity: 1GiB}"
        text = f"tiers: {{gpu: {{capacity: 100 blocks}}{below}}}\n{section}: {{{key}: {choice}}}"
        assert getattr(getattr(load(text).settings, section), key) == choice


def test_channels_are_shared_as_named_and_unknown_policies_are_refused():
    tiers = "tiers: {cpu: {capacity: 1GiB}}\n"
    fair = load(tiers + "channels: {c: {bandwidth: 1GB/s, sharing: fair, edges: [cpu->gpu]}}")
    assert fair.settings.channels["c-0"].sharing == "fair"
    with pytest.raises(UsageError, match=r"unknown policy; got 'lruu'; .* did you mean lru\?"):
        load("cache: {policy: lruu}")


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
        (
            "model: gpt-oss-20b",
            "its windows take no room and limit no hit; cache.layer_groups=by-kind simulates",
        ),
        ("model: qwen3-next-80b-a3b", "its states take no room"),
        (
            "model: deepseek-v4-flash",
            "its states and windows take no room and limit no hit; no setting simulates",
        ),
        ("model: llama-3-8b", ""),
        ("model: gpt-oss-20b\ncache: {layer_groups: by-kind}", ""),
        ("model: gpt-oss-20b\ncache: {layer_groups: as-full}", ""),
        ("model: gpt-oss-20b\ncache: {semantics: vllm}", ""),
    ],
)
def test_a_tree_says_once_that_it_takes_windows_and_states_for_full_attention(text, said):
    notes = load(f"{text}\ntiers: {{gpu: {{capacity: 100 blocks}}}}").notes
    told = [note for note in notes if "count as full attention" in note]
    assert len(told) == bool(said)
    assert said in "".join(told)


def test_auto_room_is_what_the_weights_leave_and_the_resolved_scenario_says_how_much():
    scenario = load()
    (tier,) = scenario.settings.machines[0].tiers
    engine = EngineMemory(0.9, 8192, 1024)  # the engine's defaults on the GPU
    room = kv_room(load_model("llama-3-8b"), load_gpu("h100"), 1, engine)
    expected = room.kv_bytes // (512 * 131_072)
    assert room.kv_bytes / 2**30 == pytest.approx(51.4, abs=0.1)
    assert load("replica: {max_num_seqs: 256}").settings == scenario.settings  # a default that is written
    fewer = load("replica: {max_num_seqs: 128}")
    assert fewer.settings.machines[0].tiers[0].capacity_blocks > expected
    assert "8,192 tokens and 128 sequences" in fewer.notes[0]
    assert tier == TierSettings("gpu", expected)
    assert scenario.resolved["tiers"]["gpu"]["capacity"] == f"{expected} blocks"
    assert scenario.notes == (f"tiers.gpu.capacity: auto is {expected} blocks here: {room}",)
    given = load("tiers: {gpu: {capacity: 3 blocks}}")
    assert given.notes == ()
    assert given.gpu_capacity.sentence == (
        f"tiers.gpu.capacity: 3 blocks as given; the GPU's memory would hold {expected} blocks: {room}"
    )
    too_many = load(f"tiers: {{gpu: {{capacity: {expected + 1} blocks}}}}")
    assert too_many.settings.machines[0].tiers[0].capacity_blocks == expected + 1
    assert too_many.notes == (too_many.gpu_capacity.sentence,)
    assert load("tiers: {gpu: {capacity: unbounded}}").gpu_capacity is None
    other = load("cluster: {machines: 2}\nmachines: [{replica: {step_time: a100-llama-3-8b-tp1}}]")
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
            # drafts need what is accepted of them
            beside = ["replica.speculation.mean_length=2"] if path.startswith("replica.speculation.") else []
            if path.startswith("cluster.pool."):  # and a pool its room
                beside = ["cluster.pool.capacity=9GiB", "tiers.cpu.capacity=9GiB"]
            beside += ["models.of.x.machines=1"] if path.startswith("models.") else []
            load("trace: {path: t.jsonl}", *beside, f"{path}={default}")
    assert given.keys() <= {name.replace("NAME", "x") for name, default in shown.items() if default == "*"}
