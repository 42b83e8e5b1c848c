"""Settings of a fleet that grows and shrinks by a policy."""

from __future__ import annotations

from kvcache_sim.base.values import Value


class ScalingSettings(Value):
    """The scaling policy, its interval and limits, and the start of a machine."""

    #: A row of ``scaling_policy.SCALING`` or ``file.py:Name``.
    policy: str
    #: Machines from the start.
    first: int
    least: int
    most: int
    interval_ns: int = 15_000_000_000
    #: Target of the policy's measure per machine; None: the policy's own.
    target: float | None = None
    #: Relative deviation of the measure from its target below which the number stays.
    tolerance: float = 0.1
    #: Machines are released only if the most wanted within this time is fewer.
    hold_ns: int = 300_000_000_000
    #: (time in ns, number of machines from then on), in order of time.
    schedule: tuple[tuple[int, int], ...] = ()
    #: From an order until the machine is ready: boot and model load.
    startup_ns: int = 0
    #: Blocks that a machine copies from a peer before it serves, and the time per block; 0: it starts cold.
    warm_blocks: int = 0
    warm_block_ns: int = 0
