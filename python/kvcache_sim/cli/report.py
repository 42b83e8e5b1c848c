"""``kvsim report``: finished runs as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def report(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="run directories")],
    output: Annotated[Path, Option("-o", "--output", help="file to write")] = Path("report.html"),
    force: Annotated[bool, "overwrite the file"] = False,
) -> None:
    """Make one HTML page of finished runs, side by side; the same runs give the same bytes.

    \b
    Examples:
      kvsim report runs/1-quickstart-3fa9c1
      kvsim report runs/1-small runs/2-large -o sizes.html
    """
    from kvcache_sim.report.finished import open_runs
    from kvcache_sim.report.run_report import write_report

    write_report(open_runs(runs), output, force)
    typer.echo(f"wrote {output}", err=True)
