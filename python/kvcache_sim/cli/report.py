"""``kvsim report``: finished runs as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.notices import warn
from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def report(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="run directories, or one of a sweep")],
    output: Annotated[Path, Option("-o", "--output", help="file to write")] = Path("report.html"),
    force: Annotated[bool, "overwrite the file"] = False,
) -> None:
    """Make one HTML page of finished runs, side by side, or of a sweep; the same runs give the same bytes.

    \b
    Examples:
      kvsim report runs/1-quickstart-3fa9c1
      kvsim report runs/1-small runs/2-large -o sizes.html
      kvsim report sweeps/sizes -o sweep.html
    """
    from kvcache_sim.report.finished import open_runs
    from kvcache_sim.report.run_report import write_report

    sweeps = [path for path in runs if (path / "plan.json").exists()]
    if sweeps:
        from kvcache_sim.extras.study.sweeps.coordinator import read_sweep
        from kvcache_sim.report.sweep_report import write_sweep_report

        if len(runs) > 1:
            raise UsageError("a sweep has a page of its own", where=str(sweeps[0]), hint="give it alone")
        sweep = read_sweep(sweeps[0])
        for path in sweep.damaged:
            warn(f"damaged, left out: {path}")
        write_sweep_report(output, sweep.name, sweep.rows, force=force)
    else:
        write_report(open_runs(runs), output, force)
    typer.echo(f"wrote {output}", err=True)
