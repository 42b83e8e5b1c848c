"""``kvsim plot``: one picture of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def plot(
    runs: Annotated[list[Path], Argument(metavar="RUN... KIND", help="run directories, then the kind")],
    output: Annotated[Path | None, Option("-o", "--output", help=".svg, .png or .html")] = None,
    force: Annotated[bool, "overwrite the file"] = False,
) -> None:
    """Draw one picture of finished runs; without a known KIND the kinds are listed.

    \b
    Examples:
      kvsim plot runs/1-quickstart-3fa9c1 waterfall -o waterfall.svg
      kvsim plot runs/1-small runs/2-large ttft -o ttft.png
    """
    from kvcache_sim.base.output import write_new
    from kvcache_sim.report.finished import open_runs
    from kvcache_sim.report.pictures import PICTURES
    from kvcache_sim.report.plot import picture_bytes

    *directories, kind = runs
    if not directories:
        kinds = ", ".join(f"{name} ({row.help})" for name, row in PICTURES.items())
        raise UsageError("a picture needs RUN and KIND", hint=f"kinds: {kinds}")
    target = output or Path(f"{kind}.svg")
    drawn = picture_bytes(str(kind), open_runs(directories), target.suffix)
    write_new(target, drawn, force)
    typer.echo(f"wrote {target}", err=True)
