"""Settings of every engine's cache, by what it is called; ``{cpu}`` stands for the blocks of its CPU tier."""

#: An engine's cache, alone or with tiers of its own.
CACHES = {
    "tree": (),
    "tree of groups": ("cache.layer_groups=by-kind",),
    "tree of groups over a tier": ("cache.layer_groups=by-kind", "tiers.cpu.capacity={cpu} blocks"),
    "tree of groups, written through": (
        "cache.layer_groups=by-kind",
        "tiers.cpu.capacity={cpu} blocks",
        "write.policy=through",
    ),
    "tree over tiers": ("tiers.cpu.capacity={cpu} blocks", "tiers.disk.capacity=4000 blocks"),
    "vllm": ("cache.semantics=vllm",),
    "vllm's scheduler": ("cache.semantics=vllm", "replica.scheduler=vllm"),
    "vllm, offloading": (
        "cache.semantics=vllm",
        "tiers.cpu.capacity={cpu} blocks",
        "tiers.cpu.semantics=vllm-offload",
    ),
    "vllm over LMCache": (
        "cache.semantics=vllm",
        "tiers.cpu.capacity={cpu} blocks",
        "tiers.cpu.semantics=lmcache",
        "tiers.disk.capacity=900 blocks",
    ),
    "sglang": ("cache.semantics=sglang",),
    "sglang's scheduler": ("cache.semantics=sglang", "replica.scheduler=sglang"),
    "sglang, HiCache": (
        "cache.semantics=sglang",
        "tiers.cpu.capacity={cpu} blocks",
        "tiers.cpu.semantics=hicache",
    ),
}
