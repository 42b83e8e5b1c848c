"""``kvsim init``: print a commented scenario to start from."""

from __future__ import annotations

import typer

from kvcache_sim.cli.verb import verb_app
from kvcache_sim.scenario.starter import STARTER

app = verb_app()


@app.command()
def init() -> None:
    """Print a commented scenario to start from.

    \b
    Examples:
      kvsim init > my.yaml
      kvsim simulate -c my.yaml
    """
    typer.echo(STARTER, nl=False)
