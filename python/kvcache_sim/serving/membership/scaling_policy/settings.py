"""Settings of a fleet that grows and shrinks by a policy."""

from __future__ import annotations

from kvcache_sim.values import Value


class ScalingSettings(Value):
    """Who decides how many machines serve, how often, within what, and how a machine comes."""

    #: A row of ``scaling_policy.SCALING`` or ``file.py:Name``.
    policy: str
    #: Machines from the start.
    first: int
    least: int
    most: int
    interval_ns: int = 15_000_000_000
    #: What a machine should have by the policy's measure; None: the policy's own.
    target: float | None = None
    #: By how much of it the measure may be off before anything changes.
    tolerance: float = 0.1
    #: Machines leave when the most that was wanted within this time is fewer.
    hold_ns: int = 300_000_000_000
    #: From when on how many machines, in order of time.
    schedule: tuple[tuple[int, int], ...] = ()
    #: From an order until the machine is there: boot and model load.
    startup_ns: int = 0
    #: Blocks that a machine copies from a peer before it serves, and how long one takes; 0: it starts cold.
    warm_blocks: int = 0
    warm_block_ns: int = 0
