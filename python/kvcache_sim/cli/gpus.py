"""``kvsim gpus``: list, show, new."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from kvcache_sim.cli.catalogue import (
    AsJson,
    Force,
    Name,
    NewName,
    print_figures,
    print_next,
    print_rows,
    write_template,
)
from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.verb import verb_app

app = verb_app("List GPUs, show one's figures, or start a GPU file.")


@app.command("list")
def list_gpus(as_json: AsJson = False) -> None:
    """List the packaged GPUs.

    \b
    Examples:
      kvsim gpus list
    """
    from kvcache_sim.model.gpus import gpu_names, load_gpu

    gpus = [load_gpu(name) for name in gpu_names()]
    if as_json:
        typer.echo(json.dumps({"gpus": [asdict(gpu) for gpu in gpus]}, indent=2))
        return
    print_rows(
        {
            gpu.name: (
                f"{gpu.memory_bytes / 2**30:5.0f} GiB at {gpu.memory_bytes_per_s / 1e12:.2f} TB/s, "
                f"{gpu.bf16_flops / 1e12:,.0f} TFLOP/s bf16"
            )
            for gpu in gpus
        }
    )
    typer.echo(
        "\nIn a run: --set replica.step_time=roofline:qwen3-32b@h200:tp2; measured: kvsim step-times list"
    )
    typer.echo("Your own: roofline:MODEL@my.toml; start one with kvsim gpus new NAME")


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a GPU's figures and their source.

    \b
    Examples:
      kvsim gpus show h100
    """
    from kvcache_sim.model.gpus import load_gpu

    print_figures(asdict(load_gpu(name)), as_json)


@app.command()
def new(
    name: NewName,
    start: Annotated[str, Option("--from", help="a GPU by name or file")] = "h100",
    force: Force = False,
) -> None:
    """Write a GPU file to edit.

    \b
    Examples:
      kvsim gpus new mine --from h200
    """
    from kvcache_sim.model.templates import new_gpu

    path = write_template(name, force, lambda: new_gpu(start))
    print_next(f"replica.step_time=roofline:llama-3.1-8b@{path}")
