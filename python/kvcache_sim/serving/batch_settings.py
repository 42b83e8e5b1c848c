"""Settings of the running batch, as the core takes them."""

from __future__ import annotations

from kvcache_sim.serving.speculation import SpeculationRules
from kvcache_sim.values import Value


class BatchSettings(Value):
    """What a batch may do; ``track_commits`` reports commits, which write-through needs.

    ``commit_at_begin`` shares blocks when the step that fills them begins: in vLLM keys exist from
    scheduling on. ``asks_every_step``: every decoding sequence asks for room at every step, also for none
    (SGLang evicts a page ahead). No step is shorter than ``least_step_ns``. With ``late_ends`` an answer's
    end is known a step late: its sequence stays for one more step, which brings no token.
    """

    block_size_tokens: int
    max_num_batched_tokens: int
    step_overhead_ns: int
    cache_enabled: bool
    cache_output: bool
    track_commits: bool
    commit_at_begin: bool = False
    asks_every_step: bool = False
    #: Room is counted in tokens, and every step asks for what it computes (cache groups).
    reserve_by_step: bool = False
    #: Decoding sequences have tokens drafted.
    speculation: SpeculationRules | None = None
    least_step_ns: int = 0
    late_ends: bool = False
    #: Of the model: the first layer of a step's blocks is ready this part of its computing time in.
    num_layers: int = 1
