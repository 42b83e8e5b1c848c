"""Small stand-ins for the files and runs that pages and help texts name."""

import contextlib
import json
import shutil
from pathlib import Path

import kvcache_sim as kv
import numpy as np
from kvcache_sim.cli.main import run as kvsim
from support.agent_logs import plan, play

POLICY = "def depth_lfu(b, now):\n    return (b.hits, -b.depth, b.last_use)\n"
SWEEP = """scenario: {workload: {kind: conversational, requests: 60}, cost: {gpu_hour: 3}}
random: {space: {tiers.cpu.capacity: {choice: [1GiB, 2GiB]}}, draws: 2}
"""
BODY = '{"model": "claude-sonnet-4-6", "messages": [{"role": "user", "content": "look at the log"}]}'
SCENARIO = (
    "workload: {kind: conversational, requests: 60}\n"
    "tiers: {gpu: {capacity: 64 blocks}, cpu: {capacity: 1GiB}}\n"
)


def iterations(degrees: tuple[int, ...] = (1,)) -> str:
    """Return measured iterations as they might be: 60 decode steps, 60 with a chunk of a prompt, per TP degree."""
    rows = [
        "tp,prefill_tokens,prefill_requests,prefill_past_kv_tokens,decode_requests,decode_kv_tokens,iter_ms"
    ]
    for tp in degrees:
        for n in range(60):
            sequences, cached, chunk = 1 + n % 16, (1 + n % 16) * (500 + 40 * n), 256 * (1 + n % 8)
            decode, mixed = (
                20 + 0.1 * sequences + cached / 1e5,
                25 + 0.05 * chunk + 0.1 * sequences + cached / 1e5,
            )
            rows.append(f"{tp},0,0,0,{sequences},{cached},{decode / tp}")
            rows.append(f"{tp},{chunk},1,0,{sequences},{cached},{mixed / tp}")
    return "\n".join(rows) + "\n"


def write_standins(index: Path) -> Path:
    """Write what the pages' commands name into a folder; returns the folder."""
    generated = ["--requests", "150", "-o", str(index / "trace.jsonl")]
    assert kvsim(["trace", "generate", "conversational", *generated]) == 0
    shutil.copy(index / "trace.jsonl", index / "conversation_trace.jsonl")
    shutil.copy(Path(__file__).parents[1] / "logs" / "openai.jsonl", index / "requests.jsonl")
    play(plan(1, calls=12, lapses=1), "session").write(index)
    (index / "main").mkdir()
    (index / "main" / "1.json").write_text(BODY)
    (index / "s.yaml").write_text(SCENARIO)
    (index / "sweep.yaml").write_text(SWEEP)
    (index / "mypolicy.py").write_text(POLICY)
    np.save(index / "corpus.npy", np.arange(1000, 6000, dtype=np.int32))
    (index / "rows.csv").write_text(iterations())
    configuration = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "torch_dtype": "bfloat16",
        "max_position_embeddings": 131072,
    }
    (index / "config.json").write_text(json.dumps(configuration))
    runs = {"A": "64 blocks", "B": "128 blocks", "RUN": "96 blocks"}
    chats = kv.generate("conversational", requests=60)
    for name, size in runs.items():
        kv.simulate(chats, tiers={"gpu": size}, name=name).save(index / name)
    with contextlib.chdir(index):
        assert kvsim(["models", "new", "my", "--from", "gpt-oss-20b"]) == 0
        assert kvsim(["gpus", "new", "mygpu"]) == 0
    return index
