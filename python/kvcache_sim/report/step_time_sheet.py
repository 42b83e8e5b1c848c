"""A source of step times, as ``kvsim step-times show`` prints it."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import wrap
from typing import Any

from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.stated_errors import stated_step_errors
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import (
    load_step_time,
    measured_on,
    same_shape_set,
    step_time_entry,
    step_time_names,
)

#: Steps to show: sequences that decode and their KV each, tokens of a prompt and what it has behind it.
_STEPS = (
    (1, 1024, 0, 0),
    (32, 1024, 0, 0),
    (256, 1024, 0, 0),
    (32, 32_768, 0, 0),
    (0, 0, 512, 0),
    (0, 0, 8192, 0),
    (0, 0, 2048, 65_536),
    (32, 1024, 2048, 0),
)


def held_out_error(name: str) -> str:
    """Return a packaged set's error on held-out rows, by phase; empty where none was measured."""
    errors = step_time_entry(name).get("held_out", {})
    found = (f"{phase} {row['mape_percent']:g} % of {row['rows']}" for phase, row in errors.items())
    text = ", ".join(found)
    return f"error on rows held out: {text}" if text else ""


def stated_error(name: str) -> str:
    """Return the stated error of a source's steps with its origin; empty for a source without an error."""
    errors = stated_step_errors(name)
    if errors is None or errors.decode is None:
        return ""
    return f"steps ×{errors.decode.low:.2f}–{errors.decode.high:.2f}: {errors.source}"


def step_time_sheet(name: str) -> dict[str, Any]:
    """Return a source's model and GPU, its coefficients if any, and the ms of some steps."""
    source, subject = load_step_time(name), measured_on(name)
    facts = list(getattr(source, "facts", ()))
    same = same_shape_set(name)
    if same is not None:
        facts.append(f"the set {same[0]}: both models have the same shapes")
    steps = [
        {
            "decodes": decodes,
            "kv_tokens_each": kv,
            "prompt_tokens": new,
            "past_tokens": past,
            "ms": source.step(StepBatch(((new, past),) if new else (), decodes, decodes * kv, kv)) / 1e6,
        }
        for decodes, kv, new, past in _STEPS
    ]
    return {
        "name": name,
        "model": subject.model,
        "gpu": subject.gpu,
        "tensor_parallel": subject.tensor_parallel,
        "facts": facts,
        "coefficients": asdict(source) if isinstance(source, ParametricStepTime) else None,
        "stated_error": stated_error(name),
        "held_out_error": held_out_error(name) if same is not None or name in step_time_names() else "",
        "steps": steps,
    }


def sheet_text(sheet: dict[str, Any]) -> str:
    """Return a sheet as lines."""
    model, gpu = sheet["model"] or "(no model named)", sheet["gpu"] or "(no GPU named)"
    lines = [f"{sheet['name']}: {model} on {sheet['tensor_parallel']} × {gpu}"]
    lines += [f"  {fact}" for fact in sheet["facts"]]
    for key in ("stated_error", "held_out_error"):
        lines += wrap(sheet[key], 80, initial_indent="  ", subsequent_indent="    ")
    for name, value in (sheet["coefficients"] or {}).items():
        if value:
            text = f"{len(value)} points" if isinstance(value, tuple) else f"{value:g}"
            lines.append(f"  {name:<26} {text}")
    lines.append("a step of")
    for step in sheet["steps"]:
        parts = []
        if step["decodes"]:
            parts.append(f"{step['decodes']} decodes of {step['kv_tokens_each']:,} tokens")
        if step["prompt_tokens"]:
            behind = f" after {step['past_tokens']:,}" if step["past_tokens"] else ""
            parts.append(f"{step['prompt_tokens']:,} tokens of a prompt{behind}")
        lines.append(f"  {' + '.join(parts):<52} {step['ms']:10.3f} ms")
    return "\n".join(lines)
