"""``kvsim reproduce``: run a finished run again and compare digests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from kvcache_sim.base.errors import EXIT_INTERNAL, EXIT_OK
from kvcache_sim.cli.declared import Argument
from kvcache_sim.cli.notices import remark
from kvcache_sim.cli.run_options import RUN_PLUGINS
from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def reproduce(
    run: Annotated[Path, Argument(metavar="RUN", help="run directory")],
    plugins: Annotated[bool, RUN_PLUGINS] = False,
) -> int:
    """Run a finished run again from its manifest; exit 1 when a digest differs.

    \b
    Example:
      kvsim reproduce runs/1-quickstart-3fa9c1
    """
    from kvcache_sim.report.reproduction import reproduce as again

    outcome = again(run, plugins)
    for name, (before, now) in outcome.digests.items():
        print(f"{name:<8} {before[:24]} {'=' if before == now else '≠'} {now[:24]}")
    for note in outcome.notes:
        remark(note)
    print("reproduced" if outcome.is_same else "NOT reproduced")
    return EXIT_OK if outcome.is_same else EXIT_INTERNAL
