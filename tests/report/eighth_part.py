"""kvsim with an eighth part of TTFT: one row more in the table, then the command line as it is."""

import sys

from kvcache_sim.metrics.ttft_parts import ROWS, TtftPart

ROWS.insert(1, TtftPart("rate_limit", "waiting for a tenant's rate limit", "#0b6e4f", False))

from kvcache_sim.cli.main import run  # noqa: E402

sys.exit(run(sys.argv[1:]))
