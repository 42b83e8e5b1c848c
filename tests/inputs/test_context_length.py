"""The context of a model, from its configuration, and ``replica.max_model_len``, which defaults to it."""

import json
import re

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.hugging_face.configuration import model_of
from kvcache_sim.model.model_file import load_model, model_names
from kvcache_sim.model.model_spec import ContextLength, context_length
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from support.product.models import model_text, parse_model
from support.shared_files import DATA

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 512,
}


#: Fields of a configuration → the context by default and at most, as vLLM 0.33 derives them: of the length keys,
#: of which Command-R's longer one counts before all others; with the factor of a scaling that the length does not
#: include; of long RoPE, by default the original; and of one scaling for each kind of layer.
CASES = """
    {} → 2_048 None
    {"max_position_embeddings": 131072} → 131_072 131_072
    {"n_positions": 1024} → 1_024 1_024
    {"max_seq_len": 32768} → 32_768 32_768
    {"seq_length": 8192} → 8_192 8_192
    {"max_target_positions": 448} → 448 448
    {"max_sequence_length": 4000} → 4_000 4_000
    {"max_seq_length": 512} → 512 512
    {"seq_len": 99} → 99 99
    {"max_position_embeddings": 131072.0} → 131_072 131_072
    {"max_position_embeddings": 8192, "seq_length": 4096, "n_positions": null} → 4_096 4_096
    {"max_position_embeddings": 8192, "model_max_length": 131072} → 131_072 131_072
    {"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "linear", "factor": 4.0}} → 16_384 16_384
    {"max_position_embeddings": 4096, "rope_scaling": {"type": "dynamic", "factor": 2}} → 8_192 8_192
    {"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "linear", "factor": 1.5}} → 6_144 6_144
    {"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "default"}} → 4_096 4_096
    {"max_position_embeddings": 4096, "rope_scaling": null} → 4_096 4_096
    {"rope_scaling": {"rope_type": "linear", "factor": 4.0}} → 8_192 None
    {"max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0}} → 131_072 131_072
    {"max_position_embeddings": 163840,
        "rope_scaling": {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}} → 163_840 163_840
    {"max_position_embeddings": 32768,
        "rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}} → 32_768 32_768
    {"max_position_embeddings": 163840,
        "rope_scaling": {"rope_type": "deepseek_yarn", "factor": 40}} → 163_840 163_840
    {"max_position_embeddings": 131072, "model_type": "gemma3_text",
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}} → 131_072 131_072
    {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}} → 4_096 131_072
    {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "su"}} → 4_096 131_072
    {"max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "longrope", "factor": 8.0}} → 131_072 131_072
    {"max_position_embeddings": 8192, "original_max_position_embeddings": 4096} → 8_192 8_192
    {"max_position_embeddings": 8192,
        "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0},
        "sliding_attention": {"rope_type": "default"}}} → 65_536 65_536
    {"max_position_embeddings": 262144,
        "rope_parameters": {"full_attention": {"rope_type": "proportional"},
        "sliding_attention": {"rope_type": "default"}}} → 262_144 262_144
    """


@pytest.mark.parametrize("row", CASES.strip().replace("\n        ", " ").splitlines())
def test_the_context_of_a_configuration_and_of_a_model_file_with_its_fields(row):
    text, _, lengths = row.partition(" → ")
    fields = json.loads(text)
    expected = ContextLength(*(None if own == "None" else int(own) for own in lengths.split()))
    assert context_length(fields, "config.json") == expected
    spec = model_of({**LLAMA, **fields}, "m", "config.json")
    assert spec.context == expected
    nested = {"model_type": "m", "architectures": ["LlamaForCausalLM"], "text_config": {**LLAMA, **fields}}
    assert model_of(nested, "m", "config.json").context == expected


def test_a_model_file_takes_the_same_fields_and_keeps_what_it_writes(tmp_path):
    text = model_text(load_model("llama-3.1-8b"))
    assert "max_position_embeddings = 131072\n" in text
    for line, expected in (
        ("max_position_embeddings = 131072", ContextLength(131_072, 131_072)),
        ("", ContextLength(2048, None)),
        ('seq_length = 4096\nrope_scaling = { type = "linear", factor = 2.0 }', ContextLength(8192, 8192)),
    ):
        path = tmp_path / "own.toml"
        path.write_text(text.replace("max_position_embeddings = 131072", line))
        assert load_model(str(path)).context == expected
    phi = {
        **LLAMA,
        "max_position_embeddings": 131_072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "longrope"},
    }
    for name, spec in (("phi", model_of(phi, "phi", "x")), ("llama-2-7b", load_model("llama-2-7b"))):
        path = tmp_path / f"{name}.toml"
        path.write_text(model_text(spec))
        assert load_model(str(path)).context == spec.context


def test_the_packaged_models_have_their_makers_context():
    lengths = {name: load_model(name).context for name in model_names()}
    long_rope = {name for name, own in lengths.items() if own.longest_tokens != own.default_tokens}
    assert long_rope == {"phi-3.5-mini", "phi-4-mini"}
    assert {lengths[name].default_tokens for name in long_rope} == {4096}
    stated = {name: own.longest_tokens for name, own in lengths.items()}
    makers = """llama-2-7b 4096; llama-3-8b 8192; llama-3.1-8b 131_072; llama-4-scout 10_485_760
        mixtral-8x7b 32_768; qwen3-32b 40_960; deepseek-v3 163_840; gpt-oss-120b 131_072; glm-5 202_752
        qwen3.5-35b-a3b 262_144; gemma-3-27b 131_072; minimax-m2.5 196_608; glm-5.2 1_048_576; kimi-k3 1_048_576"""
    for name, tokens in (own.split() for own in makers.replace("\n", ";").split(";")):
        assert stated[name] == int(tokens), name
    assert None not in stated.values()


BASE = """
workload: {kind: conversational, requests: 8, block_size: 16}
cache: {block_size: 16}
tiers: {gpu: {capacity: 1000 blocks}}
"""


def served(*overrides: str, text: str = BASE):
    return scenario_from_text(text, "s", DATA, overrides)


def context(*overrides: str):
    return served(*overrides).settings.machines[0].replica.max_model_len


@pytest.mark.parametrize(
    ("overrides", "tokens"),
    [
        ([], 131_072),
        (["model=llama-3-8b"], 8192),
        (["replica.step_time=h100-llama-3-8b-tp1"], 8192),
        (["replica.step_time=roofline:qwen3-32b@h100"], 40_960),
        (["replica.max_model_len=9000"], 9000),
        (["replica.max_model_len=131072"], 131_072),
        (["replica.max_model_len=131073", "replica.allow_long_max_model_len=true"], 131_073),
        # the longest that fits the GPU, at most the model's
        (["replica.max_model_len=auto"], 16_000),
        (["replica.max_model_len=-1"], 16_000),
        (["replica.max_model_len=auto", "tiers.gpu.capacity=2GiB"], 2 * 2**30 // 131_072),
        (["replica.max_model_len=auto", "tiers.gpu.capacity=unbounded"], 131_072),
        (["replica.max_model_len=auto", "tiers.gpu.capacity=20000 blocks"], 131_072),
        # questions about a cache alone have no context, unless one is given
        (["replica.instant=true"], None),
        (["cache.accounting=simplified"], None),
        (["replica.instant=true", "replica.max_model_len=500"], 500),
        (["cache.accounting=simplified", "replica.max_model_len=500"], 500),
        (["cache.enabled=false"], 131_072),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, list) else str(case),
)
def test_the_context_of_a_scenario(overrides, tokens):
    assert context(*overrides) == tokens
    again = scenario_from_text(json.dumps(served(*overrides).resolved), "again", DATA)
    assert again.settings.machines[0].replica.max_model_len == tokens


def test_auto_is_the_longest_sequence_that_a_pool_of_cache_groups_can_hold(tmp_path):
    own = [
        "model=gpt-oss-20b",
        "cache.semantics=vllm",
        "replica.max_model_len=auto",
        "tiers.gpu.capacity=900 blocks",
    ]
    scenario = served(*own)
    tokens = scenario.settings.machines[0].replica.max_model_len
    assert tokens is not None
    assert 16 < tokens < 131_072
    rows = [
        {"timestamp": 0, "input_length": n, "output_length": 1, "hash_ids": [*range(-(-n // 16))]}
        for n in (tokens - 1, tokens)
    ]
    longer = [f"replica.max_model_len={tokens + 32}"]
    for overrides, statuses in ((own, [0, 1]), ([*own, *longer], [0, 0])):
        assert ran(tmp_path, overrides, rows).run.requests["status"].tolist() == statuses


def ran(folder, overrides, rows):
    path = folder / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"trace: {{path: {path}, block_size: 16}}\ncache: {{block_size: 16}}\n"
    scenario = scenario_from_text(text, "s", folder, overrides)
    return execute(scenario, read_requests(scenario), RunOptions())


def test_each_model_of_a_fleet_has_its_own_context(tmp_path):
    of = """
        models.of.old.machines=1 models.of.old.model=llama-3-8b models.of.new.machines=1
        cluster.machines=2 models.of.old.step_time=h100-llama-3-8b-tp1
    """.split()
    rows = [
        {
            "timestamp": k,
            "input_length": n,
            "output_length": 64,
            "hash_ids": [*range(k * 900, k * 900 + n // 16)],
            "model": name,
        }
        for k, (n, name) in enumerate([(8192, "old"), (8192, "new"), (8160, "old"), (8160, "new")])
    ]
    done = ran(tmp_path, of, rows)
    assert done.run.requests["status"].tolist() == [1, 0, 0, 0]
    assert done.run.requests["output_tokens"].tolist()[1:] == [64, 32, 64]
    assert done.summary["requests"]["rejected_beyond_context"] == 1


def test_a_context_that_the_model_does_not_have_is_one_line():
    for overrides, words in (
        (["replica.max_model_len=131073"], "got 131,073 tokens; expected at most 131,072"),
        (
            ["model=llama-2-7b", "replica.max_model_len=8192"],
            "expected at most 4,096; name a model with more",
        ),
    ):
        with pytest.raises(UsageError) as refused:
            served(*overrides)
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)


AUTO = "workload: {kind: conversational, requests: 8, block_size: 16}\ncache: {block_size: 16}\n"
SMALL = "replica.step_time=roofline:llama-3.1-8b@rtx4090"


def test_a_gpu_that_holds_no_request_of_the_context_is_refused_in_one_line():
    """As vLLM at its start: blocks needed and there, and the longest length that fits, to the block."""
    with pytest.raises(UsageError) as refused:
        served(SMALL, text=AUTO)
    said = str(refused.value)
    assert "\n" not in said
    most = int(re.findall(r"expected at most ([\d,]+) tokens", said)[0].replace(",", ""))
    there = most // 16
    assert (
        f"got 131,072 tokens, which need 8,192 blocks (16 GiB), and {there:,} blocks ({there / 512:.3g} GiB) there"
        in said
    )
    assert f"set replica.max_model_len={most} or auto" in said
    assert (
        served(SMALL, "replica.max_model_len=auto", text=AUTO).settings.machines[0].replica.max_model_len
        == most
    )
    assert (
        served(SMALL, f"replica.max_model_len={most}", text=AUTO)
        .settings.machines[0]
        .tiers[0]
        .capacity_blocks
        == there
    )
    with pytest.raises(UsageError, match="holds no request"):
        served(SMALL, f"replica.max_model_len={most + 1}", text=AUTO)


@pytest.mark.parametrize(
    "overrides",
    [
        ["tiers.gpu.capacity=100 blocks"],
        ["tiers.gpu.capacity=1GiB"],
        ["replica.instant=true"],
        ["cache.accounting=simplified"],
        ["replica.scheduler=sglang"],  # it starts, and refuses such requests one by one
        ["replica.step_time=roofline:llama-3.1-8b@h100"],
    ],
)
def test_blocks_that_are_given_and_runs_without_an_engine_are_not_refused(overrides):
    assert served(SMALL, *overrides, text=AUTO).settings.machines


def test_the_context_of_a_model_of_cache_groups_needs_what_its_windows_leave():
    """Windows are short: gpt-oss needs a quarter of the blocks that full attention in every layer would."""
    own = ["replica.step_time=roofline:gpt-oss-20b@rtx4090", "cache.semantics=vllm"]
    most = served(*own, "replica.max_model_len=auto", text=AUTO).settings.machines[0].replica.max_model_len
    assert most == 131_072
    with pytest.raises(UsageError, match="holds no request") as refused:
        served(*own, "replica.max_model_len=9000000", "replica.allow_long_max_model_len=true", text=AUTO)
    longest = int(re.findall(r"expected at most ([\d,]+) tokens", str(refused.value))[0].replace(",", ""))
    for length, is_held in ((longest, True), (longest + 16, False)):
        given = [*own, f"replica.max_model_len={length}", "replica.allow_long_max_model_len=true"]
        if is_held:
            assert served(*given, text=AUTO).settings.machines[0].replica.max_model_len == length
        else:
            with pytest.raises(UsageError, match="holds no request"):
                served(*given, text=AUTO)


def test_a_model_whose_configuration_states_no_length_takes_any(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    assert context(f"model={path}") == 2048
    assert context(f"model={path}", "replica.max_model_len=100000") == 100_000


def test_a_file_of_no_length_is_refused():
    layer = {"layers": "0", "attention": {"kind": "full", "heads": 1, "kv_heads": 1, "head_size": 1}}
    with pytest.raises(UsageError, match="seq_len is no length; got 0"):
        parse_model({"hidden_size": 1, "vocab_size": 1, "seq_len": 0, "group": [layer]}, "m", "m.toml")


def test_a_machine_of_its_own_is_refused_too():
    machines = [
        "cluster.machines=2",
        "machines=[{}, {replica: {step_time: 'roofline:llama-3.1-8b@rtx4090'}}]",
    ]
    with pytest.raises(UsageError, match="holds no request"):
        served(*machines, text=AUTO)
    assert (
        served(*machines, "replica.max_model_len=20000", text=AUTO).settings.machines[1].replica.max_model_len
        == 20_000
    )
