"""``python -m kvcache_sim`` and the ``kvsim`` command."""

from __future__ import annotations

import gc
import os
import sys

# numpy starts a thread pool at import by default; nothing here multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Its docstrings of compiled functions are attached at import, a sixth of its time; a command shows none.
for _documentation in ("_add_newdocs", "_add_newdocs_scalars"):
    sys.modules.setdefault(f"numpy._core.{_documentation}", sys)


def main() -> None:
    """Run the command line and exit with its code."""
    # A run creates many small objects and few cycles: collect cycles rarely.
    gc.set_threshold(100_000, 50, 100)
    from kvcache_sim.cli.main import run

    code = run(sys.argv[1:])
    gc.freeze()  # the process ends: skip the search for cycles at exit (50 ms)
    sys.exit(code)


if __name__ == "__main__":
    from kvsim_launcher import main as launch

    launch()
