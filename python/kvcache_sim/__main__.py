"""``python -m kvcache_sim`` and the ``kvsim`` command."""

from __future__ import annotations

import gc
import os
import sys
from types import ModuleType

# numpy starts a thread pool at import by default; nothing here multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# pydantic reads the metadata of every installed package for plug-ins of its own.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# With this stand-in pydantic's plug-in loader finds no plug-ins; the import still costs a twentieth of a
# short run. If pydantic moves the loader, the stand-in has no effect.
_no_plugins = ModuleType("pydantic.plugin._loader")
vars(_no_plugins)["get_plugins"] = tuple


def main() -> None:
    """Run the command line and exit with its code."""
    # A run creates many small objects and few cycles: collect cycles rarely.
    gc.set_threshold(100_000, 50, 100)
    if os.environ["PYDANTIC_DISABLE_PLUGINS"] == "__all__":
        sys.modules.setdefault(_no_plugins.__name__, _no_plugins)
    from kvcache_sim.cli.main import run

    code = run(sys.argv[1:])
    gc.freeze()  # the process ends: skip the search for cycles at exit (50 ms)
    sys.exit(code)


if __name__ == "__main__":
    from kvsim_launcher import main as launch

    launch()
