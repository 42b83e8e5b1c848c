"""Measure scheduler iterations, KV capacity and whole request streams of a vLLM on this machine's GPU.

    python benches/record_vllm.py MODEL_DIR -o OUT --sweep 90 --trace load.jsonl --trace other.jsonl:salted

MODEL_DIR holds a ``config.json``; weights are random. Writes OUT/memory.json, iterations.csv (the input of
``kvsim calibrate fit``) and requests.csv. A trace is Mooncake JSONL with blocks of the engine's size (``kvsim
trace generate … --set block_size=16``); its arrivals are kept, open loop, in real time. ``:salted`` gives
each request blocks of its own: the same load without prefix cache.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

from vllm_engine import ITERATION_COLUMNS, REQUEST_COLUMNS, Recorder, memory_of, new_request, start_engine
from vllm_sweep import Limits, Sweep


def tokens_of(row: dict[str, Any], block_size: int, vocabulary: int) -> list[int]:
    """Return a prompt for a row of a trace: the same tokens for the same block numbers."""
    tokens: list[int] = []
    for block in row["hash_ids"]:
        draw = random.Random(block)
        tokens += [draw.randrange(10, vocabulary - 10) for _ in range(block_size)]
    return tokens[: row["input_length"]]


def read_stream(core: Any, path: str, salted: bool, vocabulary: int) -> list[tuple[float, Any]]:
    """Return the requests of a trace, ready to be sent, with their times in seconds."""
    size = core.vllm_config.cache_config.block_size
    found = []
    for index, line in enumerate(Path(path).read_text().splitlines()):
        row = json.loads(line)
        prompt = tokens_of(row, size, vocabulary)
        salt = f"own-{index}" if salted else None
        request = new_request(core, f"{index}", prompt, row["output_length"], salt)
        found.append((row["timestamp"] / 1000, request))
    return found


def main() -> None:
    """Start the engine, then run the sweep and the streams."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parse.add_argument("model")
    parse.add_argument("-o", "--out", required=True)
    parse.add_argument("--sweep", type=float, default=0, help="seconds of the sweep")
    parse.add_argument("--trace", action="append", default=[], help="FILE or FILE:salted")
    parse.add_argument("--set", action="append", default=[], help="KEY=JSON of vLLM's EngineArgs")
    parse.add_argument("--seed", type=int, default=0)
    asked = parse.parse_args()
    out = Path(asked.out)
    out.mkdir(parents=True, exist_ok=True)
    settings = {key: json.loads(value) for key, _, value in (pair.partition("=") for pair in asked.set)}
    core = start_engine(asked.model, settings)
    report(core, out)
    recorder = Recorder(core)
    vocabulary = core.vllm_config.model_config.get_vocab_size()
    with open(out / "iterations.csv", "w") as steps, open(out / "requests.csv", "w") as requests:
        print(ITERATION_COLUMNS, file=steps)
        print(REQUEST_COLUMNS, file=requests)
        if asked.sweep or asked.trace:
            warm_up(core, recorder, vocabulary, asked.seed)
        if asked.sweep:
            start = time.perf_counter_ns()
            cells = Sweep(core, recorder, vocabulary, asked.seed).run(limits_of(core, asked.sweep))
            print(f"sweep: {cells} cells, {len(recorder.steps)} iterations", flush=True)
            steps.writelines(line + "\n" for line in recorder.rows("sweep", start))
            recorder.requests("sweep", start)
        for trace in asked.trace:
            path, _, mode = trace.partition(":")
            segment = Path(path).stem + (f"-{mode}" if mode else "")
            stream = read_stream(core, path, mode == "salted", vocabulary)
            core.reset_prefix_cache()
            start = recorder.stream(stream)
            took = (time.perf_counter_ns() - start) / 1e9
            print(f"{segment}: {len(stream)} requests in {took:.1f} s", flush=True)
            steps.writelines(line + "\n" for line in recorder.rows(segment, start))
            requests.writelines(line + "\n" for line in recorder.requests(segment, start))
            steps.flush()
            requests.flush()


def warm_up(core: Any, recorder: Recorder, vocabulary: int, seed: int) -> None:
    """Let kernels be compiled before any timing: run a few small cells of the sweep and discard them."""
    limits = limits_of(core, 4.0)
    small = Limits(min(limits.kv_tokens, 40_000), 32, limits.step_tokens, 6.0, limits.length)
    Sweep(core, recorder, vocabulary, seed + 1).run(small)
    recorder.steps.clear()
    recorder.sent.clear()
    core.reset_prefix_cache()


def limits_of(core: Any, seconds: float) -> Limits:
    """Return the limits of a sweep under the engine's own settings."""
    config = core.vllm_config
    cache, scheduler = config.cache_config, config.scheduler_config
    tokens = cache.num_gpu_blocks * cache.block_size
    most, length = scheduler.max_num_batched_tokens, config.model_config.max_model_len
    return Limits(tokens, scheduler.max_num_seqs, most, seconds, length)


def report(core: Any, out: Path) -> None:
    """Write the engine's configuration and its division of memory."""
    import torch
    import vllm

    config = core.vllm_config
    found = {
        "vllm": vllm.__version__,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none",
        "model": config.model_config.model,
        "architecture": config.model_config.architectures,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "async_scheduling": config.scheduler_config.async_scheduling,
        "gpu_memory_utilization": config.cache_config.gpu_memory_utilization,
        "max_cudagraph_capture_size": config.compilation_config.max_cudagraph_capture_size,
        **memory_of(core),
    }
    (out / "memory.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
