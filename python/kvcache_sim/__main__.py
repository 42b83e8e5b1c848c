"""``python -m kvcache_sim`` and the ``kvsim`` command."""

from __future__ import annotations

import gc
import os
import sys
from types import ModuleType

# numpy starts a thread pool at import unless told otherwise; nothing here multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# pydantic reads the metadata of every installed package for plug-ins of its own.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# So told, its loader of plug-ins answers "none"; importing it still costs a twentieth of a short run. Where
# pydantic moves it, this stand-in is nobody's.
_no_plugins = ModuleType("pydantic.plugin._loader")
vars(_no_plugins)["get_plugins"] = tuple


def main() -> None:
    """Run the command line and exit with its code."""
    # A run makes many small objects and few cycles: look for cycles seldom.
    gc.set_threshold(100_000, 50, 100)
    if os.environ["PYDANTIC_DISABLE_PLUGINS"] == "__all__":
        sys.modules.setdefault(_no_plugins.__name__, _no_plugins)
    from kvcache_sim.cli.main import run

    code = run(sys.argv[1:])
    gc.freeze()  # what is left goes with the process: no search for cycles on the way out (50 ms)
    sys.exit(code)


if __name__ == "__main__":
    from kvsim_launcher import main as launch

    launch()
