"""kvsim with a fourth tier: one row more in the table, then the command line as it is."""

import sys

from kvcache_sim.base.tier_table import ROWS, Tier

ROWS.append(Tier("object", "a store of objects", "#5b6abf", link="nvme", price="object_gib_month"))

from kvcache_sim.cli.main import run  # noqa: E402

sys.exit(run(sys.argv[1:]))
