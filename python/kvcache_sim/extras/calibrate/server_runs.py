"""Real servers listed by ``aiconfigurator-core``, half of them held out, and their launch settings."""

from __future__ import annotations

import csv
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from kvcache_sim.extras.calibrate.aiconfigurator.deployment import Deployment, Dtypes, library_model
from kvcache_sim.extras.calibrate.aiconfigurator.library import installed_folder

#: Decode steps between two polls for new requests, with at least this many clients, and with fewer.
_MANY_CLIENTS, _POLL_MANY, _POLL_FEW = 16, 30, 10
#: From this version on vLLM schedules asynchronously by default.
_ASYNC_VLLM = (0, 14)


@dataclass(frozen=True, slots=True)
class Workload:
    """The inputs of the choice of a launch script: model, GPU and format, degree, clients, lengths."""

    model: str
    system: str
    precision: str
    tensor_parallel: int
    clients: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Scheduling rules of a server for prompts.

    ``budget_tokens`` of prompts and decodes at most per step; ``with_decodes``: in the same steps as decodes
    (vLLM) or in separate steps before them (SGLang); ``overlapped``: a step is scheduled while the previous
    one runs; ``poll_steps``: new requests are polled once in this many decode steps
    (``--scheduler-recv-interval``), and after each step with a prompt.
    """

    budget_tokens: int = 8192
    with_decodes: bool = True
    overlapped: bool = True
    poll_steps: int = 1


def launch_of(engine: str, version: str, workload: Workload, *, public: bool) -> Launch:
    """Return a server's launch settings; ``public``: by the public benchmark's scripts."""
    if engine == "vllm":
        return _vllm(version, workload, public=public)
    return _sglang(workload) if public else Launch(with_decodes=False)


def _vllm(version: str, workload: Workload, *, public: bool) -> Launch:
    """Its default budget on these GPUs is 8,192; MiniMax on Blackwell has a budget of two prompts."""
    # The scripts of models without a version set ``async-scheduling: true``.
    overlapped = (public and not version) or _number(version) >= _ASYNC_VLLM
    if public and "MiniMax" in workload.model and not _hopper(workload):
        return Launch(budget_tokens=2 * workload.prompt_tokens, overlapped=overlapped)
    return Launch(overlapped=overlapped)


def _sglang(workload: Workload) -> Launch:
    hopper, poll = _hopper(workload), _POLL_MANY if workload.clients >= _MANY_CLIENTS else _POLL_FEW
    budget = 32_768
    if "GLM" in workload.model:
        budget, poll = 8192 if hopper else budget, 1
    elif "Qwen3.5" in workload.model:
        if hopper:
            budget, poll = 16_384, 1
        elif workload.system.startswith("b300") and workload.precision == "fp8":
            budget, poll = 16_384, _POLL_FEW
        elif workload.precision == "fp4" and workload.system.startswith("b200"):
            poll = _POLL_MANY
    elif hopper:
        poll = 1
    elif workload.precision == "fp4":
        budget = 16_384
    elif workload.tensor_parallel == 4:
        budget, poll = 8192, _POLL_FEW
    return Launch(budget, with_decodes=False, poll_steps=poll)


def _hopper(workload: Workload) -> bool:
    return workload.system.startswith(("h100", "h200"))


def _number(version: str) -> tuple[int, ...]:
    """Return the version's first two numbers; a nightly build is later than any release."""
    parts = version.split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (99,)


_ENGINES = ("vllm", "sglang")
#: GPUs of one machine; only GB200 racks have more.
_MACHINE_GPUS = 8
_RACKS = "gb200"
#: Marker in a row's source: a run of the library's own, not of the public benchmark.
_OWN_RUN = "auto-gap-analysis"


@dataclass(frozen=True, slots=True)
class ServerRun:
    """One run: deployment, launch settings, load, and measured times in ms; lengths are nominal.

    ``together``: prompts arrive together, round by round, all of the nominal length.
    """

    deployment: Deployment
    launch: Launch
    label: tuple[str, str, str]
    configuration: str
    prompt_tokens: int
    output_tokens: int
    concurrency: int
    together: bool
    ttft_ms: float
    tpot_ms: float


def server_runs(path: Path | None = None) -> tuple[list[ServerRun], int]:
    """Return the distinct runs of the visible half, and the number of all distinct runs.

    The visible half: the first byte of the SHA-256 of the configuration is even.
    """
    path = path or installed_folder() / "systems" / "silicon_sample.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] == "agg" and row["backend"] in _ENGINES]
    provenance = {"id", "silicon_data_source"}
    distinct = {tuple(value for key, value in row.items() if key not in provenance): row for row in rows}
    keys = {key: configuration_key(row) for key, row in distinct.items()}
    runs = [_run(row, keys[key]) for key, row in distinct.items() if not first_byte_is_odd(keys[key])]
    return runs, len(distinct)


def configuration_key(row: dict[str, str]) -> str:
    """Return ``backend|model_path|system|precision|isl|osl|tp|pp|dp|moe_tp|moe_ep``, degrees as integers."""
    words = [row[key] for key in ("backend", "model_path", "system", "precision", "isl", "osl")]
    degrees = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    return "|".join((*words, *(str(int(float(row[key]))) if row[key] else "" for key in degrees)))


def first_byte_is_odd(key: str) -> bool:
    """True if a configuration belongs to the held-out half."""
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 1


def degrees_that_fit(system: str, tensor: int, data: int, expert: int) -> tuple[int, int, int]:
    """Return corrected TP, DP and EP degrees of a row.

    ``tp 64, ep 8`` is the product of the degrees in the row's name, TP 8 and EP 8 on the same GPUs. ``tp 4,
    dp 4, ep 16`` is four ranks of attention on four GPUs: the benchmark's ``dp-attn`` counts the same GPUs
    twice.
    """
    if tensor * data <= _MACHINE_GPUS or system.startswith(_RACKS):
        return tensor, data, expert
    if data == 1 and tensor == expert * expert:
        return expert, 1, expert
    if data == tensor and expert == tensor * data:
        return 1, data, data
    return tensor, data, expert


def _run(row: dict[str, str], key: str) -> ServerRun:
    def degree(name: str) -> int:
        return int(float(row[name])) if row[name] else 1

    weights, experts = row["gemm_quant_mode"], row["moe_quant_mode"]
    if row["precision"] == "bf16":
        weights = experts = "bfloat16"
    tensor, data, expert = degrees_that_fit(
        row["system"], degree("tp_size"), degree("attention_dp_size"), degree("moe_ep_size")
    )
    deployment = Deployment(
        library_model(row["model_path"]),
        row["system"],
        row["backend"],
        tensor_parallel=tensor,
        pipeline_parallel=degree("pp_size"),
        data_parallel=data,
        expert_parallel=expert,
        dtypes=Dtypes(weights, experts),
    )
    provenance = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
    clients = int(provenance[1]) if provenance else int(float(row["batch_size"]))
    prompt = int(float(row["isl"]))
    public = _OWN_RUN not in row["silicon_data_source"]
    workload = Workload(row["model_path"], row["system"], row["precision"], tensor, clients, prompt)
    return ServerRun(
        deployment,
        launch_of(row["backend"], row["backend_version"], workload, public=public),
        (row["backend"], row["backend_version"], row["model_path"]),
        key,
        prompt,
        int(float(row["osl"])),
        clients,
        not public and row["backend"] == "sglang",
        float(row["silicon_ttft_ms"]),
        float(row["silicon_tpot_ms"]),
    )
