"""Values that seed 002's examples leave open: ``PromptConfig(...)``, ``Tokenizer(...)``, a trace's rows.

The examples ask for three ids in 1,000 tokens, so an id has 400 tokens here (with 512 two would do).
"""

from dataclasses import dataclass
from types import EllipsisType

from kvcache_sim.workload import tokens


def PromptConfig(_: EllipsisType) -> tokens.PromptConfig:
    return tokens.PromptConfig(corpus=100_000, block_size=400)


def Tokenizer(_: EllipsisType) -> tokens.Tokenizer:
    return tokens.Tokenizer()


@dataclass(frozen=True)
class TraceEntry:
    input_length: int
    hash_ids: list[int] | None = None


config = PromptConfig(...)
tokenizer = Tokenizer(...)
#: Shared prefixes, a tail beyond the ids, and rows without ids, some of equal length.
traces = [
    *(TraceEntry(1000 + k, [1, 2, 100 + k]) for k in range(12)),
    *(TraceEntry(1500, [1, 2, 200 + k]) for k in range(4)),
    *(TraceEntry(700) for _ in range(6)),
    *(TraceEntry(900 + k, []) for k in range(3)),
]
