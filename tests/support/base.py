"""The sections that every drawn scenario has: requests, cache, tiers, machines, movement."""

from support.draft import Draft

ROUTERS = ["random", "least-loaded", "session-affinity", "longest-prefix", "prefill-cost", "overlap-cost"]
SPEC_ROUTERS = ["round-robin", *ROUTERS]
POLICIES = ["fifo", "lfu", "s3fifo", "arc", "sieve", "slru", "lirs", "ttl:2s"]
SPEC_POLICIES = ["fifo", "lfu", "ttl:2s", "ttl:20s"]
ORDERS = ["longest-prefix", "shortest-first", "priority", "later-turns", "program-fcfs", "ragcache"]


_PIECES = {"piece_overhead": "3us", "piece_submit": "500ns", "piece_gap": "200ns"}


def base(d: Draft) -> None:
    """Draw what every scenario has."""
    d.set(cluster__machines=d.draw.choice([1, 1, 2, 3, 4]))
    _requests(d)
    _cache(d)
    _replica(d)
    _tiers(d)
    if d.machines > 1:
        _fleet(d)
    if d.has("tiers.cpu"):
        _movement(d)


def _requests(d: Draft) -> None:
    kind = d.draw.choice(["conversational", "diverse", "few-shot", "rag", "agentic"])
    d.set(
        workload__kind=kind,
        workload__requests=d.draw.randint(10, 40),
        workload__arrivals__process="poisson",
        workload__arrivals__rate_per_s=d.draw.choice([0.5, 2, 8, 40]),
        workload__block_size=512,
        workload__output_tokens={"kind": "uniform", "min": 1, "max": d.draw.choice([4, 60, 300])},
    )
    if kind in ("conversational", "agentic"):
        in_sessions(d, d.draw.choice(["open", "closed"]))


def in_sessions(d: Draft, loop: str) -> None:
    """Give the workload's sessions their turns and pauses."""
    d.set(
        workload__loop=loop,
        workload__think_time={"kind": "uniform", "min": "100ms", "max": d.draw.choice(["1s", "20s"])},
        workload__turns={"kind": "uniform", "min": 1, "max": d.draw.randint(2, 6)},
        workload__new_input_tokens={"kind": "uniform", "min": 20, "max": d.draw.choice([300, 3000])},
    )


def _cache(d: Draft) -> None:
    d.set(cache__block_size=d.draw.choice([64, 128, 512]))
    d.maybe(
        0.1,
        cache__cache_output=[False],
        cache__admission=["prompt"],
        cache__touch=["admission"],
        cache__full_hit=["skip-prefill"],
        cache__lookup_time=["100us"],
        cache__scheduler_aware_window=[3],
        cache__policy=SPEC_POLICIES if d.only_spec else POLICIES,
        cache__discard_on_finish=[True],
        cache__eviction_batch_blocks=[7],
        cache__enabled=[False],
    )


def _replica(d: Draft) -> None:
    d.maybe(
        0.2,
        replica__max_num_batched_tokens=[256, 2048, 16384],
        replica__max_num_seqs=[1, 4, 16],
        replica__queue_order=ORDERS if d.only_spec else ORDERS[:2],
        replica__duplicate_prefill=["wait"],
        replica__step_overhead=["50us"],
        replica__async_scheduling=["length", "stop-token"],
        replica__client_offset=["7ms"],
        replica__client_offset_per_token=["1us"],
    )
    d.maybe(0.08, replica__copy_submit=["2us"], replica__copy_gpu_share=[0.25])


def _tiers(d: Draft) -> None:
    d.set(tiers__gpu__capacity=d.draw.choice(["1GiB", "2GiB", "5GiB", "25GiB"]))
    if d.has("cache.enabled"):
        return
    for name in ("cpu", "disk")[: d.draw.randint(0, 2)]:
        d.set(**{f"tiers__{name}__capacity": d.draw.choice(["1GiB", "4GiB", "20GiB", "unbounded"])})
        d.maybe(0.1, **{f"tiers__{name}__policy": SPEC_POLICIES if d.only_spec else POLICIES})


def _fleet(d: Draft) -> None:
    routers = SPEC_ROUTERS if d.only_spec else ROUTERS
    if d.draw.random() < 0.6:
        d.set(router__policy=d.draw.choice(routers))
        if d.settings["router.policy"] == "longest-prefix":
            d.maybe(0.5, router__load_threshold=[1.2])
        if d.settings["router.policy"] == "overlap-cost":
            d.maybe(0.5, router__overlap_weight=[0.4])
        return
    decode = d.draw.randint(1, d.machines - 1)
    prefill = d.draw.randint(1, d.machines - decode)
    d.set(pools__prefill=prefill, pools__decode=decode)
    d.maybe(
        0.5,
        handover__transfer=["layer-by-layer"],
        handover__first_token=["prefill"],
        handover__path=["via-cpu"] if d.has("tiers.cpu") else ["gpu-direct"],
    )
    if decode > 1:
        d.maybe(0.5, handover__router=SPEC_ROUTERS)
    if d.machines - decode > 1:
        d.maybe(0.5, router__policy=routers)


def _movement(d: Draft) -> None:
    d.maybe(
        0.3,
        write__policy=["through", "through-sync", "selective"],
        fetch__policy=["never", "cheaper", "split", "best-effort"],
        fetch__layer_pipelining=[False],
        fetch__exclusive=[["cpu->gpu"]],
    )
    if d.has("tiers.disk"):
        d.maybe(0.2, write__policy=[{"gpu": "through", "cpu": "back"}, {"gpu": "back", "cpu": "through"}])
        d.maybe(0.3, prefetch__policy=["queued"])
        d.maybe(0.2, fetch__exclusive=[["disk->cpu"], ["cpu->gpu", "disk->cpu"]])
    if d.machines > 1:
        d.maybe(0.3, fetch__lookup=["cluster"])
    if d.draw.random() < 0.5:
        link(d)


def link(d: Draft) -> None:
    """Put all edges inside a machine on one channel."""
    edges = ["gpu->cpu", "cpu->gpu", *(["cpu->disk", "disk->cpu"] if d.has("tiers.disk") else [])]
    d.set(
        channels__link={
            "bandwidth": d.draw.choice(["2GB/s", "20GB/s"]),
            "edges": edges,
            "latency": d.draw.choice(["0s", "20us", "5ms"]),
            "scope": d.draw.choice(["machine", "cluster"]),
            "sharing": d.draw.choice(["fifo", "fair"]),
            "priority": d.draw.choice(["in-order", "loads-first"]),
            **{key: own for key, own in _PIECES.items() if d.draw.random() < 0.15},
        }
    )
