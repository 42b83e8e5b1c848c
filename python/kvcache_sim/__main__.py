"""``python -m kvcache_sim`` and the ``kvsim`` command."""

from __future__ import annotations

import gc
import os
import sys

# numpy starts a thread pool at import unless told otherwise; nothing here multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# pydantic reads the metadata of every installed package for plug-ins of its own.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def main() -> None:
    """Run the command line and exit with its code."""
    # A run makes many small objects and few cycles: look for cycles seldom.
    gc.set_threshold(100_000, 50, 100)
    from kvcache_sim.cli.main import run

    code = run(sys.argv[1:])
    gc.freeze()  # what is left goes with the process: no search for cycles on the way out (50 ms)
    sys.exit(code)


if __name__ == "__main__":
    main()
