"""Which flag of an engine is which setting of a scenario.

vLLM: docs.vllm.ai, ``vllm serve --help`` of 0.19; SGLang: docs.sglang.ai, server arguments of 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine's launch line."""

    name: str
    #: How a line begins, the first the one that is printed.
    starts: tuple[tuple[str, ...], ...]
    #: Flags that name the model, the first the one that is printed; "" is a word of its own.
    models: tuple[str, ...]
    tensor_parallel: str
    replicas: str
    #: flag → setting whose value is the flag's.
    same: dict[str, str]
    #: flag → setting in blocks or GB of the flag's number.
    sized: dict[str, tuple[str, str]]
    #: flag without a value → setting and what it becomes.
    switches: dict[str, tuple[str, str]]
    #: flag → setting, with the engine's words for kvsim's.
    words: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    short: dict[str, str] = field(default_factory=dict)
    #: What the engine does unless told otherwise, where kvsim's default is another.
    defaults: dict[str, str] = field(default_factory=dict)


_KV = {"auto": "", "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bfloat16": "bf16", "bf16": "bf16"}
_ON = {"true": "true", "false": "false", "": "true"}

VLLM = Engine(
    "vllm",
    (("vllm", "serve"), ("-m", "vllm.entrypoints.openai.api_server")),
    ("--model", ""),
    "--tensor-parallel-size",
    "--data-parallel-size",
    {
        "--block-size": "cache.block_size",
        "--max-num-seqs": "replica.max_num_seqs",
        "--max-num-batched-tokens": "replica.max_num_batched_tokens",
        "--max-model-len": "replica.max_model_len",
        "--gpu-memory-utilization": "replica.gpu_memory_utilization",
        "--seed": "seed",
    },
    {
        "--num-gpu-blocks-override": ("tiers.gpu.capacity", "{} blocks"),
        "--kv-offloading-size": ("tiers.cpu.capacity", "{}GiB"),
    },
    {
        "--no-enable-prefix-caching": ("cache.enabled", "false"),
        "--enable-prefix-caching": ("cache.enabled", "true"),
        "--async-scheduling": ("replica.async_scheduling", "stop-token"),
    },
    {"--kv-cache-dtype": ("cache.kv_dtype", _KV)},
    {"-tp": "--tensor-parallel-size", "-dp": "--data-parallel-size"},
    {"cache.block_size": "16"},
)

SGLANG = Engine(
    "sglang",
    (("python", "-m", "sglang.launch_server"), ("-m", "sglang.launch_server"), ("sglang", "serve")),
    ("--model-path", "--model", ""),
    "--tp-size",
    "--dp-size",
    {
        "--page-size": "cache.block_size",
        "--max-running-requests": "replica.max_num_seqs",
        "--chunked-prefill-size": "replica.max_num_batched_tokens",
        "--context-length": "replica.max_model_len",
        "--mem-fraction-static": "replica.gpu_memory_utilization",
        "--random-seed": "seed",
    },
    {"--hicache-size": ("tiers.cpu.capacity", "{}GB")},
    {"--disable-radix-cache": ("cache.enabled", "false")},
    {
        "--kv-cache-dtype": ("cache.kv_dtype", _KV),
        "--radix-eviction-policy": ("cache.policy", {name: name for name in ("lru", "lfu", "fifo", "mru")}),
        "--hicache-write-policy": (
            "write.policy",
            {"write_through": "through", "write_back": "back", "write_through_selective": "selective"},
        ),
    },
    {"--tp": "--tp-size", "--tensor-parallel-size": "--tp-size", "--dp": "--dp-size"},
    {"cache.block_size": "1"},
)

ENGINES = (VLLM, SGLANG)
