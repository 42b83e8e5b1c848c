"""A policy for people: its row of the table, its rule, and the file that decides.

``rust/core/src/policies/NAME.rs`` decides; ``RULES`` are the few sentences that ``kvsim policies show``
prints. In every rule, a block that a request holds, or that another resident block follows, is passed over.
"""

from __future__ import annotations

from kvcache_sim.policies.resolve import resolve_policy, row_of

RULES: dict[str, str] = {
    "lru": ("Evict the block whose last use is longest ago; of equal ones the deepest in its prompt."),
    "fifo": ("Evict the block that was inserted first. A use changes nothing."),
    "lfu": (
        "Evict the block with the fewest uses since its insertion, which is the first; of equal ones "
        "the least recent. Counts end when a block leaves."
    ),
    "sieve": (
        "Blocks stand in one queue by insertion, and a use sets a block's bit. A hand moves from old "
        "to new, clears the bits it meets and evicts the first block without one; it stays there for "
        "the next eviction. A block that may not go loses its bit too."
    ),
    "clock": (
        "Blocks stand in one queue by insertion, and a use sets a block's bit. Evict the oldest "
        "without a bit; one with a bit goes back to the newest end without it. A block that may not "
        "go goes back too."
    ),
    "arc": (
        "Blocks seen once stand in T1, blocks seen again in T2, both by recency. The names of evicted"
        " blocks stay in B1 and B2. A miss that B1 knows raises T1's target size, one that B2 knows "
        "lowers it. Evict from T1 where it is above its target, else from T2."
    ),
    "s3fifo": (
        "A small queue has a tenth of the capacity, a main queue the rest, and ghosts keep the names "
        "of nine tenths. New blocks join the small queue, those that a ghost knows the main one. At "
        "the small queue's end a block with two uses moves to the main queue, and any other leaves "
        "for the ghosts. At the main queue's end a used block goes round again with one use less. "
        "Until the first eviction a full small queue passes its blocks to the main one (libCacheSim's"
        " rule)."
    ),
    "slru": (
        "New blocks join probation, and a use moves a block to protection, which has four fifths of "
        "the capacity. What protection cannot keep goes back to probation. Evict probation's least "
        "recent block first."
    ),
    "s4lru": (
        "Four segments have a quarter of the capacity each, by recency. New blocks join the lowest, a"
        " use lifts a block one segment. A segment that is too full passes its least recent block to "
        "the one below. Evict the lowest segment's least recent block."
    ),
    "twoq": (
        "New blocks join a queue of newcomers, in which a use changes nothing. The names of half the "
        "capacity's evicted newcomers are kept; a block that returns among them joins the main list, "
        "by recency. Evict the oldest newcomer where newcomers have more than a quarter of the "
        "capacity, else the main list's least recent."
    ),
    "lirs": (
        "A stack keeps blocks and the names of evicted ones by recency. A block that is used while "
        "the stack has its name returned soon and is kept; others wait in a queue of a hundredth of "
        "the capacity. Evict the queue's oldest, else the kept block nearest to the stack's bottom. "
        "Departures from the paper are libCacheSim 0.3.5's."
    ),
    "wtinylfu": (
        "New blocks join a window of a hundredth of the capacity, by recency. The rest is an SLRU "
        "with a fifth on probation. The window's oldest block is evicted, unless a count-min sketch "
        "has counted it more often than the main cache's victim: then it takes that one's place. The "
        "sketch is halved after so many uses as 32 times the main capacity."
    ),
    "gdsf": (
        "A block's key is the age at its last use plus its uses; blocks have equal size and cost. "
        "Evict the smallest key, which becomes the age."
    ),
    "pgdsf": (
        "As gdsf, with uses times the cost of computing the block again: 1 + its mean context over "
        "the blocks of the setting, at which attention costs as much as all else (RAGCache measures a"
        " profile instead)."
    ),
    "length-aware": (
        "Evict the block with the fewest uses; of equal ones the deepest in its prompt, then the "
        "least recent."
    ),
    "ttl": (
        "A block that is unused for the time leaves at once. Where capacity is short before, evict "
        "the block that lapses next, which is the least recent."
    ),
    "priority": (
        "A block has the priority, from 0 to 100, of the first token range that contains it, and 35 "
        "where none does or once the range's duration has passed since its last use. Evict the "
        "smallest priority, of equal ones the least recent."
    ),
}


def definition_of(text: str) -> str:
    """Return a policy's rule, setting and source; raises ``UsageError`` for an unknown name."""
    family, variant = resolve_policy(text)
    if family == "plugin":
        from kvcache_sim.policies.plugins.load import load_plugin

        plugin = load_plugin(variant)
        return f"{plugin.name}: a plug-in from {plugin.source}\nsha256 {plugin.source_sha256}"
    row = row_of(text)
    lines = [f"{row.name}: {row.description}", f"from {row.paper}"]
    if row.setting:
        lines.append(f"setting: {row.setting.form}, such as {row.setting.example}")
    if row.evicts:
        how = {"ranked": "a key of each block", "queue": "queues of blocks"}[row.kind]
        lines += ["", *_wrapped(RULES.get(row.name, "")), f"By {how}: rust/core/src/policies/{row.module}.rs"]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    import textwrap

    return [*textwrap.wrap(text, 96), ""] if text else []
