"""Scenarios of drawn settings: which of them have no effect, and which rule each other out.

Each area has its settings and their values; ``-`` leaves one out. What a scenario refuses is taken out of it
until it is accepted, and all refusals are kept, with ``!`` where others rule a setting out.
"""

import random
import re

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.idle import IdleError
from kvcache_sim.scenario.load import scenario_from_text

BASE = "workload: {kind: conversational, requests: 9}\n"
#: How many scenarios of an area are drawn; more where most settings are drawn rarely.
DRAWN, DRAWN_OF_RARE = 20, 40
LOWER = """
    tiers.cpu.capacity = 900 blocks | 900 blocks | unbounded
    tiers.disk.capacity = - | 900 blocks | unbounded
    tiers.cpu.policy = - | - | lru | arc
    tiers.cpu.chunk_tokens = - | - | 1024 | 700
    prefetch.policy = - | queued
    prefetch.threshold = - | 300
    fetch.policy = - | wait | timeout | best-effort
    fetch.timeout = - | - | 5ms
    fetch.timeout_per_ki_token = - | - | 5ms
    fetch.lookup = - | - | - | cluster
    fetch.exclusive = - | - | - | [cpu->gpu]
    write.policy = - | back | through | selective
    write.selective_uses = - | - | - | 3
    cache.full_hit = - | - | - | skip-prefill
    cache.cache_output = - | - | - | false
    cache.enabled = - | - | - | false
    replica.scheduler = - | - | - | vllm
    pools.prefill = - | - | - | 1
    pools.decode = - | - | - | 1
    cluster.machines = 2
    """
AREAS = {
    "engine": """
        replica.instant = - | - | true
        replica.scheduler = - | vllm | sglang
        cache.semantics = - | vllm | sglang
        cache.accounting = - | - | simplified
        cache.enabled = - | - | - | false
        cache.cache_output = - | - | false
        replica.queue_order = - | - | priority | longest-prefix | ragcache
        replica.duplicate_prefill = - | - | wait
        replica.launch_per_layer = - | 3us
        replica.max_num_batched_tokens = 512 | 513
        replica.step_overhead_per_sequence = - | 2us
        replica.async_scheduling = - | length
        replica.step_time = - | roofline:llama-3-8b@h100
        replica.sampling = - | plain
        replica.sustained_clocks = - | false
        replica.copy_submit = - | 5us
        replica.watermark = - | - | 0.1
        replica.max_prefill_tokens = - | - | 16385
        replica.enable_mixed_chunk = - | - | true
        tiers.cpu.capacity = - | - | 9000 blocks
        pools.prefill = - | - | - | 1
        pools.decode = - | - | - | 1
        machines[0].replica = - | - | {scheduler: vllm} | {copy_submit: 1us} | {queue_order: ragcache}
            | {instant: true}
        machines[0].role = - | - | - | decode
        """,
    "context window": """
        model = llama-3.1-8b
        cluster.machines = 2
        replica.max_model_len = - | 100 | 131072 | 131073
        replica.allow_long_max_model_len = - | true
        replica.on_overflow = - | slide
        machines[0].replica.max_model_len = - | - | 100 | 200
        machines[0].replica.on_overflow = - | - | reject
        workload.kind = conversational | rag | agentic
        replica.instant = - | - | true
        tiers.gpu.capacity = - | unbounded
        """,
    "ranks and stages": """
        tiers.gpu.capacity = 9000 blocks
        replica.dp = - | 1 | 2
        replica.pp = - | 1 | 2
        replica.instant = - | - | true
        replica.scheduler = - | vllm
        cache.semantics = - | vllm
        replica.async_scheduling = - | - | length
        tiers.cpu.capacity = - | - | 9000 blocks
        pools.prefill = - | - | 1
        pools.decode = - | - | 1
        cluster.machines = 2 | 3
        machines[0].replica = - | - | {dp: 2} | {pp: 2} | {pp: 1}
        replica.cp = - | - | 1 | 2 | 3 | 4 | 8
        cache.block_size = 16 | 512
        model = llama-3.1-8b | qwen2.5-7b | deepseek-v3
        replica.step_time = roofline:llama-3.1-8b@h100:tp8 | roofline:qwen2.5-7b@h100:tp16
            | roofline:deepseek-v3@h200:tp8
        """,
    "cache": """
        cache.enabled = - | - | false
        cache.semantics = - | vllm
        cache.accounting = - | - | - | simplified
        replica.instant = - | true
        replica.scheduler = - | - | vllm
        tiers.gpu.capacity = unbounded | 9000 blocks | 4GiB
        tiers.cpu.capacity = - | 9000 blocks | unbounded
        tiers.gpu.policy = - | lru | fifo
        cache.admission = - | prompt
        cache.discard_on_finish = - | - | true
        cache.cache_output = - | - | false
        cache.full_hit = - | skip-prefill
        cache.touch = - | admission
        cache.eviction_batch_blocks = - | 2
        cache.overflow = - | drop
        cache.scheduler_aware_window = - | 4
        cache.lookup_time = - | 3us
        cache.kv_bytes_per_token = - | 128KiB | 999B
        session_view.max_tokens = - | - | 9000
        session_view.ttl = - | - | 9s
        prefix_view.min_seen = - | - | 3
        """,
    "tiers": """
        cluster.machines = 2
        cache.semantics = - | - | vllm | sglang
        cache.enabled = - | - | - | false
        model = - | - | gpt-oss-20b
        cache.layer_groups = - | - | by-kind
        replica.instant = - | - | - | true
        tiers.cpu.capacity = - | 900 blocks | 900 blocks | auto
        tiers.cpu.semantics = - | - | vllm-offload | hicache | lmcache | lmcache-server | groups
        tiers.cpu.chunk_tokens = - | - | 1024 | 700
        tiers.cpu.policy = - | - | lru | fifo | arc
        tiers.disk.capacity = - | - | 9000 blocks
        tiers.disk.policy = - | - | fifo
        tiers.disk.semantics = - | - | - | lmcache
        tiers.cpu.kv_ratio = - | - | 0.5
        tiers.cpu.encode = - | - | 1GB/s
        tiers.disk.decode = - | - | 1GB/s
        tiers.gpu.kv_ratio = - | - | - | 0.5
        handover.path = - | - | via-cpu
        handover.encode = - | - | 1GB/s
        pools.prefill = - | 1
        pools.decode = - | 1
        cluster.pool.capacity = - | - | - | 900 blocks
        machines[0].tiers = - | - | {cpu: null} | {cpu: {capacity: auto}} | {disk: {capacity: 99 blocks}}
            | {cpu: {policy: fifo}}
        """,
    "movement": """
        cluster.machines = - | 2
        tiers.cpu.capacity = - | 9000 blocks | 9000 blocks
        tiers.disk.capacity = - | 90000 blocks
        cluster.pool.capacity = - | - | 9000 blocks
        fetch.policy = - | never | timeout | best-effort | wait
        fetch.lookup = - | cluster
        fetch.remote_disk = - | staged
        fetch.layer_pipelining = - | false
        fetch.read_buffer_layers = - | 2
        fetch.timeout = - | 5ms
        fetch.exclusive = - | [cpu->gpu] | [disk->cpu] | [cpu->gpu, disk->cpu]
        prefetch.policy = - | queued | session
        prefetch.share = - | 0.4
        prefetch.lead = - | 7s
        write.policy = - | through | selective | {gpu: selective, cpu: back} | {gpu: back, cpu: through-sync}
        write.selective_uses = - | 3
        """,
    "channels": """
        tiers.cpu.capacity = 9000 blocks
        fetch.policy = - | never
        pools.prefill = - | 1
        pools.decode = - | 1
        handover.path = - | via-cpu
        channels.cpu-to-gpu.bandwidth = - | - | 1GB/s
        channels.own.edges = [gpu->cpu] | [cpu->gpu] | [gpu->cpu, cpu->gpu] | ["0:cpu->gpu"]
        channels.own.bandwidth = 1GB/s
        channels.own.sharing = - | fair
        channels.own.latency = - | 5us
        channels.own.latency_occupies = - | true
        channels.own.priority = - | loads-first
        channel_choice = - | emptiest
        """,
    "router": """
        router.policy = - | random | least-loaded | weighted | cache-aware | longest-prefix | prefill-time
            | overlap-cost | lmetric | lmetric | dynamo-kv
        handover.router = - | - | weighted
        pools.prefill = - | - | 1
        pools.decode = - | - | 1
        cluster.machines = 1 | 2 | 2 | 3
        router.index.kind = - | - | estimated | gateway-tree
        router.index.eviction_interval = - | - | 5s
        router.index_blocks = - | 20
        router.index_delay = - | 7ms
        router.view.interval = - | 5ms
        router.scorers = - | - | {queue: 1.0} | {queue: 0.0}
        router.hotspot_detection = - | false
        router.class_prefix_blocks = - | - | 5
        router.window_requests = - | - | 9
        router.load_threshold = - | - | 3.0
        router.overlap_weight = - | - | 2.0
        router.cache_threshold = - | - | 0.4
        cache.accounting = - | - | simplified
        cache.enabled = - | - | - | false
        replica.instant = - | - | true
        """,
    "pool and limits": """
        tiers.cpu.capacity = - | 900 blocks | 900 blocks
        tiers.disk.capacity = - | - | 900 blocks
        cluster.machines = 2
        cluster.pool.capacity = - | auto | 900 blocks | 900 blocks
        cluster.pool.policy = - | - | ttl:5s | fifo
        cache.policy = - | - | ttl:9s
        cache.enabled = - | - | - | false
        cache.semantics = - | - | vllm
        fetch.policy = - | - | never
        replica.instant = - | - | true
        slo.ttft = - | 1s
        slo.classes = - | {a: {when: 'priority == 1', e2e: 7s}} | {a: {when: 'priority == 1'}}
            | {others: {when: 'priority == 1', e2e: 7s}} | {9a: {when: 'priority == 1', tpot: 7s}}
        """,
    "hand-overs": """
        cluster.machines = 2 | 3
        pools.prefill = - | 1 | 1
        pools.decode = - | 1 | 1
        machines[0].role = - | - | prefill | decode
        machines[1].role = - | - | - | decode
        replica.instant = - | - | true
        cache.accounting = - | - | - | simplified
        router.policy = - | dynamo-kv | lmetric
        handover.router = - | dynamo-kv | lmetric
        handover.decide = - | threshold | shorter-wait | llm-d | dynamo-isl-bounding | dynamo-prefill-load
            | dynamo-isl-or-load
        handover.path = - | - | via-cpu
        handover.threshold_tokens = - | 5
        handover.threshold_share = - | - | 0.5
        handover.min_prompt_tokens = - | - | 9
        handover.prefill_busy = - | 0.5
        tiers.cpu.capacity = - | 9000 blocks
        """,
    "fleet": """
        cluster.machines = 2
        fleet.plan = - | - | [{at: 1s, do: join}] | [{at: 1s, do: drain, machine: 0}]
            | [{at: 1s, do: lose, machine: 1}] | [{at: 1s, do: lose-index}] | [{at: 1s, do: lose-pool}]
            | [{at: 1s, do: lose-tier, machine: 0, tier: cpu}] | [{at: 1s, do: flush}]
            | [{at: 1s, do: slow, channel: cpu-to-gpu, share: 0.5}]
        fleet.faults = - | - | [{do: lose, mtbf: 5s}] | [{do: lose, mtbf: 5s, repair: 3s}]
            | [{do: slow, channel: cpu-to-gpu, share: 0.5, mtbf: 5s}]
            | [{do: lose-index, mtbf: 5s, repair: 3s}]
        fleet.faults_until = - | 9s
        fleet.startup = - | 2s
        fleet.in_flight = - | fail
        fleet.scaling.policy = - | - | - | requests
        machines[0] = - | - | - | {replica: {max_num_seqs: 9}} | {role: prefill}
        tiers.cpu.capacity = - | 9000 blocks | 9000 blocks
        tiers.cpu.semantics = - | - | - | - | lmcache
        fetch.lookup = - | - | - | cluster
        fetch.read_buffer_layers = - | - | - | 2
        cluster.pool = - | - | - | {capacity: 9 blocks} | {capacity: 9 blocks, channels: {sharing: fair}}
        prefetch.policy = - | - | - | session
        router.policy = - | longest-prefix
        router.index_blocks = - | - | - | 20
        router.index.kind = - | - | - | - | estimated
        router.view.interval = - | - | - | 5ms
        replica.dp = - | - | - | 2
        replica.instant = - | - | - | true
        cache.accounting = - | - | - | - | simplified
        channels.wire = - | - | - | {bandwidth: 9GB/s, edges: [cpu->gpu]}
            | {bandwidth: 9GB/s, edges: [cpu->gpu], sharing: fair}
            | {bandwidth: 9GB/s, edges: [cpu->gpu, gpu->cpu], priority: loads-first}
            | {bandwidth: 9GB/s, edges: [cpu->gpu], scope: cluster}
        """,
    "fleet with one thing more": """
        cluster.machines = 2
        fleet.plan = [{at: 1s, do: join}] | [{at: 1s, do: drain, machine: 0}] | [{at: 1s, do: lose, machine: 1}]
            | [{at: 1s, do: lose, machine: 0}] | [{at: 1s, do: slow, channel: cpu-to-gpu, share: 0.5}]
        tiers.cpu.capacity = 9000 blocks
        replica.dp = - | - | - | - | 2
        machines[0].role = - | - | - | - | - | - | - | - | prefill
        fetch.lookup = - | - | - | - | - | - | - | - | cluster
        fetch.read_buffer_layers = - | - | - | - | - | - | - | - | 2
        cluster.pool = - | - | - | - | - | - | - | - | {capacity: 9 blocks}
        prefetch.policy = - | - | - | - | - | - | - | - | session
        router.index_blocks = - | - | - | - | - | - | - | - | 20
        router.policy = longest-prefix
        router.view.interval = - | - | - | - | - | - | - | - | 5ms
        replica.instant = - | - | - | - | - | - | - | - | true
        channels.wire = - | - | - | - | - | - | {bandwidth: 9GB/s, edges: [cpu->gpu], sharing: fair}
            | {bandwidth: 9GB/s, edges: [cpu->gpu], scope: cluster}
        """,
    "events of a fleet": """
        cluster.machines = 2
        tiers.cpu.capacity = 9000 blocks
        cluster.pool.capacity = - | 9 blocks
        router.policy = longest-prefix
        router.index_blocks = - | 20
        channels.wire = - | {bandwidth: 9GB/s, edges: [cpu->gpu], scope: cluster}
        fleet.plan[0].at = 1s
        fleet.plan[0].do = join | drain | lose | lose-tier | lose-index | lose-pool | slow | flush
        fleet.plan[0].machine = - | 0 | 2
        fleet.plan[0].tier = - | gpu | cpu | disk
        fleet.plan[0].channel = - | - | cpu-to-gpu | wire | pool-read | none
        fleet.plan[0].share = - | 0.5
        fleet.plan[0].lasts = - | - | 5s
        """,
    "tenants and models": """
        cluster.machines = 2 | 3
        tenants.of.a.weight = - | 3
        tenants.of.a.priority = - | - | 1
        tenants.of.a.tokens_per_s = - | - | 9
        tenants.of.a.burst = - | - | 5
        tenants.of.a.cache_blocks = - | - | 0 | 4
        tenants.max_in_flight = - | 2
        tenants.order = - | random
        tenants.isolate = - | - | true
        retention = - | {}
        adapters = - | - | {}
        models.of = - | - | {a: {}, b: {}} | {a: {machines: 2}, b: {}} | {}
        cache.enabled = - | - | - | false
        cache.semantics = - | - | vllm
        replica.instant = - | - | true
        router.policy = - | - | longest-prefix
        router.view.interval = - | - | 7ms
        router.index_blocks = - | - | 20
        fetch.lookup = - | - | cluster
        tiers.cpu.capacity = - | 9000 blocks
        cluster.pool.capacity = - | - | - | 9 blocks
        fleet.plan = - | - | - | [{at: 1s, do: join}] | [{at: 1s, do: drain, machine: 0}]
        fleet.scaling.policy = - | - | - | - | requests
        replica.dp = - | - | - | 2
        """,
    "models with one thing more": """
        models.of = {a: {}, b: {}}
        cluster.machines = 2 | 2 | 2 | 3
        fleet.faults = - | - | [{do: lose, mtbf: 5s, repair: 3s}] | [{do: lose, mtbf: 5s}]
        fleet.faults_until = 9s
        fleet.plan = - | - | - | - | [{at: 1s, do: join}] | [{at: 1s, do: drain, machine: 0}]
        fetch.lookup = - | - | - | - | - | cluster
        tiers.cpu.capacity = 9000 blocks
        cluster.pool.capacity = - | - | - | - | - | 9 blocks
        router.policy = longest-prefix
        router.index_blocks = - | - | - | - | - | 20
        router.index.kind = - | - | - | - | gateway-tree
        replica.dp = - | - | - | - | - | 2
        """,
    "tiers of vLLM": f"""
        cache.semantics = vllm | vllm | vllm | sglang
        tiers.cpu.semantics = vllm-offload | lmcache | lmcache-server
        {LOWER}""",
    "tiers of SGLang": f"""
        cache.semantics = sglang | sglang | sglang | vllm
        tiers.cpu.semantics = hicache
        {LOWER}""",
}


def drawn(area: str, seed: int) -> dict[str, str]:
    """Return the settings of a scenario of an area, each with one of its values."""
    draw = random.Random(f"{area} {seed}")
    found = {}
    for line in filter(None, re.sub(r"\s*\n\s*\|", " |", AREAS[area]).splitlines()):
        key, _, values = line.strip().partition(" = ")
        value = draw.choice(values.split(" | "))
        if key and value != "-":
            found[key] = value
    return found


def is_within(key: str, section: str) -> bool:
    return key == section or key.startswith((f"{section}.", f"{section}["))


def refused(settings: dict[str, str], folder) -> list[str]:
    """Return what a scenario refuses, in turn, each taken out before the next is looked for."""
    left, found = dict(settings), []
    while True:
        try:
            scenario_from_text(BASE, "s.yaml", folder, [f"{key}={value}" for key, value in left.items()])
        except UsageError as refusal:
            path = refusal.where.removeprefix("--set ").removesuffix(": no such tier")
            what = refusal.what.removesuffix(" has no effect")
            named = what if what != refusal.what else f"{path}: {what}"
            found.append(named + "!" * (not isinstance(refusal, IdleError)))
            own = [key for key in left if is_within(key, path) or is_within(path, key)]
            if not own:
                return [*found, "…"]
            for key in own:
                del left[key]
        else:
            return found


@pytest.mark.parametrize("area", AREAS)
def test_settings_that_cannot_matter_are_refused(area, tmp_path, snapshot):
    lines = []
    for seed in range(DRAWN_OF_RARE if area.endswith("with one thing more") else DRAWN):
        settings = drawn(area, seed)
        lines.append(" ".join(f"{key}={value}" for key, value in settings.items()))
        lines.append(f"  → {', '.join(refused(settings, tmp_path)) or 'accepted'}")
    assert "\n".join(lines) == snapshot
