"""``kvsim releases``: list, show, diff."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from kvcache_sim.cli.catalogue import AsJson
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from kvcache_sim.model.release_subject import Machine

app = verb_app("List engines' releases, show one's defaults and rules, or what changed between two.")

Gpu = Annotated[str, typer.Option("--gpu", help="for this GPU only", metavar="NAME")]
Tp = Annotated[int, typer.Option("--tp", help="for so many GPUs that share the model", min=0)]
Model = Annotated[str, typer.Option("--model", help="for this model only", metavar="NAME")]
Version = Annotated[str, typer.Argument(metavar="RELEASE")]


@app.command("list")
def list_releases(as_json: AsJson = False) -> None:
    """List the engines with the releases that were read.

    \b
    Examples:
      kvsim releases list
    """
    from kvcache_sim.model.releases import engine_releases, engines
    from kvcache_sim.report.release_sheet import releases_text

    tables = [engine_releases(engine) for engine in engines()]
    if not as_json:
        typer.echo(releases_text(tables))
        return
    rows = {one.engine: {"read": [*map(str, one.read)], "equal": str(one.equal)} for one in tables}
    typer.echo(json.dumps({"engines": rows}, indent=2))


@app.command()
def show(
    release: Annotated[
        str, typer.Argument(metavar="ENGINE[@RELEASE]", help="the default release if left out")
    ],
    gpu: Gpu = "",
    tensor_parallel: Tp = 0,
    model: Model = "",
    as_json: AsJson = False,
) -> None:
    """Show the defaults and rules of a release: each value, since when, its file, and how it is known.

    A value that depends on the machine is shown with its condition, unless the machine is given.

    \b
    Examples:
      kvsim releases show vllm@0.19.1 --gpu h100 --tp 2 --model qwen3-32b
      kvsim releases show sglang
    """
    from kvcache_sim.model.releases import newest_equal, parse_release
    from kvcache_sim.report.release_sheet import release_sheet, sheet_text

    asked = parse_release(release) if "@" in release else newest_equal(release)
    sheet = release_sheet(asked, _machine(gpu, tensor_parallel, model))
    typer.echo(json.dumps(sheet, indent=2) if as_json else sheet_text(sheet))


@app.command()
def diff(
    engine: Annotated[str, typer.Argument(metavar="ENGINE")],
    older: Version,
    newer: Version,
    gpu: Gpu = "",
    tensor_parallel: Tp = 0,
    model: Model = "",
    as_json: AsJson = False,
) -> None:
    """Show what changed between two releases, at which release, and which keys of a scenario that moves.

    \b
    Examples:
      kvsim releases diff vllm 0.11 0.33 --gpu h100
    """
    from kvcache_sim.model.releases import parse_release
    from kvcache_sim.report.release_sheet import changes_text, release_changes

    first, last = sorted(
        (parse_release(f"{engine}@{at}") for at in (older, newer)), key=lambda one: one.version
    )
    changes = release_changes(first, last, _machine(gpu, tensor_parallel, model))
    typer.echo(json.dumps(changes, indent=2) if as_json else changes_text(changes))


def _machine(gpu: str, tensor_parallel: int, model: str) -> Machine:
    from kvcache_sim.model.gpus import load_gpu
    from kvcache_sim.model.model_file import load_model
    from kvcache_sim.model.release_subject import Machine

    return Machine(load_gpu(gpu) if gpu else None, tensor_parallel, load_model(model) if model else None)
