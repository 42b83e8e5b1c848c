"""Settings of every engine's cache, by what it is called; ``{cpu}`` stands for the blocks of its CPU tier."""

VLLM, SGLANG = "cache.semantics=vllm", "cache.semantics=sglang"
GROUPS, CPU = "cache.layer_groups=by-kind", "tiers.cpu.capacity={cpu} blocks"
#: An engine's cache, alone or with tiers of its own.
CACHES = {
    "tree": (),
    "tree of groups": (GROUPS,),
    "tree of groups over a tier": (GROUPS, CPU),
    "tree of groups, written through": (GROUPS, CPU, "write.policy=through"),
    "tree over tiers": (CPU, "tiers.disk.capacity=4000 blocks"),
    "vllm": (VLLM,),
    "vllm's scheduler": (VLLM, "replica.scheduler=vllm"),
    "vllm, offloading": (VLLM, CPU, "tiers.cpu.semantics=vllm-offload"),
    "vllm over LMCache": (VLLM, CPU, "tiers.cpu.semantics=lmcache", "tiers.disk.capacity=900 blocks"),
    "sglang": (SGLANG,),
    "sglang's scheduler": (SGLANG, "replica.scheduler=sglang"),
    "sglang, HiCache": (SGLANG, CPU, "tiers.cpu.semantics=hicache"),
}
