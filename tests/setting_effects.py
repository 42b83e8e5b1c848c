"""The table of ``test_every_setting``: for each key of a scenario what its values do, or why they are refused.

A row of CHANGES is (assignment, figure, direction) and, where it needs company, settings that both runs get; the
run with the assignment is compared with the run without it. Add a row for each key and each choice you add.
"""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """One setting by ``--set`` alone and what it does to a figure of the summary or a counter."""

    assignment: str
    figure: str
    #: ``up``, ``down`` or ``differs``.
    direction: str
    #: Settings of both runs.
    given: tuple[str, ...] = ()
    #: Settings of the run it is compared with, where leaving the assignment out would be refused.
    against: tuple[str, ...] = ()


class Refusal(NamedTuple):
    """One setting that cannot have an effect in the scenario, and the words that say why."""

    assignment: str
    words: str
    given: tuple[str, ...] = ()


AUTO = ("tiers.gpu.capacity=auto",)
LITTLE_ROOM = (*AUTO, "replica.gpu_memory_utilization=0.25", "replica.max_num_seqs=255")
ONE_TIER = ("tiers.cpu=null", "tiers.disk=null")
TRACE = ("workload=null", "workload={}", "trace.path={folder}/plain.jsonl", "cache.block_size=64")
TEXTS = ("workload={}", "trace.path={folder}/texts.json", "cache.block_size=16")
EXACT = ("workload={}", "trace.path={folder}/whole-blocks.jsonl", "cache.block_size=64")
SLOW_UP = ("channels.cpu-to-gpu.bandwidth=300MB/s",)
QUEUED = ("prefetch.policy=queued", "channels.disk-to-cpu.bandwidth=1GB/s")
CROWDED = ("workload.arrivals={process: poisson, rate_per_s: 25}",)
POOL = (
    *ONE_TIER,
    *CROWDED,
    "cache.semantics=vllm",
    "replica.max_num_seqs=32",
    "tiers.gpu.capacity=160 blocks",
)
VLLM = (*POOL, "replica.scheduler=vllm")
PRIORITIES = ("workload=null", "workload={}", "trace.path={folder}/priorities.jsonl", "cache.block_size=64")
POOLS = ("pools.prefill=1", "pools.decode=1")
RAILS = (
    "channels.left={bandwidth: 500MB/s, edges: [cpu->gpu]}",
    "channels.right={bandwidth: 500MB/s, edges: [cpu->gpu]}",
)
BOTH_WAYS = ("channels.link={bandwidth: 2GB/s, edges: [gpu->cpu, cpu->gpu]}", "write.policy.gpu=through")
PRICES = ("cost.gpu_hour=2.0",)
FOUR = ("cluster.machines=4",)
PREFIX = (*FOUR, "router.policy=longest-prefix")
AWARE = (*FOUR, "router.policy=cache-aware")
BURSTS = (
    "workload={kind: few-shot, requests: 150, arrivals: {process: poisson, rate_per_s: 200}, pool_size: 40}",
    "replica.max_num_seqs=64",
)

CHANGES: list[Change] = [
    Change("name=other", "name", "differs"),
    Change("seed=4", "digest.results", "differs"),
    Change("model=qwen3-32b", "edge.gpu->cpu.bytes", "up"),
    # requests
    Change("trace.path={folder}/plain.jsonl", "tokens.input", "differs", ("workload={}", "cache.block_size=16"), ("trace.path={folder}/texts.json",)),
    Change("trace.block_size=128", "tokens.cached", "down", TRACE),
    Change("trace.on_bad_row=skip", "requests.arrived", "down", (*TRACE, "trace.path={folder}/bad-row.jsonl"), ("trace.path={folder}/plain.jsonl",)),
    Change("trace.time_order=sort", "digest.results", "differs", (*TRACE, "trace.path={folder}/unsorted.jsonl"), ("trace.time_order=keep",)),
    Change("trace.time_order=keep", "digest.results", "differs", (*TRACE, "trace.path={folder}/unsorted.jsonl"), ("trace.time_order=sort",)),
    Change("trace.bytes_per_token=8", "tokens.input", "down", TEXTS),
    Change("trace.tokenizer={folder}/tokenizer.json", "tokens.input", "up", TEXTS),
    Change("workload={kind: diverse, requests: 150}", "tokens.cached", "down", (), ("workload={kind: few-shot, requests: 150}",)),
    Change("workload.output_tokens=3", "tokens.output", "down", TRACE),
    # the cache
    Change("cache.enabled=false", "tokens.cached", "down", ONE_TIER),
    Change("cache.block_size=256", "tokens.cached", "down", EXACT),
    Change("cache.semantics=vllm", "cache.merged_blocks", "down", (*ONE_TIER, *BURSTS)),
    Change("cache.semantics=sglang", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=lfu", "digest.results", "differs", (*ONE_TIER, "cache.semantics=sglang")),
    Change("cache.policy=fifo", "digest.results", "differs", ()),
    Change("cache.policy=lfu", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=sieve", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=clock", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=arc", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=s3fifo", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=slru", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=gdsf", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=pgdsf", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=length-aware", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=ttl:2s", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=priority:0-64=90", "digest.results", "differs", ONE_TIER),
    Change("cache.policy=ttl:100ms", "tokens.cached", "down", ONE_TIER),
    Change("cache.admission=prompt", "tokens.cached", "down"),
    Change("cache.cache_output=false", "tokens.cached", "down"),
    # a copy written at the commit is then as old as its admission, and nobody renews it
    Change("cache.touch=admission", "cache.hit_tokens.cpu", "down", ("write.policy=through", "tiers.disk=null")),
    Change("cache.full_hit=skip-prefill", "latency.ttft_parts.first_decode.avg", "up", EXACT),
    Change("cache.accounting=simplified", "tokens.cached", "up", (*ONE_TIER, "tiers.gpu.capacity=unbounded")),
    Change("cache.discard_on_finish=true", "tokens.cached", "down"),
    Change("cache.lookup_time=5ms", "latency.ttft_parts.lookup.avg", "up"),
    Change("cache.kv_dtype=fp8", "edge.gpu->cpu.bytes", "down"),
    Change("cache.kv_bytes_per_token=16KiB", "edge.gpu->cpu.bytes", "down"),
    Change("session_view.max_sessions=1", "prefix_cache.conversational_hit_rate", "down"),
    Change("session_view.ttl=1ms", "prefix_cache.conversational_hit_rate", "down"),
    Change("prefix_view.min_tokens=4096", "tokens.cached", "down"),
    Change("prefix_view.min_seen=3", "tokens.cached", "down"),
    Change("prefix_view.max_tokens=64", "tokens.cached", "down", (*ONE_TIER, "cache.accounting=simplified", "session_view.max_sessions=1")),
    Change("cache.scheduler_aware_window=64", "tokens.cached", "up", (*CROWDED, *ONE_TIER)),
    # tiers
    Change("tiers.gpu.capacity=900 blocks", "cache.hit_tokens.gpu", "up"),
    Change("tiers.gpu.capacity=4GiB", "cache.evictions.gpu", "down"),
    Change("tiers.gpu.capacity=auto", "cache.evictions.gpu", "down"),
    Change("tiers.gpu.capacity=unbounded", "cache.evictions.gpu", "down"),
    Change("tiers.cpu.capacity=4000 blocks", "cache.hit_tokens.cpu", "up"),
    Change("tiers.cpu.capacity=16GiB", "cache.evictions.cpu", "down"),
    Change("tiers.cpu.capacity=unbounded", "cache.evictions.cpu", "down"),
    Change("tiers.gpu.policy=lfu", "digest.results", "differs"),
    Change("tiers.cpu.policy=fifo", "digest.results", "differs"),
    Change("tiers.disk.policy=lfu", "digest.results", "differs", ("tiers.cpu.capacity=200 blocks", "tiers.disk.capacity=300 blocks")),
    Change("tiers.cpu=null", "tokens.cached", "down", ("tiers.disk=null",)),
    Change("tiers.disk.capacity=200 blocks", "cache.hit_tokens.disk", "down"),
    Change("tiers.disk.capacity=unbounded", "cache.evictions.disk", "down", (), ("tiers.disk.capacity=200 blocks",)),
    Change("tiers.disk=null", "tokens.cached", "down"),
    # the engine
    Change("replica.instant=true", "latency.ttft.avg", "down", ONE_TIER),
    Change("replica.max_num_batched_tokens=256", "latency.ttft.avg", "up"),
    Change("replica.max_num_seqs=1", "latency.queue.avg", "up"),
    Change("replica.gpu_memory_utilization=0.25", "cache.evictions.gpu", "up", AUTO),
    Change("replica.sampler=fused", "cache.evictions.gpu", "down", LITTLE_ROOM),
    Change("replica.max_model_len=3000", "requests.rejected", "up"),
    Change("replica.on_overflow=slide", "requests.rejected", "down", ("replica.max_model_len=3000",)),
    Change("replica.step_time=a100-llama-3-8b-tp1", "latency.ttft.avg", "up"),
    Change("replica.queue_order=longest-prefix", "tokens.cached", "up", (*CROWDED, *ONE_TIER)),
    Change("replica.queue_order=shortest-first", "latency.ttft.avg", "down", CROWDED),
    Change("replica.queue_order=later-turns", "share of queueing in later turns", "down", CROWDED),
    Change("replica.queue_order=priority", "digest.results", "differs", PRIORITIES),
    Change("replica.scheduler=vllm", "digest.results", "differs", POOL),
    Change("replica.watermark=0.4", "latency.queue.avg", "up", VLLM),
    Change("replica.reserve_full_isl=false", "digest.results", "differs", VLLM),
    Change("replica.long_prefill_token_threshold=128", "latency.ttft.avg", "up", VLLM),
    Change("replica.queue_order=ragcache", "tokens.cached", "up", (*CROWDED, *ONE_TIER)),
    Change("replica.duplicate_prefill=wait", "cache.merged_blocks", "down", BURSTS),
    Change("replica.step_overhead=5ms", "latency.tpot.avg", "up"),
    Change("replica.async_scheduling=length", "digest.results", "differs"),
    Change("replica.async_scheduling=stop-token", "digest.results", "differs"),
    Change("replica.client_offset=50ms", "latency.ttft_parts.client.avg", "up"),
    Change("replica.client_offset_per_token=10us", "latency.ttft_parts.client.avg", "up"),
    Change("replica.host=http-tokenised", "latency.ttft_parts.client.avg", "up"),
    Change("replica.links=pcie5", "latency.ttft.avg", "up", ("replica.step_time=roofline:llama-3-8b@h100:tp2",)),
    # machines and the router
    Change("cluster.machines=4", "latency.queue.avg", "down"),
    Change("machines[0].tiers.gpu.capacity=unbounded", "cache.evictions.gpu", "down"),
    Change("machines[1].tiers.cpu.capacity=4000 blocks", "cache.evictions.cpu", "down"),
    Change("machines[0].tiers.gpu.policy=lfu", "digest.results", "differs"),
    Change("machines[1].tiers.cpu.policy=fifo", "digest.results", "differs"),
    Change("machines[0].tiers.disk.policy=lfu", "digest.results", "differs", ("tiers.cpu.capacity=200 blocks", "tiers.disk.capacity=300 blocks")),
    Change("machines[0].tiers.disk=null", "tokens.cached", "down"),
    Change("machines[0].tiers.disk.capacity=100 blocks", "cache.hit_tokens.disk", "down"),
    Change("machines[0].replica.max_num_batched_tokens=256", "steps", "up"),
    Change("machines[0].replica.max_num_batched_tokens=128", "steps", "up", (*ONE_TIER, "replica.instant=true")),
    Change("machines[0].replica.max_num_seqs=1", "latency.queue.avg", "up"),
    Change("machines[0].replica.gpu_memory_utilization=0.25", "cache.evictions.gpu", "up", AUTO),
    Change("machines[0].replica.sampler=fused", "cache.evictions.gpu", "down", LITTLE_ROOM),
    Change("machines[1].replica.step_time=a100-llama-3-8b-tp1", "latency.ttft.avg", "up"),
    Change("machines[0].replica.queue_order=shortest-first", "latency.ttft.avg", "down", CROWDED),
    Change("machines[0].replica.scheduler=vllm", "digest.results", "differs", POOL),
    Change("machines[0].replica.watermark=0.4", "latency.queue.avg", "up", VLLM),
    Change("machines[0].replica.reserve_full_isl=false", "digest.results", "differs", VLLM),
    Change("machines[0].replica.long_prefill_token_threshold=128", "latency.ttft.avg", "up", VLLM),
    Change("machines[0].replica.duplicate_prefill=wait", "cache.merged_blocks", "down", BURSTS),
    Change("machines[0].replica.step_overhead=5ms", "latency.tpot.avg", "up"),
    Change("machines[0].replica.async_scheduling=length", "digest.results", "differs"),
    Change("machines[0].replica.client_offset=50ms", "latency.ttft_parts.client.avg", "up"),
    Change("machines[0].replica.client_offset_per_token=10us", "latency.ttft_parts.client.avg", "up"),
    Change("machines[0].replica.host=http-tokenised", "latency.ttft_parts.client.avg", "up"),
    Change("machines[0].replica.links=pcie5", "latency.ttft.avg", "up", ("replica.step_time=roofline:llama-3-8b@h100:tp2",)),
    Change("router.policy=random", "machines.jain", "down", FOUR),
    Change("router.policy=least-loaded", "latency.queue.avg", "down", ("machines[0].replica.max_num_seqs=1", *CROWDED)),
    Change("router.policy=session-affinity", "tokens.cached", "up", FOUR),
    Change("router.policy=cache-aware", "tokens.cached", "up", FOUR),
    Change("router.cache_threshold=1.0", "tokens.cached", "down", AWARE),
    Change("router.balance_abs_threshold=0", "digest.results", "differs", AWARE),
    Change("router.balance_rel_threshold=9.0", "digest.results", "differs", (*AWARE, "router.balance_abs_threshold=0")),
    Change("router.policy=longest-prefix", "tokens.cached", "up", FOUR),
    Change("router.policy=prefill-cost", "tokens.cached", "up", FOUR),
    Change("router.policy=overlap-cost", "tokens.cached", "up", FOUR),
    Change("router.load_threshold=null", "machines.jain", "down", PREFIX),
    Change("router.overlap_weight=20.0", "machines.jain", "down", (*FOUR, "router.policy=overlap-cost", *CROWDED)),
    Change("router.index_blocks=20", "router.missed_hit_blocks", "up", PREFIX, ("router.index_blocks=100000",)),
    Change("router.index_delay=20s", "router.missed_hit_blocks", "up", (*PREFIX, "router.index_blocks=100000")),
    # prefill/decode pools
    Change("pools.prefill=1", "edge.remote->gpu.bytes", "up"),
    Change("pools.decode=1", "handover.requests", "up", ("pools.prefill=1", "cluster.machines=3")),
    Change("machines[0].role=prefill", "edge.remote->gpu.bytes", "up"),
    Change("machines[1].role=decode", "handover.requests", "up", ("machines[0].role=prefill", "cluster.machines=3")),
    Change("handover.path=via-cpu", "edge.gpu->cpu.bytes", "up", POOLS),
    Change("handover.transfer=layer-by-layer", "handover.wait.avg", "down", (*POOLS, "channels.handover.bandwidth=5GB/s", "replica.max_num_seqs=64")),
    Change("handover.first_token=prefill", "latency.ttft_parts.handover.avg", "down", POOLS),
    Change("handover.router=session-affinity", "digest.results", "differs", (*FOUR, "pools.prefill=2", "pools.decode=2")),
    Change("handover.router=round-robin", "digest.results", "differs", (*FOUR, "pools.prefill=2", "pools.decode=2")),
    Change("handover.router=random", "digest.results", "differs", (*FOUR, "pools.prefill=2", "pools.decode=2")),
    Change("handover.router=longest-prefix", "digest.results", "differs", (*FOUR, "pools.prefill=2", "pools.decode=2")),
    Change("handover.router=prefill-cost", "digest.results", "differs", (*FOUR, "pools.prefill=2", "pools.decode=2")),
    Change("handover.router=overlap-cost", "digest.results", "differs", (*FOUR, "pools.prefill=2", "pools.decode=2")),
    Change("handover.router=cache-aware", "digest.results", "differs", (*FOUR, "pools.prefill=2", "pools.decode=2")),
    # channels
    Change("channels.cpu-to-gpu.preset=pcie4-x16", "latency.fetch_parts.stall_cpu_gpu.avg", "up"),
    Change("channels.cpu-to-gpu.bandwidth=500MB/s", "latency.fetch_parts.stall_cpu_gpu.avg", "up"),
    Change("channels.disk-to-cpu.bandwidth=500MB/s", "latency.fetch_parts.stall_disk_cpu.avg", "up"),
    Change("channels.gpu-to-cpu.bandwidth=500MB/s", "latency.fetch_parts.fetch_room.avg", "up"),
    Change("channels.cpu-to-disk.bandwidth=200MB/s", "latency.fetch_parts.fetch_room.avg", "up"),
    Change("channels.net.bandwidth=500MB/s", "latency.fetch_parts.stall_remote_cpu.avg", "up", ("fetch.lookup=cluster",)),
    Change("channels.cpu-to-gpu.latency=20ms", "latency.fetch_parts.stall_cpu_gpu.avg", "up"),
    Change("channels.cpu-to-gpu.piece_overhead=100us", "latency.fetch_parts.stall_cpu_gpu.avg", "up"),
    Change("channels.cpu-to-gpu.sharing=fair", "queued on cpu-to-gpu", "down", (*SLOW_UP, *CROWDED)),
    Change("channels.link.priority=loads-first", "latency.fetch_parts.stall_cpu_gpu.avg", "down", BOTH_WAYS),
    Change("channels.link.latency_occupies=true", "latency.fetch_parts.stall_cpu_gpu.avg", "up", (*BOTH_WAYS, "channels.link.latency=20ms")),
    Change("channels.cpu-to-gpu.scope=cluster", "queued on cpu-to-gpu", "up", SLOW_UP),
    Change("channels.net.scope=cluster", "queued on net", "up", ("fetch.lookup=cluster", "channels.net.bandwidth=1GB/s")),
    Change("channels.link.edges=[gpu->cpu, cpu->gpu]", "latency.fetch_parts.stall_cpu_gpu.avg", "up", ("channels.link.bandwidth=1GB/s",), ("channels.link.edges=[cpu->gpu]",)),
    Change("channels.slow={bandwidth: 300MB/s, edges: ['0:cpu->gpu']}", "latency.fetch_parts.stall_cpu_gpu.avg", "up"),
    Change("channels.slow={bandwidth: 100MB/s, edges: ['0:cpu->1:cpu']}", "latency.fetch_parts.stall_remote_cpu.avg", "up", ("fetch.lookup=cluster",)),
    Change("channel_choice=emptiest", "queued on left", "down", RAILS, ("channels.right.edges=['cpu->disk']",)),
    # movement
    Change("fetch.policy=never", "cache.hit_tokens.cpu", "down"),
    Change("fetch.policy=cheaper", "latency.ttft.avg", "down", SLOW_UP),
    Change("fetch.policy=split", "latency.ttft.avg", "down", SLOW_UP),
    Change("fetch.policy=best-effort", "tokens.prefilled", "up", QUEUED),
    Change("fetch.policy=wait", "latency.fetch_parts.stall_disk_cpu.avg", "down", QUEUED),
    Change("fetch.policy=timeout", "tokens.prefilled", "up", QUEUED),
    Change("fetch.timeout=30s", "tokens.prefilled", "down", (*QUEUED, "fetch.policy=timeout")),
    Change("fetch.lookup=cluster", "cache.hit_tokens.remote", "up"),
    Change("fetch.remote_disk=staged", "tiers.cpu.written_bytes", "up", ("fetch.lookup=cluster",)),
    Change("fetch.layer_pipelining=false", "latency.fetch_parts.stall_cpu_gpu.avg", "up", ("replica.max_num_seqs=1",)),
    Change("fetch.read_buffer_layers=1", "latency.fetch_parts.stall_cpu_gpu.avg", "up", ("channels.cpu-to-gpu.bandwidth=20GB/s",)),
    Change("fetch.exclusive=[cpu->gpu]", "tiers.cpu.duplicate_blocks", "down"),
    Change("fetch.exclusive=[disk->cpu]", "tiers.disk.duplicate_blocks", "down"),
    Change("write.policy=through", "edge.gpu->cpu.bytes", "up", ("tiers.gpu.capacity=900 blocks",)),
    Change("write.policy=through-sync", "latency.fetch_parts.fetch_room.avg", "up", ("channels.gpu-to-cpu.bandwidth=1GB/s",), ("write.policy=through",)),
    Change("write.policy=selective", "edge.gpu->cpu.bytes", "down"),
    Change("write.policy.gpu=selective", "edge.gpu->cpu.bytes", "down"),
    Change("write.policy.cpu=through", "tiers.disk.written_bytes", "up", ("tiers.cpu.capacity=2000 blocks",)),
    Change("write.selective_uses=4", "tiers.cpu.written_bytes", "down", ("write.policy=selective",)),
    Change("prefetch.policy=queued", "latency.fetch_parts.stall_disk_cpu.avg", "down", (*QUEUED[1:], "tiers.cpu.capacity=1500 blocks")),
    Change("prefetch.policy=session", "cache.hit_tokens.disk", "down"),
    Change("prefetch.share=0.01", "prefetched_blocks", "down", QUEUED),
    Change("prefetch.lead=1ms", "cache.hit_tokens.disk", "up", ("prefetch.policy=session", *QUEUED[1:])),
    # prices
    Change("measure.warmup=40%", "requests.arrived", "down"),
    Change("measure.cooldown=40%", "requests.arrived", "down"),
    Change("cost.gpu_hour=4.0", "cost.total", "up", (), PRICES),
    Change("cost.gpus_per_machine=8", "cost.total", "up", PRICES),
    Change("cost.dram_gib_month=3.0", "cost.total", "up", PRICES),
    Change("cost.nvme_gib_month=0.5", "cost.total", "up", PRICES),
]  # fmt: skip

REFUSALS: list[Refusal] = [
    Refusal("workload.prompt_structure=new_input_only", "kvsim trace generate"),
    Refusal("handover.path=via-cpu", "no machine has the role prefill"),
    Refusal("pools.decode=1", "add pools.prefill"),
    Refusal("trace.format=azure", "timestamp", TRACE),
    Refusal("trace.on_bad_row=error", "input_length", (*TRACE, "trace.path={folder}/bad-row.jsonl")),
    Refusal("trace.time_order=error", "time", ("workload={}", "trace.path={folder}/unsorted.jsonl")),
    Refusal("trace.path={folder}/plain.jsonl", "keep one of the two"),
    Refusal("cache.lookup_time=5ms", "cache.enabled is false", (*ONE_TIER, "cache.enabled=false")),
    Refusal("cache.kv_bytes_per_token=16KiB", "no KV moves", ONE_TIER),
    Refusal("replica.scheduler=vllm", "cache.semantics vllm", (*ONE_TIER, "cache.semantics=tree")),
    Refusal("replica.watermark=0.1", "replica.scheduler is not vllm"),
    Refusal("replica.queue_order=later-turns", "knows fcfs and priority", VLLM),
    Refusal("replica.duplicate_prefill=wait", "keys before they are computed", VLLM),
    Refusal("cache.full_hit=skip-prefill", "always computes a prompt's last token", VLLM),
    Refusal("replica.queue_order=shortest-first", "nobody waits", (*ONE_TIER, "replica.instant=true")),
    Refusal("machines[0].replica.queue_order=ragcache", "nobody has a cached prefix", (*ONE_TIER, "cache.enabled=false")),
    Refusal("machines[0].replica.duplicate_prefill=wait", "cache.enabled is false", (*ONE_TIER, "cache.enabled=false")),
    Refusal("machines[0].replica.async_scheduling=length", "replica.instant is true", (*ONE_TIER, "replica.instant=true")),
    Refusal("router.policy=least-loaded", "no machine ever has a load", (*ONE_TIER, "replica.instant=true")),
    Refusal("channels.cpu-to-gpu.latency=20ms", "nothing is loaded", ("fetch.policy=never",)),
    Refusal("fetch.exclusive=[cpu->gpu]", "fetch.policy is never", ("fetch.policy=never",)),
    Refusal("cache.touch=admission", "cache.enabled is false", (*ONE_TIER, "cache.enabled=false")),
    Refusal("cache.touch=admission", "a request ends before the next one is admitted", (*ONE_TIER, "replica.instant=true")),
    Refusal("cache.touch=admission", "semantics vllm has an order of its own", (*ONE_TIER, "cache.semantics=vllm")),
    Refusal("cache.touch=admission", "semantics sglang has an order of its own", (*ONE_TIER, "cache.semantics=sglang")),
    Refusal("cache.touch=admission", "keeps tokens, not blocks", (*ONE_TIER, "cache.accounting=simplified")),
    Refusal("cache.touch=admission", "policy lfu is told of releases alone", ("tiers.cpu.policy=lfu",)),
    Refusal("cache.touch=admission", "nothing is ever evicted", (*ONE_TIER, "tiers.gpu.capacity=unbounded")),
    Refusal("cache.policy=lfu", "simplified evicts the oldest", (*ONE_TIER, "cache.accounting=simplified")),
    Refusal("tiers.gpu.policy=fifo", "an order of its own", (*ONE_TIER, "cache.semantics=vllm")),
    Refusal("tiers.cpu.policy=fifo", "nothing is ever evicted", ("tiers.cpu.capacity=unbounded", "tiers.disk=null")),
    Refusal("cache.enabled=false", "cache.enabled is false"),
    Refusal("cache.accounting=simplified", "counts one tier's tokens"),
    Refusal("cache.semantics=vllm", "has a gpu tier only"),
    Refusal("cache.semantics=sglang", "has a gpu tier only"),
    Refusal("prefix_view.max_tokens=64", "the tiers' capacities are the limit"),
    Refusal("tiers.cpu=null", "blocks reach the disk through the cpu"),
    Refusal("tiers.cpu.capacity=auto", "auto is for the gpu"),
    Refusal("machines[0].tiers.cpu=null", "blocks reach the disk through the cpu"),
    Refusal("machines[0].replica.instant=true", "service time is off for all machines or for none"),
    Refusal("machines[2].tiers.disk=null", "does not exist"),
    Refusal("replica.on_overflow=slide", "no request is too long"),
    Refusal("machines[0].replica.max_model_len=3000", "all machines serve one model"),
    Refusal("machines[0].replica.on_overflow=slide", "all machines serve one model"),
    Refusal("router.load_threshold=3.0", "router.policy is not longest-prefix"),
    Refusal("router.policy=random", "there is one machine", ("cluster.machines=1",)),
    Refusal("router.overlap_weight=2.0", "router.policy is not overlap-cost"),
    Refusal("router.cache_threshold=0.5", "router.policy is not cache-aware"),
    Refusal("router.balance_abs_threshold=1", "router.policy is not cache-aware"),
    Refusal("router.balance_rel_threshold=2.0", "router.policy is not cache-aware"),
    Refusal("router.index_blocks=20", "looks at no prefixes"),
    Refusal("router.index_delay=2s", "router.index_blocks is null", PREFIX),
    Refusal("fetch.lookup=cluster", "add tiers.cpu", ONE_TIER),
    Refusal("fetch.lookup=cluster", "there is one machine", ("cluster.machines=1",)),
    Refusal("fetch.lookup=cluster", "fetch.policy is never", ("fetch.policy=never",)),
    Refusal("fetch.remote_disk=staged", "fetch.lookup is local"),
    Refusal("fetch.timeout=1s", "fetch.policy is not timeout"),
    Refusal("fetch.policy=wait", "set prefetch.policy queued"),
    Refusal("fetch.layer_pipelining=false", "no machine has a tier below the gpu", ONE_TIER),
    Refusal("fetch.exclusive=[disk->cpu]", "no machine has this edge", ("tiers.disk=null",)),
    Refusal("write.policy=through", "no machine has a tier below the gpu", ONE_TIER),
    Refusal("write.policy.cpu=through-sync", "say through"),
    Refusal("write.selective_uses=4", "no edge has the write policy selective"),
    Refusal("prefetch.policy=queued", "nothing lies below the cpu", ("tiers.disk=null",)),
    Refusal("prefetch.share=0.1", "prefetch.policy is none"),
    Refusal("prefetch.lead=2s", "prefetch.policy is not session"),
    Refusal("channels.net.bandwidth=1GB/s", "no machine reads from another"),
    Refusal("channels.cpu-to-gpu.latency_occupies=true", "has no latency", ("channels.cpu-to-gpu.latency=0s",)),
    Refusal("channels.cpu-to-gpu.priority=loads-first", "no loads beside stores"),
    Refusal("channels.cpu-to-gpu.scope=pair", "pair"),
    Refusal("channels.cpu-to-gpu.bandwidth=1GB/s", "no machine has this edge", ONE_TIER),
    Refusal("channel_choice=emptiest", "no edge is on two channels"),
]  # fmt: skip

#: Keys of the generators: a value that gives other requests, and what it needs beside it.
GENERATED: dict[str, tuple[str, str]] = {
    "requests": ("60", ""),
    "block_size": ("128", ""),
    "arrivals": ("{process: poisson, rate_per_s: 9}", ""),
    "output_tokens": ("7", ""),
    "loop": ("closed", "concurrency: 4"),
    "concurrency": ("3", "loop: closed, concurrency: 8"),
    "conversational_probability": ("0.2", ""),
    "turns": ("{kind: uniform, min: 2, max: 4}", ""),
    "think_time": ("20s", ""),
    "system_prompt_tokens": ("700", ""),
    "first_input_tokens": ("333", ""),
    "new_input_tokens": ("77", ""),
    "target_hit_ratio": ("0.3", ""),
    "instructions": ("2", ""),
    "instruction_tokens": ("512", ""),
    "variable_tokens": ("33", ""),
    "shared_probability": ("0.4", ""),
    "prompt_tokens": ("2000", ""),
    "pool_size": ("3", ""),
    "prefix_tokens": ("999", ""),
    "query_tokens": ("55", ""),
    "window_tokens": ("4096", ""),
    "session_kv_tokens": ("3000", ""),
    "on_overflow": ("summarise", ""),
    "kept_head_tokens": ("600", ""),
    "summary_tokens": ("99", "on_overflow: summarise"),
    "subagent_probability": ("0.5", ""),
    "subagent_turns": ("2", "subagent_probability: 0.5"),
    "subagent_input_tokens": ("99", "subagent_probability: 0.5"),
    "documents": ("50", ""),
    "documents_per_prompt": ("2", ""),
    "zipf_exponent": ("2.0", ""),
    "document_order": ("shuffled", ""),
    "document_tokens": ("2048", ""),
    "question_tokens": ("77", ""),
}
