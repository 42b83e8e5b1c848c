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

#: Modules that nothing here needs, by what stands in for them; where they move, their stand-ins are nobody's.
_STAND_INS: dict[str, dict[str, object]] = {
    # so told, pydantic's loader of plug-ins answers "none"; importing it costs a twentieth of a short run
    "pydantic.plugin._loader": {"get_plugins": tuple},
    # these write what ``help`` says of numpy's functions: a seventh of its import
    "numpy._core._add_newdocs": {},
    "numpy._core._add_newdocs_scalars": {},
}


def main() -> None:
    """Run the command line and exit with its code."""
    # A run makes many small objects and few cycles: look for cycles seldom.
    gc.set_threshold(100_000, 50, 100)
    _stand_in()
    from kvcache_sim.cli.main import run

    code = run(sys.argv[1:])
    gc.freeze()  # what is left goes with the process: no search for cycles on the way out (50 ms)
    sys.exit(code)


def _stand_in() -> None:
    """Let modules that nothing here needs be there already, without what they would do."""
    asked_for = {"pydantic.plugin._loader"} if os.environ["PYDANTIC_DISABLE_PLUGINS"] != "__all__" else set()
    for name in _STAND_INS.keys() - asked_for - sys.modules.keys():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(_STAND_INS[name])


if __name__ == "__main__":
    from kvsim_launcher import main as launch

    launch()
