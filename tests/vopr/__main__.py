"""``make vopr MINUTES=10 SEED=7``: random scenarios with faults until the time is up or something is found.

    python tests/vopr [--minutes 10] [--seed N] [--cases N] [--jobs N] [--kind NAME ...] [--case KIND:SEED]

Prints the seed first. A finding is printed with the line that runs its case again, then shrunk and printed as
the shortest scenario that has it; the exit code is then 1. Equal seeds give equal cases, whatever the jobs.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import examples

from vopr.cases import KINDS, Case
from vopr.search import Limits, explain, search


def main() -> int:
    """Search, or run one case; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--cases", type=int, default=0, help="end after so many cases instead")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kind", action="append", default=[], choices=list(KINDS), metavar="NAME")
    parser.add_argument("--case", default="", metavar="KIND:SEED", help="run this case alone")
    parser.add_argument("--no-shrink", action="store_true", help="print the finding's own case alone")
    asked = parser.parse_args()
    shrinking_s = 0.0 if asked.no_shrink else 60.0
    examples.register()
    if asked.case:
        kind, _, seed = asked.case.partition(":")
        return explain(Case(kind, int(seed)), shrinking_s)
    seed = int.from_bytes(os.urandom(4)) if asked.seed is None else asked.seed
    limits = Limits(asked.minutes * 60, asked.cases, shrinking_s)
    return search(seed, limits, asked.jobs, asked.kind)


if __name__ == "__main__":
    sys.exit(main())
