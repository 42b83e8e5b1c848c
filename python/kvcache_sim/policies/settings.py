"""Settings after a policy's name: ``ttl:300s``, ``priority:0-1024=90@30s,1024-=20``, ``pgdsf:32768``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import parse_time_ns
from kvcache_sim.base.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Prompt caches of hosted models keep a prefix for five minutes after its last use.
DEFAULT_TTL_NS = 300 * 10**9
#: Context length at which attention costs as much as all other operations: 2 × parameters / (4 × layers ×
#: width) is 30,500 tokens for an 8 B model (32 layers, width 4,096) and 53,400 for a 70 B model.
DEFAULT_ATTENTION_TOKENS = 32_768
_END = 2**32 - 1
_RANGE = r"(\d+)-(\d*)=(\d+)(?:@(.+))?"


@dataclass(frozen=True, slots=True)
class Variant:
    """A policy with its setting, in blocks and nanoseconds."""

    name: str
    ttl_ns: int = DEFAULT_TTL_NS
    attention_blocks: float = 1.0
    #: First block, end, priority 0 to 100, duration in ns or None.
    ranges: tuple[tuple[int, int, int, int | None], ...] = ()
    #: Key of each block in a frequency sketch, by block number; None: its number counted from 1.
    names: NDArray[np.uint64] | None = field(default=None, compare=False)

    @property
    def native(self) -> _core.ReplayPolicySettings:
        """Return the settings in the core's form."""
        return _core.ReplayPolicySettings(self.ttl_ns, self.attention_blocks, list(self.ranges), self.names)


class SettingGrammar(Value):
    """Syntax of the setting after a policy's name and a colon."""

    #: Form in help and pages, such as ``ttl:TIME``.
    form: str
    example: str
    #: Takes the variant without setting, the text after the colon and the tokens per block; raises
    #: UsageError.
    read: Callable[[Variant, str, int], Variant]
    #: True if the setting is required.
    required: bool = False


def _time_to_live(variant: Variant, text: str, block_size_tokens: int) -> Variant:
    return replace(variant, ttl_ns=parse_time_ns(text))


def _attention(variant: Variant, text: str, block_size_tokens: int) -> Variant:
    if not text.isdecimal() or int(text) < 1:
        raise setting_refused(f"{variant.name}:{text}", "tokens of context, such as pgdsf:32768")
    return replace(variant, attention_blocks=int(text) / block_size_tokens)


def _ranges(variant: Variant, text: str, block_size_tokens: int) -> Variant:
    named = f"{variant.name}:{text}"
    return replace(variant, ranges=tuple(_range(r, named, block_size_tokens) for r in text.split(",")))


def _of_the_engine(variant: Variant, text: str, block_size_tokens: int) -> Variant:
    return variant


TAIL_BUDGET = SettingGrammar(
    "sglang-unified:tlru:RECOMPUTED:NEXT_PROMPT", "sglang-unified:tlru:4096:256", _of_the_engine
)
ANTHROPIC = SettingGrammar("anthropic:LIFETIME", "anthropic:1h", _of_the_engine)
OPENAI = SettingGrammar("openai:LIFETIME,ROUTED,SEED", "openai:5m,0.87", _of_the_engine)
OPENAI_MARKS = SettingGrammar("openai-breakpoints:LIFETIME", "openai-breakpoints:12h", _of_the_engine)
DEEPSEEK = SettingGrammar("deepseek:LIFETIME", "deepseek:24h", _of_the_engine)
TIME_TO_LIVE = SettingGrammar("ttl:TIME", "ttl:300s", _time_to_live)
ATTENTION = SettingGrammar("pgdsf:TOKENS", "pgdsf:32768", _attention)
PRIORITIES = SettingGrammar(
    "priority:FROM-TO=0..100@TIME,…", "priority:0-1024=90@30s,1024-=20", _ranges, required=True
)


def _range(part: str, text: str, block_size_tokens: int) -> tuple[int, int, int, int | None]:
    """Return one range; a block belongs to the range of its first token."""
    match = re.fullmatch(_RANGE, part.strip())
    if match is None:
        raise setting_refused(text, "ranges FROM-TO=PRIORITY@TIME in tokens, such as 0-1024=90@30s,1024-=20")
    first = -(-int(match[1]) // block_size_tokens)
    end = -(-int(match[2]) // block_size_tokens) if match[2] else _END
    priority = int(match[3])
    if priority > 100 or end > _END or first >= end:
        raise setting_refused(
            text, "a priority of 0 to 100 and a range that holds the first token of a block"
        )
    return first, end, priority, parse_time_ns(match[4]) if match[4] else None


def setting_refused(text: str, expected: str) -> UsageError:
    """Return the error of a policy whose setting is missing or invalid."""
    return UsageError("policy setting not understood", where="--policy", got=repr(text), expected=expected)
