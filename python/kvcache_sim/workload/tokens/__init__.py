"""Tokens from hash ids (seed 002): the same prompt for the same ids, on any worker, in any order.

- `corpus`: the tokens that windows are cut from, and the settings of a prompt.
- `row_key`: the key for drawing the tokens beyond a row's ids, and the length rule.
- `prompt`: `PromptGenerator`, one prompt at a time; the interface of a tokenizer.
- `sequences`: every row of a trace, batch by batch, into one reused buffer; single rows.
- `parallel`: the same on worker processes; `pool`: a process pool for user code.
- `collisions`: blocks that share content, and the mode without collisions.
- `output`: .npy, Parquet and JSON lines.
"""

from kvcache_sim.workload.tokens.corpus import Corpus, PromptConfig
from kvcache_sim.workload.tokens.parallel import TokenWorkers, WorkerCount, token_source
from kvcache_sim.workload.tokens.prompt import PromptGenerator, Tokenizer
from kvcache_sim.workload.tokens.sequences import TokenBatch, block_starts, row_tokens, token_batches

__all__ = [
    "Corpus",
    "PromptConfig",
    "PromptGenerator",
    "TokenBatch",
    "TokenWorkers",
    "Tokenizer",
    "WorkerCount",
    "block_starts",
    "row_tokens",
    "token_batches",
    "token_source",
]
