"""``ttl:300s``, ``priority:0-1024=90@30s,1024-=20``, ``pgdsf:32768``: a policy's name and its setting."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvcache_sim import _core
from kvcache_sim.errors import UsageError
from kvcache_sim.units import parse_time_ns

#: Prompt caches of hosted models keep a prefix for five minutes after its last use.
DEFAULT_TTL_NS = 300 * 10**9
#: Context at which attention costs as much as all else: 2 × parameters / (4 × layers × width) is 30,500
#: tokens for an 8 B model (32 layers, width 4,096) and 53,400 for a 70 B one.
DEFAULT_ATTENTION_TOKENS = 32_768
_END = 2**32 - 1
_RANGE = re.compile(r"(\d+)-(\d*)=(\d+)(?:@(.+))?")


@dataclass(frozen=True, slots=True)
class Variant:
    """A policy with its setting, in blocks and nanoseconds."""

    name: str
    ttl_ns: int = DEFAULT_TTL_NS
    attention_blocks: float = 1.0
    #: First block, end, priority 0 to 100, duration in ns or None.
    ranges: tuple[tuple[int, int, int, int | None], ...] = ()

    @property
    def native(self) -> _core.ReplayPolicySettings:
        """Return the settings as the core takes them."""
        return _core.ReplayPolicySettings(self.ttl_ns, self.attention_blocks, list(self.ranges))


def parse_variant(text: str, block_size_tokens: int) -> Variant:
    """Return the policy that a text such as ``ttl:300s`` names; raises ``UsageError``."""
    name, colon, setting = text.partition(":")
    attention = DEFAULT_ATTENTION_TOKENS / block_size_tokens
    if not colon:
        if name == "priority":
            raise _refused(text, "ranges, such as priority:0-1024=90@30s,1024-=20")
        return Variant(name, attention_blocks=attention)
    if name == "ttl":
        return Variant(name, ttl_ns=parse_time_ns(setting))
    if name == "pgdsf":
        if not setting.isdecimal() or int(setting) < 1:
            raise _refused(text, "tokens of context, such as pgdsf:32768")
        return Variant(name, attention_blocks=int(setting) / block_size_tokens)
    if name == "priority":
        return Variant(name, ranges=tuple(_range(r, text, block_size_tokens) for r in setting.split(",")))
    raise UsageError(f"{name} takes no setting", where="--policy", got=repr(text))


def _range(part: str, text: str, block_size_tokens: int) -> tuple[int, int, int, int | None]:
    """Return one range; a block belongs to the range of its first token."""
    match = _RANGE.fullmatch(part.strip())
    if match is None:
        raise _refused(text, "ranges FROM-TO=PRIORITY@TIME in tokens, such as 0-1024=90@30s,1024-=20")
    first = -(-int(match[1]) // block_size_tokens)
    end = -(-int(match[2]) // block_size_tokens) if match[2] else _END
    priority = int(match[3])
    if priority > 100 or end > _END or first >= end:
        raise _refused(text, "a priority of 0 to 100 and a range that holds the first token of a block")
    return first, end, priority, parse_time_ns(match[4]) if match[4] else None


def _refused(text: str, expected: str) -> UsageError:
    return UsageError("policy setting not understood", where="--policy", got=repr(text), expected=expected)
