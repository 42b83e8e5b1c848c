"""Options that others leave without effect."""

from __future__ import annotations

from kvcache_sim.errors import UsageError


def refuse_idle(why: str, **options: object) -> None:
    """Raise UsageError for the first option that was given although it cannot matter.

    Options are named as parameters are, ``salt_file`` for ``--salt-file``; ``why`` ends the line.
    """
    for name, value in options.items():
        if value:
            raise UsageError(f"has no effect {why}", where=f"--{name.replace('_', '-')}")
