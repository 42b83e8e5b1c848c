"""Flags of engines and the scenario settings that they correspond to.

vLLM: docs.vllm.ai, ``vllm serve --help`` of 0.33; SGLang: docs.sglang.io, server arguments of 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine's launch line."""

    name: str
    #: Commands that start a line; the first is printed.
    starts: tuple[tuple[str, ...], ...]
    #: Flags that name the model; the first is printed. "" is a positional argument.
    models: tuple[str, ...]
    tensor_parallel: str
    replicas: str
    #: flag → setting with the flag's value.
    same: dict[str, str]
    #: flag → setting in blocks or GB with the flag's number.
    sized: dict[str, tuple[str, str]]
    #: Flags of these that give sizes of one GPU: multiplied by the GPUs of a machine.
    sized_per_gpu: frozenset[str]
    #: flag without a value → setting and its value.
    switches: dict[str, tuple[str, str]]
    #: flag → setting, with the engine's words for kvsim's.
    words: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    short: dict[str, str] = field(default_factory=dict)
    #: Engine defaults that differ from kvsim's defaults.
    defaults: dict[str, str] = field(default_factory=dict)
    #: flag → setting of the engine's own scheduler only, with the engine's words for kvsim's; without words:
    #: the flag's own value.
    own_scheduler: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    #: flag → setting that spreads one engine over several GPUs.
    spread: dict[str, str] = field(default_factory=dict)
    #: Further flags without a value: the next word is not part of the flag.
    valueless: frozenset[str] = frozenset()
    #: Flags for behavior that a run always has.
    granted: frozenset[str] = frozenset()
    #: flag → the closest setting, for which the line does not contain enough information.
    nearest: dict[str, str] = field(default_factory=dict)


_KV = {"auto": "", "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bfloat16": "bf16", "bf16": "bf16"}
_ON = {"true": "true", "false": "false", "": "true"}

VLLM = Engine(
    "vllm",
    (("vllm", "serve"), ("-m", "vllm.entrypoints.openai.api_server"), ("vllm/vllm-openai",)),
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
        "--kv-cache-memory-bytes": ("tiers.gpu.capacity", "{}B"),
    },
    frozenset({"--kv-cache-memory-bytes"}),
    {
        "--no-enable-prefix-caching": ("cache.enabled", "false"),
        "--enable-prefix-caching": ("cache.enabled", "true"),
        "--async-scheduling": ("replica.async_scheduling", "stop-token"),
        "--no-async-scheduling": ("replica.async_scheduling", "none"),
    },
    {
        "--kv-cache-dtype": ("cache.kv_dtype", _KV),
        "--scheduling-policy": ("replica.queue_order", {"fcfs": "fcfs", "priority": "priority"}),
    },
    {
        "-tp": "--tensor-parallel-size",
        "-dp": "--data-parallel-size",
        "-pp": "--pipeline-parallel-size",
        "-dcp": "--decode-context-parallel-size",
        "-pcp": "--prefill-context-parallel-size",
        "-sc": "--speculative-config",
        "-q": "--quantization",
        "-ep": "--enable-expert-parallel",
    },
    {"cache.block_size": "16"},
    {"--long-prefill-token-threshold": ("replica.long_prefill_token_threshold", {})},
    {
        "--pipeline-parallel-size": "replica.pp",
        "--decode-context-parallel-size": "replica.cp",
    },
    frozenset(
        {
            "--trust-remote-code",
            "--enable-expert-parallel",
            "--enable-eplb",
            "--enable-chunked-prefill",
            "--no-enable-chunked-prefill",
            "--enforce-eager",
            "--enable-auto-tool-choice",
            "--enable-lora",
            "--disable-custom-all-reduce",
            "--disable-cascade-attn",
            "--disable-hybrid-kv-cache-manager",
            "--disable-log-requests",
            "--disable-log-stats",
            "--enable-log-requests",
            "--enable-prompt-tokens-details",
            "--enable-sleep-mode",
            "--enable-dbo",
            "--headless",
            "--language-model-only",
            "--data-parallel-hybrid-lb",
            "--data-parallel-external-lb",
        }
    ),
    frozenset({"--enable-chunked-prefill"}),
    {
        "--kv-transfer-config": "tiers.cpu.semantics: lmcache (chunk_tokens: 256) or vllm-offload; capacity",
        "--mamba-cache-mode": "cache.layer_groups: by-kind, whose states are kept where steps end (align)",
    },
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
        "--mem-fraction-static": "replica.mem_fraction_static",
        "--random-seed": "seed",
    },
    {
        "--hicache-size": ("tiers.cpu.capacity", "{}GB"),
        "--max-total-tokens": ("tiers.gpu.capacity", "{} tokens"),
    },
    frozenset({"--hicache-size"}),
    {
        "--disable-radix-cache": ("cache.enabled", "false"),
        "--disable-overlap-schedule": ("replica.async_scheduling", "none"),
    },
    {
        "--kv-cache-dtype": ("cache.kv_dtype", _KV),
        "--radix-eviction-policy": (
            "cache.policy",
            {name: name for name in ("lru", "lfu", "fifo", "mru", "slru")},
        ),
        "--hicache-write-policy": (
            "write.policy",
            {"write_through": "through", "write_back": "back", "write_through_selective": "selective"},
        ),
    },
    {
        "--tp": "--tp-size",
        "--tensor-parallel-size": "--tp-size",
        "--dp": "--dp-size",
        "--data-parallel-size": "--dp-size",
        "--pp": "--pp-size",
        "--ep": "--ep-size",
    },
    {"cache.block_size": "1"},
    {
        "--schedule-policy": (
            "replica.schedule_policy",
            {name: name for name in ("fcfs", "lpm", "dfs-weight", "lof")},
        ),
        "--schedule-conservativeness": ("replica.schedule_conservativeness", {}),
        "--max-prefill-tokens": ("replica.max_prefill_tokens", {}),
        "--enable-mixed-chunk": ("replica.enable_mixed_chunk", {"": "true"}),
    },
    valueless=frozenset(
        {
            "--trust-remote-code",
            "--enable-hierarchical-cache",
            "--enable-dp-attention",
            "--enable-dp-lm-head",
            "--enable-ep-moe",
            "--enable-deepep-moe",
            "--enable-eplb",
            "--enable-two-batch-overlap",
            "--enable-mixed-chunk",
            "--enable-torch-compile",
            "--enable-metrics",
            "--enable-cache-report",
            "--enable-lora",
            "--enable-priority-scheduling",
            "--disable-cuda-graph",
            "--disable-custom-all-reduce",
            "--enable-lmcache",
            "--skip-server-warmup",
            "--log-requests",
        }
    ),
    nearest={
        "--enable-hierarchical-cache": "tiers.cpu: {capacity: SIZE, semantics: hicache}",
        "--hicache-ratio": "tiers.cpu.capacity, so many times the gpu's",
        "--enable-lmcache": "tiers.cpu.semantics: lmcache",
    },
)

ENGINES = (VLLM, SGLANG)
