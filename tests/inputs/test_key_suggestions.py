"""A key that a section does not have leads to the one that was meant: an engine's word, or another section's
key."""

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.key_list import key_lines
from kvcache_sim.scenario.key_suggestions import meant_by
from kvcache_sim.scenario.launch.flags import launch_engines
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.schema import ScenarioModel
from support.shared_files import ROOT

KEYS = {line.split()[0] for line in key_lines()}

SAID = {
    # vLLM's and SGLang's own words
    "max_num_seqs=3": "did you mean 'replica.max_num_seqs'?",
    "kv_cache_dtype=fp8": "did you mean 'cache.kv_dtype'?",
    "cache.kv_cache_dtype=fp8": "did you mean 'cache.kv_dtype'?",
    "enable_prefix_caching=false": "did you mean 'cache.enabled'?",
    "mem_fraction_static=0.8": "did you mean 'replica.mem_fraction_static'?",
    "hicache_size=30": "did you mean 'tiers.cpu.capacity'?",
    "data-parallel-size=2": "did you mean 'replica.dp'?",
    "replica.tp=2": "replica.step_time names it: roofline:llama-3.1-8b@h100:tp2",
    "tensor_parallel_size=2": "replica.step_time names it",
    "gpu=h200": "replica.step_time names the GPU",
    # keys of other sections
    "block_size=16": "did you mean 'cache.block_size'?",
    "cache.capacity=64GiB": "did you mean 'tiers.gpu.capacity' or 'tiers.cpu.capacity' or 'tiers.disk.capacity' or ",
    "write_policy=through": "did you mean 'write.policy'?",
    "prefill=4": "did you mean 'pools.prefill'?",
    "tiers.ssd.capacity=4TB": "did you mean 'disk'?",
    "max_modl_len=3": "did you mean 'replica.max_model_len'?",
    # the nearest of its own section, or all of them
    "cach=1": "did you mean 'cache'?",
    "replica.foo=1": "known keys: instant, ",
    # a value where a section is wanted
    "tiers.cpu=64GiB": "did you mean 'tiers.cpu.capacity'?",
    "router=longest-prefix": "did you mean 'router.policy'?",
    "cluster=4": "did you mean 'cluster.machines'?",
    # dropped
    "offline.batch=4": "unknown key 'offline'; offline batches were dropped in 0.2; 'workload.loop: closed'",
    "offline={samples: 4}": "unknown key 'offline'; offline batches were dropped in 0.2; 'workload.loop: closed'",
    "models.of.b.shares=a": "'models.of.b.shares'; models that share machines were dropped in 0.2; 'models.of.NAME",
    "models.of.b.weights=16GB": "models that share machines were dropped in 0.2",
    "models.load_rate=7GB/s": "models that share machines were dropped in 0.2",
    "models.sleep_rate=7GB/s": "models that share machines were dropped in 0.2",
    "adapters.slots=2": "'adapters.slots'; slots of adapters were dropped in 0.2; 'adapters.field'",
    "adapters.size=2GB": "slots of adapters were dropped in 0.2",
    "adapters.load_rate=7GB/s": "slots of adapters were dropped in 0.2",
    "retention.pin_s={bash: 1}": "pins were dropped in 0.2; 'retention.ttl_s'",
    # but not elsewhere
    "cluster.slots=2": "known keys: machines",
    "machines=4": "how many equal ones there are is 'cluster.machines'",
}


@pytest.mark.parametrize("setting", SAID)
def test_a_wrong_key_leads_to_the_one_that_was_meant(setting):
    with pytest.raises(UsageError) as refused:
        scenario_from_text("", "s.yaml", ROOT, [setting])
    assert SAID[setting] in str(refused.value)


def test_a_key_of_many_sections_names_them():
    assert meant_by(ScenarioModel, ("policy",), ["seed"]).count(" or ") >= 4


@pytest.mark.parametrize("engine", launch_engines(), ids=lambda engine: engine.name)
def test_every_flag_of_an_engine_leads_to_a_key_or_section_that_there_is(engine):
    sections = {key[:at] for key in KEYS for at in range(len(key)) if key[at] == "."}
    for flag in (flag for flag in engine.flags.values() if flag.key):
        assert flag.key in KEYS | sections, flag.name
        if flag.key == "replica.step_time":
            continue
        hint = meant_by(ScenarioModel, (flag.name.strip("-").replace("-", "_"),), ["nothing"])
        assert hint.removeprefix("did you mean '").removesuffix("'?") in KEYS | sections, (flag, hint)
