"""Flags that spread one engine over GPUs: pipeline stages, and context parallelism."""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.launch.line import LaunchLine
from kvcache_sim.scenario.launch.making import Making

_STAGES = "replica.pp"


def count_of(line: LaunchLine, flag: str) -> int:
    """Return how many GPUs or ranks a flag says; 1 without it. Raises UsageError for no number."""
    text = line.flags.get(flag, "1")
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise UsageError("no number of GPUs", where=flag, got=repr(text)[:60], expected="1 to 4096")
    return int(text)


def stages_of(line: LaunchLine) -> int:
    """Return the line's pipeline stages: each GPU's memory counts so many times."""
    flags = [flag for flag, key in line.engine.spread.items() if key == _STAGES]
    return count_of(line, flags[0]) if flags else 1


def spread(made: Making) -> None:
    """Write stages and shared blocks into a scenario that is whole without; leave what cannot be there."""
    for flag, key in made.line.engine.spread.items():
        count = count_of(made.line, flag)
        if count == 1:
            continue
        if key == _STAGES:
            if made.attempt({key: str(count), "replica.scheduler": made.line.engine.name}, flag):
                made.assumed.append(
                    "a step takes as long as without stages: transfers between them take no time"
                )
            continue
        # A block is of so many GPUs, each of which has the size that the line says.
        block = int(made.tree.values["cache"]["block_size"]) * count
        made.attempt({key: str(count), "cache.block_size": str(block)}, flag)
