"""How each source of step times is spelled, and the spelling that an unknown name may have meant."""

from __future__ import annotations

import re

from kvcache_sim.errors import UsageError
from kvcache_sim.model.catalog import entry_names, unknown_name
from kvcache_sim.spelling import close_matches

#: Sources other than the packaged sets: how to spell them, and what they are.
SPELLINGS = (
    (
        "roofline:MODEL@GPU:tpN,fp8,kv-fp8",
        "from shapes and measured rates of kernels; each a packaged name or a file",
    ),
    ("aiconfigurator:MODEL@SYSTEM:ENGINE:tpN", "from measured kernels; needs the extra hardware"),
    (
        "linear:base=5ms,token=20us,decode=1us,context=50ns",
        "a made-up clock: a step, a token, a decode, a token that a decode attends to",
    ),
    ("my.toml", "coefficients: kvsim calibrate fit, kvsim step-times new"),
    ("rows.csv", "measured iterations, read through"),
)


def unknown_step_time(name: str, names: tuple[str, ...]) -> UsageError:
    """Return the refusal of a name that is no set: the nearest sets, and the spellings that would work."""
    refusal = unknown_name("step time", name, names, "kvsim step-times list")
    near = f"{refusal.hint} " if refusal.hint else ""
    model, gpu, degree = _meant(name.lower())
    subject = f"{model or 'MODEL'}@{gpu or 'GPU'}"
    tail = f":tp{degree}" if degree else "" if model and gpu else ":tpN"
    measured = f"aiconfigurator:{subject}{':vllm' + tail if tail else ''}"
    refusal.hint = f"{near}or roofline:{subject}{tail}, or {measured} (extra hardware)"
    return refusal


def _meant(name: str) -> tuple[str, str, str]:
    """Return the model, GPU and TP degree that a name such as ``h200-qwen3-32b-tp4`` seems to mean."""
    degree = re.search(r"tp(\d{1,3})$", name)
    rest = name[: degree.start()] if degree else name
    gpu = max((gpu for gpu in entry_names("gpus") if gpu in rest), key=len, default="")
    rest = rest.replace(gpu, "", 1).strip("-_ :@")
    near = close_matches(rest, entry_names("models"), 1, 0.75)
    return near[0] if near else "", gpu, degree[1] if degree else ""
