"""``kvsim calibrate host``: the host of a server from a log of its requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.declared import Argument, Option

_UNITS = {
    "step_extra": "ms, of every step",
    "launch_per_layer": "ms, a layer's launch",
    "client_offset": "ms, client to scheduler",
    "client_offset_per_token": "ms, the same per prompt token",
}


def host(
    log: Annotated[
        Path, Argument(help="AIPerf .jsonl, vLLM or GuideLLM .json, LLMServingSim .csv, with lengths")
    ],
    step_time: Annotated[str, Argument(help="source without a host, such as roofline:MODEL@GPU:tp2")],
    budget: Annotated[
        int, Option("--max-num-batched-tokens", min=1, help="the engine's token budget of a step")
    ] = 8192,
    model: Annotated[str, "model served, if the source names none"] = "",
    eager_chunks: Annotated[bool, "no CUDA graph holds a chunk of any length, as in SGLang"] = False,
) -> None:
    """Fit a server's host times to a log of its requests, over a source of step times that lacks them.

    \b
    Examples:
      kvsim calibrate host profile_export.jsonl roofline:qwen3-32b@h200:tp2
      kvsim calibrate host bench.json roofline:qwen3-8b@b200 --eager-chunks
    """
    from kvcache_sim.extras.calibrate.host_fit import fit_host
    from kvcache_sim.extras.calibrate.timed import timed_requests
    from kvcache_sim.model.model_file import load_model
    from kvcache_sim.model.step_times import measured_on
    from kvcache_sim.report.plain_table import next_line

    served = model or measured_on(step_time).model
    if not served:
        raise UsageError("the source names no model", where="--model")
    timed, said = timed_requests(log)
    for remark in said:
        typer.echo(f"{log}: {remark}", err=True)
    found = fit_host(timed, step_time, load_model(served), budget, eager_chunks)
    settings = found.times.settings()
    for key, value, low, high in zip(settings, found.times, found.low, found.high, strict=True):
        typer.echo(f"{'replica.' + key:36}{value:10.4g}{f'{low:.4g} to {high:.4g}':>22}  {_UNITS[key]}")
    for name, (without, fitted) in found.errors.items():
        typer.echo(
            f"{name} of requests held out: mean |error| {fitted:.1f} %, without a host {without:.1f} %"
        )
    given = {"step_time": step_time, "host": "none", **settings}
    if eager_chunks and found.times.launch:
        given["eager_chunks"] = "true"
    words = [word for key, value in given.items() for word in ("--set", f"replica.{key}={value}")]
    typer.echo(next_line("simulate", "-c", "preset:quickstart", *words), err=True)
