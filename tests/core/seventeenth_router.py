"""kvsim with one router more: its file among the others, its row in the table, then the command line as it
is."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from kvcache_sim.serving.router.registry import ROUTERS

NAME = "kvcache_sim.serving.router.emptiest"
found = spec_from_file_location(NAME, Path(__file__).parents[1] / "data" / "emptiest_router.py")
assert found is not None
assert found.loader is not None
sys.modules[NAME] = module_from_spec(found)
found.loader.exec_module(sys.modules[NAME])
ROUTERS._attributes["emptiest"] = "emptiest:Emptiest"

from kvcache_sim.cli.main import run  # noqa: E402

sys.exit(run(sys.argv[1:]))
