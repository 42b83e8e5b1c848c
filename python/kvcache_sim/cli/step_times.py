"""``kvsim step-times``: list, show, new."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kvcache_sim.cli.catalogue import AsJson, Force, Name, NewName, print_next, print_rows, write_template
from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.verb import verb_app

app = verb_app("List sources of step times, show what some steps take, or start a file of one's own.")


@app.command("list")
def list_step_times(as_json: AsJson = False) -> None:
    """List the packaged sets, and the other sources with how to spell them, the nearest to real runs first.

    \b
    Examples:
      kvsim step-times list
    """
    from kvcache_sim.model.run_intervals import COMPOSED, source_kind
    from kvcache_sim.model.step_times import SPELLINGS, step_time_names
    from kvcache_sim.report.step_time_sheet import held_out_error

    composed = {name: getattr(source_kind(name), "source", "") == COMPOSED for name in step_time_names()}
    rows = [(name, held_out_error(name)) for name in sorted(composed, key=lambda name: composed[name])]
    if as_json:
        typer.echo(json.dumps({"step_times": dict(rows), "spellings": dict(SPELLINGS)}, indent=2))
        return

    def print_sets(is_composed: bool) -> None:
        chosen = [row for row in rows if composed[row[0]] == is_composed]
        print_rows({name: error or "transferred: no rows of its own" for name, error in chosen})

    typer.echo("Fitted to iterations of a machine:")
    print_sets(is_composed=False)
    typer.echo("\nOther sources:")
    print_rows(dict(SPELLINGS))
    typer.echo("\nComposed of measured kernels, on real streams no nearer than a roofline:")
    print_sets(is_composed=True)
    typer.echo(
        "llama-3.1-8b in a name reads the set of llama-3-8b, and the reverse (70b too): the same shapes"
    )


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a source's model and GPU, its coefficients, and the time of some steps.

    \b
    Examples:
      kvsim step-times show h100-llama-3.1-8b-tp1
      kvsim step-times show roofline:./config.json@h200:tp4
    """
    from kvcache_sim.report.step_time_sheet import sheet_text, step_time_sheet

    sheet = step_time_sheet(name)
    typer.echo(json.dumps(sheet, indent=2) if as_json else sheet_text(sheet))


@app.command()
def new(
    name: NewName,
    start: Annotated[
        str, Option("--from", help="a set, a roofline, or a file")
    ] = "roofline:llama-3.1-8b@h100",
    force: Force = False,
) -> None:
    """Write a file of step times to edit.

    \b
    Examples:
      kvsim step-times new mine --from roofline:qwen3-32b@h200:tp2
    """
    from kvcache_sim.model.templates import new_step_time

    path = write_template(name, force, lambda: new_step_time(start))
    print_next(f"replica.step_time={path}")
