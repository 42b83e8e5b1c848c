"""Settings of the running batch, as the core takes them."""

from __future__ import annotations

from kvcache_sim.base.values import Value
from kvcache_sim.serving.speculation import SpeculationRules


class BatchSettings(Value):
    """Options of the running batch; ``track_commits`` reports commits, which write-through needs.

    ``commit_at_begin`` shares blocks when the step that fills them begins: in vLLM keys exist from
    scheduling on. ``asks_every_step``: every decoding sequence requests free blocks at every step, even if it
    needs none (SGLang evicts a page in advance). No step is shorter than ``least_step_ns``. With
    ``late_ends`` the end of an answer is known a step late: its sequence stays for one more step, without
    a token.
    """

    block_size_tokens: int
    max_num_batched_tokens: int
    step_overhead_ns: int
    cache_enabled: bool
    cache_output: bool
    track_commits: bool
    commit_at_begin: bool = False
    asks_every_step: bool = False
    #: Capacity is counted in tokens, and every step reserves the tokens that it computes (cache groups).
    reserve_by_step: bool = False
    #: Decoding sequences have tokens drafted.
    speculation: SpeculationRules | None = None
    least_step_ns: int = 0
    late_ends: bool = False
    #: Layers of the model: the first layer of a step's blocks is ready after 1 / ``num_layers`` of the step.
    num_layers: int = 1
