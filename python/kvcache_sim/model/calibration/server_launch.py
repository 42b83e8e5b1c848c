"""What real servers were launched with, as far as it decides when prompts run.

The public benchmark behind most of the runs (github.com/SemiAnalysisAI/InferenceX, Apache-2.0) keeps its
launch scripts, a file for each model, format and GPU, in ``benchmarks/single_node``; what follows was read
there. Other runs are the library's own, of its gap analysis, and are taken to have the engines' defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Decode steps between two looks for new requests from so many clients on, and with fewer.
_MANY_CLIENTS, _POLL_MANY, _POLL_FEW = 16, 30, 10
#: From this version on vLLM schedules asynchronously unless told not to.
_ASYNC_VLLM = (0, 14)


@dataclass(frozen=True, slots=True)
class Workload:
    """What decides which launch script was used: the model, its GPU and format, degree, clients, lengths."""

    model: str
    system: str
    precision: str
    tensor_parallel: int
    clients: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Rules by which a server runs prompts.

    ``budget_tokens`` of prompts and decodes at most in a step; ``beside_decodes``: in the same steps as
    decodes (vLLM) or in steps of their own before them (SGLang); ``overlapped``: a step is decided on while
    the one before it runs; ``poll_steps``: new requests are looked for once in so many decode steps
    (``--scheduler-recv-interval``), and after each step with a prompt.
    """

    budget_tokens: int = 8192
    beside_decodes: bool = True
    overlapped: bool = True
    poll_steps: int = 1


def launch_of(engine: str, version: str, workload: Workload, *, public: bool) -> Launch:
    """Return what a server was launched with; ``public``: by the public benchmark's scripts."""
    if engine == "vllm":
        return _vllm(version, workload, public=public)
    return _sglang(workload) if public else Launch(beside_decodes=False)


def _vllm(version: str, workload: Workload, *, public: bool) -> Launch:
    """Its default budget on these GPUs is 8,192; MiniMax on Blackwell is given two prompts' worth."""
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
    return Launch(budget, beside_decodes=False, poll_steps=poll)


def _hopper(workload: Workload) -> bool:
    return workload.system.startswith(("h100", "h200"))


def _number(version: str) -> tuple[int, ...]:
    """Return the version's first two numbers; a nightly build is later than any."""
    parts = version.split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (99,)
