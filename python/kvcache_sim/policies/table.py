"""Every policy of ``--policy``, one row each: the only table of them.

A row of the family ``prefix`` that is not an upper bound is an eviction policy, implemented in
``rust/core/src/policies/NAME.rs`` and checked against a small model in ``tests/core/eviction_orders.py``.
Its kind (``PolicyRow.kind``) comes from the core; importing this module fails if the core runs a policy
without a row, or a row names no policy of the core.
"""

from __future__ import annotations

from kvcache_sim import _core
from kvcache_sim.base.values import Value
from kvcache_sim.policies.settings import (
    ANTHROPIC,
    ATTENTION,
    DEEPSEEK,
    OPENAI,
    OPENAI_MARKS,
    PRIORITIES,
    TAIL_BUDGET,
    TIME_TO_LIVE,
    SettingGrammar,
)

#: Name → kind of each policy that the core runs: ``ranked`` (a key of each leaf) or ``queue``.
NATIVE_KINDS = dict(_core.native_policies())
#: Families whose policies are known by their whole names, settings included.
WHOLE_NAMES = ("prefix", "hosted")


class PolicyRow(Value):
    """One policy: its name, a one-line description, and its source."""

    name: str
    description: str
    paper: str
    #: Key of ``kvcache_sim.replay.request.REPLAYERS``.
    family: str = "prefix"
    #: Setting after the name and a colon; None: none.
    setting: SettingGrammar | None = None
    #: True if it uses future requests: an upper bound of all policies.
    is_upper_bound: bool = False

    @property
    def variant(self) -> str:
        """Return its name in its family: the text after an engine's colon, or the policy's own name."""
        return self.name if self.family in WHOLE_NAMES else self.name.partition(":")[2]

    @property
    def evicts(self) -> bool:
        """Return True if it is an eviction policy, available in replays and on timed tiers."""
        return self.family == "prefix" and not self.is_upper_bound

    @property
    def kind(self) -> str:
        """Return its kind: ``ranked``, ``queue``, ``upper bound``, ``hosted`` or ``engine`` (a manager)."""
        if self.family == "hosted":
            return "hosted"
        if self.family != "prefix":
            return "engine"
        return "upper bound" if self.is_upper_bound else NATIVE_KINDS[self.name]

    @property
    def module(self) -> str:
        """Return the base name of its two files."""
        return self.name.replace("-", "_")

    @property
    def example(self) -> str:
        """Return a valid text for the policy: with a setting if it needs one."""
        return self.setting.example if self.setting and self.setting.required else self.name


_VLLM = "vLLM 0.33.0, vllm/v1/core"
_SGLANG = "SGLang 0.5.23, srt/mem_cache"
_OFFLOAD = "vLLM 0.33.0, vllm/v1/kv_offload"
_UNIFIED = "SGLang 0.5.23, unified_radix_cache.py"
_TREE = "sglang-unified"
_HPT = "SGLang pull request 30300, 2026"
_LMCACHE = "LMCache 0.5.6, v1/storage_backend"
_SERVER = "LMCache 0.5.7, v1/distributed"
_ANTHROPIC = "anthropics/skills, claude-api/shared/prompt-caching.md, 2026"
_OPENAI = "developers.openai.com, guides/prompt-caching, 2026"
_DEEPSEEK = "api-docs.deepseek.com, guides/kv_cache, 2026"
_BELADY = "Belady, IBM Systems Journal 1966"

POLICIES: tuple[PolicyRow, ...] = (
    PolicyRow("vllm", "vLLM's block pool: a free queue, freed tail first", _VLLM, "vllm"),
    PolicyRow("sglang:lru", "SGLang's radix tree, least recent leaf first", _SGLANG, "sglang"),
    PolicyRow("sglang:lfu", "SGLang's radix tree, fewest hits first, then recency", _SGLANG, "sglang"),
    PolicyRow("sglang:fifo", "SGLang's radix tree, oldest node first", _SGLANG, "sglang"),
    PolicyRow("sglang:mru", "SGLang's radix tree, most recent leaf first", _SGLANG, "sglang"),
    PolicyRow("sglang:filo", "SGLang's radix tree, newest node first", _SGLANG, "sglang"),
    PolicyRow("sglang:slru", "SGLang's radix tree, leaves hit once first", _SGLANG, "sglang"),
    PolicyRow("sglang:hpt", "SGLang's radix tree, fewest hits a token first", _HPT, "sglang"),
    PolicyRow(
        "sglang-unified:lru", "SGLang's default tree, least recent leaf first", _UNIFIED, "sglang-unified"
    ),
    PolicyRow("sglang-unified:lfu", "SGLang's default tree, fewest hits first", _UNIFIED, _TREE),
    PolicyRow("sglang-unified:fifo", "SGLang's default tree, oldest node first", _UNIFIED, _TREE),
    PolicyRow(
        "sglang-unified:mru", "SGLang's default tree, most recent leaf first", _UNIFIED, "sglang-unified"
    ),
    PolicyRow("sglang-unified:filo", "SGLang's default tree, newest node first", _UNIFIED, _TREE),
    PolicyRow("sglang-unified:slru", "SGLang's default tree, hit once first", _UNIFIED, _TREE),
    PolicyRow("sglang-unified:hpt", "SGLang's default tree, fewest hits a token first", _HPT, _TREE),
    PolicyRow("sglang-unified:priority", "SGLang's default tree, answers first", _UNIFIED, _TREE),
    PolicyRow("sglang-unified:tlru", "SGLang's default tree, tails first", _UNIFIED, _TREE, TAIL_BUDGET),
    PolicyRow("lmcache:lru", "LMCache's CPU and disk tiers, recency", _LMCACHE, "lmcache"),
    PolicyRow("lmcache:lfu", "LMCache's CPU and disk tiers, fewest hits first", _LMCACHE, "lmcache"),
    PolicyRow("lmcache:fifo", "LMCache's CPU and disk tiers, first in, first out", _LMCACHE, "lmcache"),
    PolicyRow("lmcache:mru", "LMCache's CPU and disk tiers, most recent first", _LMCACHE, "lmcache"),
    PolicyRow("lmcache-server:lru", "LMCache's server, least recent first", _SERVER, "lmcache-server"),
    PolicyRow("lmcache-server:arc", "LMCache's server, ARC", _SERVER, "lmcache-server"),
    PolicyRow("vllm-offload:lru", "vLLM's CPU tier, recency", _OFFLOAD, "vllm-offload"),
    PolicyRow("vllm-offload:arc", "vLLM's CPU tier, ARC (FAST 2003)", _OFFLOAD, "vllm-offload"),
    PolicyRow(
        "anthropic", "Anthropic's prompt cache: breakpoints, a lifetime", _ANTHROPIC, "hosted", ANTHROPIC
    ),
    PolicyRow("openai", "OpenAI's before GPT-5.6: longest prefix, steps of 128", _OPENAI, "hosted", OPENAI),
    PolicyRow("openai-breakpoints", "OpenAI's of GPT-5.6: breakpoints", _OPENAI, "hosted", OPENAI_MARKS),
    PolicyRow("deepseek", "DeepSeek's disk cache: whole prefix units", _DEEPSEEK, "hosted", DEEPSEEK),
    PolicyRow("lru", "least recently used", "Mattson et al., IBM Systems Journal 1970"),
    PolicyRow("fifo", "first in, first out", _BELADY),
    PolicyRow("lfu", "fewest uses while cached", "Robinson and Devarakonda, SIGMETRICS 1990"),
    PolicyRow("sieve", "one queue with a moving hand", "Zhang et al., SIEVE, NSDI 2024"),
    PolicyRow("clock", "first in, first out, second chance", "Corbató, MIT MAC-M-384, 1968"),
    PolicyRow("arc", "recency and frequency, adapting", "Megiddo and Modha, ARC, FAST 2003"),
    PolicyRow("s3fifo", "small, main and ghost queues", "Yang et al., S3-FIFO, SOSP 2023"),
    PolicyRow("slru", "probation and protection", "Karedla et al., IEEE Computer 1994"),
    PolicyRow("s4lru", "four segments, a use lifts a block", "Huang et al., SOSP 2013"),
    PolicyRow("twoq", "FIFO for new blocks, LRU for reused", "Johnson and Shasha, 2Q, VLDB 1994"),
    PolicyRow("lirs", "short reuse distances are kept", "Jiang and Zhang, LIRS, SIGMETRICS 2002"),
    PolicyRow("wtinylfu", "a window, then the frequent blocks", "Einziger et al., TinyLFU, ACM TOS 2017"),
    PolicyRow("gdsf", "age + uses", "Cherkasova, HPL-98-69R1, 1998"),
    PolicyRow("pgdsf", "age + uses × recompute cost", "Jin et al., RAGCache, 2024", setting=ATTENTION),
    PolicyRow("length-aware", "uses, later blocks first", "Qin et al., Mooncake, FAST 2025"),
    PolicyRow(
        "ttl", "blocks expire after time unused", "Jung et al., IEEE INFOCOM 2003", setting=TIME_TO_LIVE
    ),
    PolicyRow("priority", "token ranges", "TensorRT-LLM, KvCacheRetentionConfig", setting=PRIORITIES),
    PolicyRow("belady", "upper bound: farthest next use", _BELADY, is_upper_bound=True),
    PolicyRow(
        "unbounded", "upper bound: nothing is evicted", "a cache without a capacity", is_upper_bound=True
    ),
)

#: The eviction policies of replays, timed tiers and the curve.
EVICTION_POLICIES: tuple[PolicyRow, ...] = tuple(row for row in POLICIES if row.evicts)


def _refuse_half_a_policy() -> None:
    """Raise ImportError if the rows and the core have different policies."""
    rows = {row.name for row in EVICTION_POLICIES}
    for name in sorted(rows - NATIVE_KINDS.keys()):
        raise ImportError(
            f"policies/table.py: {name} is no policy of the core; it needs its file and its row in "
            "rust/core/src/policies/mod.rs, then make build"
        )
    for name in sorted(NATIVE_KINDS.keys() - rows):
        raise ImportError(f"rust/core/src/policies: {name} has no row in policies/table.py")


_refuse_half_a_policy()
