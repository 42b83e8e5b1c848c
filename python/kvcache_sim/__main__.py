"""``python -m kvcache_sim`` and the ``kvsim`` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from kvcache_sim.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
