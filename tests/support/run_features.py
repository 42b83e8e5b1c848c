"""Features of requests, fleets and movement: arrivals, machines, and the channels of KV."""

from support.base import ROUTERS, SPEC_ROUTERS, in_sessions, link
from support.draft import Draft


def closed_loop(d: Draft) -> None:
    """Let each turn wait for the answer before it."""
    if d.rows is None:
        d.set(workload__kind=d.draw.choice(["conversational", "agentic"]))
        in_sessions(d, "closed")


def duplicate_waits(d: Draft) -> None:
    """Let requests wait for blocks that others compute, with many equal prefixes."""
    d.set(replica__duplicate_prefill="wait")
    if d.rows is None and not d.has("workload.loop"):
        d.set(workload__kind=d.draw.choice(["few-shot", "rag"]), workload__arrivals__rate_per_s=40)


def instant(d: Draft) -> None:
    """Let one request after another pass without service time."""
    d.one_machine()
    d.clear(
        "replica", "workload.loop", "workload.think_time", "cache.lookup_time", "slo", "retention", "tenants"
    )
    d.set(replica__instant=True)
    d.maybe(0.5, replica__max_num_batched_tokens=[256, 2048])


def context_window(d: Draft) -> None:
    """Reject long requests, or let them lose their oldest history."""
    d.set(replica__max_model_len=d.draw.choice([1000, 3000, 8000]))
    d.maybe(0.6, replica__on_overflow=["slide"])


def prefix_gates(d: Draft) -> None:
    """Let prefixes be reused only if they are long, or have been seen, enough, and within a size limit."""
    d.tree()
    d.maybe(0.5, prefix_view__max_tokens=[1_000, 6_000])
    d.set(prefix_view__min_seen=d.draw.choice([1, 2, 3]))
    if d.settings["prefix_view.min_seen"] == 1 or d.draw.random() < 0.3:
        d.set(prefix_view__min_tokens=d.draw.choice([600, 2048]))
    if d.settings["prefix_view.min_seen"] == 1:
        d.clear("prefix_view.min_seen")


def session_views(d: Draft) -> None:
    """Bound the view of sessions."""
    d.set(session_view__max_sessions=d.draw.choice([1, 2, 5]))
    d.maybe(0.5, session_view__ttl=["100ms", "5s"])


def aborts(d: Draft) -> None:
    """Let clients abort requests: at once, between steps, with another's arrival, or too late."""
    for row in d.trace():
        if d.draw.random() < 0.5:
            row["abort_after"] = d.draw.choice(
                [0, d.draw.randint(0, 400) / 2, d.draw.randint(0, 8000), 10**7]
            )


def retention(d: Draft) -> None:
    """Follow hints: closed and demoted sessions, times to live by row and by tool."""
    d.tree()
    for row in d.trace():
        hint = d.draw.choice([None, "close", 0, 0.05, 1, "tool", *(["demote"] if d.has("tiers.cpu") else [])])
        if hint == "tool":
            row["tool"] = d.draw.choice(["bash", "search"])
        elif hint is not None:
            row["retention"] = hint
    _certain(d, tool="bash", retention="close")
    d.set(retention={"ttl_s": {"bash": 0.5}} if d.draw.random() < 0.7 else {})


def _certain(d: Draft, **members: object) -> None:
    """Have each member in one row at least, as the reader of hints wants it."""
    for (key, value), row in zip(members.items(), d.trace(), strict=False):
        row[key] = value


def tenants(d: Draft) -> None:
    """Have tenants with weights, buckets of tokens, quotas of cache, or caches of their own."""
    for row in d.trace():
        row["tenant"] = d.draw.choice(["gold", "free", "batch"])
    section: dict[str, object] = {}
    if d.draw.random() < 0.5:
        section["max_in_flight"] = d.draw.choice([1, 3, 8])
        section["of"] = {"gold": {"weight": 3}, "batch": {"priority": 1}}
    elif d.draw.random() < 0.6:
        own = {"tokens_per_s": d.draw.choice([3000, 20000])}
        section["of"] = {"free": {**own, "burst": 9000} if d.draw.random() < 0.5 else own}
    if not d.has("cache.semantics") and d.draw.random() < 0.4:
        of: dict[str, dict[str, object]] = section.setdefault("of", {})  # type: ignore[assignment]
        of.setdefault("gold", {})["cache_blocks"] = d.draw.choice([4, 40])
    if d.draw.random() < 0.3 and not d.has("cache.enabled"):
        section["isolate"] = True
    d.set(tenants=section)


def priorities(d: Draft) -> None:
    """Admit by priorities of the trace, by turns, or by jobs."""
    for row in d.trace():
        row["priority"] = d.draw.randint(0, 3)
    d.own_scheduler()
    d.set(replica__queue_order=d.draw.choice(["priority", "later-turns", "ragcache"]))


def ranks(d: Draft) -> None:
    """Let machines step together as ranks of one engine."""
    d.tree()
    d.one_tier()
    d.clear("pools", "handover", "replica.instant", "replica.copy_submit", "replica.copy_gpu_share")
    size = d.draw.choice([2, 2, 3])
    d.set(replica__dp=size, cluster__machines=size * d.draw.choice([1, 1, 2]))
    d.clear("router")
    d.maybe(0.5, router__policy=ROUTERS)


def _apart(d: Draft) -> None:
    """Have several machines that share nothing, as machines that come and go need it."""
    d.several_machines()
    d.clear(
        "fetch.lookup", "fetch.remote_disk", "cluster.pool", "router.view", "router.index", "replica.instant"
    )
    channel = d.settings.get("channels.link")
    if channel is not None:
        channel["scope"] = "machine"
    if channel is not None and (channel.get("sharing"), channel.get("priority", "in-order")) != (
        "fifo",
        "in-order",
    ):
        channel |= {"sharing": "fifo", "priority": "in-order"}


def models(d: Draft) -> None:
    """Have machines of three models, and adapters."""
    for row in d.trace():
        row["model"], row["lora"] = d.draw.choice("abc"), d.draw.choice([None, "x", "y"])
    _certain(d, lora="x")
    d.tree()
    d.clear(
        "pools", "handover", "replica.dp", "replica.instant", "fetch.lookup", "fetch.remote_disk", "fleet"
    )
    d.set(cluster__machines=4, models={"of": {"a": {"machines": 2}, "b": {}, "c": {}}})
    d.maybe(0.6, adapters=[{}])


def fleet_plan(d: Draft) -> None:
    """Let machines join, drain and be lost, also those that joined, also all; or again and again at random."""
    _apart(d)
    d.clear("replica.dp")
    serving, there, plan = set(range(d.machines)), set(range(d.machines)), []
    number = d.machines
    for at_s in sorted(d.draw.uniform(0.05, 1.2) * d.span_s for _ in range(d.draw.randint(1, 5))):
        do = d.draw.choice(["join", "lose", "lose", "drain"])
        able = sorted({"join": {number}, "lose": there, "drain": serving}[do])
        machine = d.draw.choice(able or [number])
        if do == "join" or not able:
            plan.append({"at": f"{at_s:.3f}s", "do": "join"})
            serving, there, number = serving | {number}, there | {number}, number + 1
            continue
        plan.append({"at": f"{at_s:.3f}s", "do": do, "machine": machine})
        serving.discard(machine)
        there -= {machine} if do == "lose" else set()
    d.settings["fleet.plan"] = plan
    does = {event["do"] for event in plan}
    d.maybe("join" in does and 0.3, fleet__startup=["1s"])
    d.maybe("lose" in does and 0.5, fleet__in_flight=["fail"])
    _at_random(d, {"do": "lose", "mtbf": "9s", "repair": "1s"})


def _at_random(d: Draft, *kinds: dict[str, object]) -> None:
    """Let faults happen at random, sometimes."""
    if d.draw.random() < 0.4:
        d.set(fleet__faults=[d.draw.choice(kinds)], fleet__faults_until=f"{d.span_s:.3f}s")


def copies_lost(d: Draft) -> None:
    """Flush caches, lose tiers, slow channels."""
    kinds: list[dict[str, object]] = [
        {"do": "flush"},
        {"do": "flush", "machine": d.draw.randrange(d.machines)},
    ]
    if d.has("tiers.cpu"):
        tier = d.draw.choice(["cpu", "disk"] if d.has("tiers.disk") else ["cpu"])
        kinds.append({"do": "lose-tier", "machine": d.draw.randrange(d.machines), "tier": tier})
        kinds += _slowed(d)
        _at_random(d, {"do": "lose-tier", "tier": tier, "mtbf": "3s"})
    plan = [{"at": d.moment(), **d.draw.choice(kinds)} for _ in range(d.draw.randint(1, 3))]
    d.settings["fleet.plan"] = sorted(plan, key=lambda event: float(str(event["at"])[:-1]))
    d.clear("fleet.startup", "fleet.in_flight", "replica.instant")


def _slowed(d: Draft) -> list[dict[str, object]]:
    channel = "link" if d.has("channels.link") else d.draw.choice(["cpu-to-gpu", "gpu-to-cpu"])
    own: dict[str, object] = {"do": "slow", "channel": channel, "share": d.draw.choice([0, 0.02, 0.5])}
    if own["share"] == 0 or d.draw.random() < 0.5:
        own["lasts"] = d.draw.choice(["1s", "5s"])
    return [own]


def slowed_channels(d: Draft) -> None:
    """Slow channels of a tier for a while."""
    d.lower_tiers(d.has("tiers.disk"))
    plan = [{"at": d.moment(), **_slowed(d)[0]} for _ in range(d.draw.randint(1, 3))]
    d.settings["fleet.plan"] = sorted(plan, key=lambda event: float(str(event["at"])[:-1]))
    d.clear("fleet.startup", "fleet.in_flight")


def scaling(d: Draft) -> None:
    """Let a policy order and release machines."""
    _apart(d)
    d.tree()
    d.clear("replica.dp", "fleet")
    d.set(cluster__machines=d.draw.choice([1, 2]), fleet__scaling__most=4, fleet__scaling__interval="500ms")
    d.set(fleet__scaling__hold="2s", fleet__scaling__policy=d.draw.choice(["queue", "requests"]))
    d.set(fleet__scaling__target=d.draw.choice([1, 3]))
    if d.machines == 1:
        d.clear("router")
        d.set(router__policy=d.draw.choice(ROUTERS))
    d.maybe(0.4, fleet__startup=["300ms"], fleet__scaling__warmup=[{"tokens": 9000}])


def routers(d: Draft) -> None:
    """Have each of the routers, with indexes and polled loads."""
    d.several_machines()
    d.clear("router")
    if d.only_spec:
        d.set(router__policy=d.draw.choice(SPEC_ROUTERS))
        return
    more = """
        cache-aware power-of-two consistent-hashing weighted kvaware loadaware dynamo-kv lmetric
        dynamo-two-tier-cost-fn dynamo-two-tier-adaptive aimd prefill-time
    """.split()
    d.set(router__policy=d.draw.choice([*more, "vllm-dp", "vllm-dp-waiting", *ROUTERS]))
    match d.settings["router.policy"]:
        case "longest-prefix" | "overlap-cost" | "prefill-cost" | "dynamo-kv" | "lmetric" | "aimd":
            d.maybe(0.4, router__index_blocks=[20, 1000])
            if d.has("router.index_blocks"):
                d.maybe(0.5, router__index_delay=["50ms", "5s"])
        case "cache-aware":
            d.maybe(0.5, router__index__kind=["gateway-tree"])
        case "weighted":
            d.maybe(0.6, router__scorers=[{"prefix": 2, "queue": 1, "kv-use": 1}, {"queue": 1, "running": 1}])
            d.maybe(0.5, router__index__kind=["estimated"])
            d.maybe(0.6, router__view__interval=["50ms", "5s"])
        case "least-loaded" | "vllm-dp":
            d.maybe(0.4, router__view__interval=["300ms", "5s"])


def remote_reads(d: Draft) -> None:
    """Let machines read from each other's lower tiers."""
    d.several_machines()
    d.lower_tiers(d.draw.random() < 0.6)
    d.set(fetch__lookup="cluster")
    if d.has("tiers.disk"):
        d.maybe(0.5, fetch__remote_disk=["staged"])
    d.maybe(0.5, write__policy=["through"])
    d.maybe(
        0.4,
        channels__net=[
            {
                "bandwidth": "2GB/s",
                "edges": ["remote->cpu"],
                "scope": d.draw.choice(["pair", "machine", "cluster"]),
            }
        ],
    )


def decided_handovers(d: Draft) -> None:
    """Ask a decode machine first whether a prompt is handed over."""
    prefill, decode = d.draw.choice([(1, 1), (1, 2), (2, 1), (2, 2)])
    d.clear(
        "machines",
        "fleet",
        "cluster",
        "fetch.lookup",
        "fetch.remote_disk",
        "replica.instant",
        "replica.dp",
        "models",
    )
    d.set(pools__prefill=prefill, pools__decode=decode)
    rule = d.draw.choice(["threshold", "shorter-wait", "llm-d", "dynamo-isl-bounding", "dynamo-prefill-load"])
    d.set(handover__decide=rule)
    if rule == "dynamo-prefill-load":
        d.set(handover__prefill_busy=d.draw.choice([0.0, 0.5, 4.0]))
    if rule in ("threshold", "llm-d"):
        d.maybe(0.8, handover__threshold_tokens=[0, 16, 600, 4000])
    if decode > 1:
        d.maybe(0.5, handover__router=["round-robin", "prefill-cost", "overlap-cost", "longest-prefix"])


def narrow_kv(d: Draft) -> None:
    """Keep narrower blocks below the GPU, coded as they are sent."""
    d.lower_tiers(d.draw.random() < 0.5)
    d.clear("cluster.pool", "handover.path", "replica.instant")
    d.set(tiers__cpu__kv_ratio=d.draw.choice([0.5, 0.3, 1.0]))
    d.maybe(0.5, tiers__cpu__encode=["8GB/s", "200GB/s"], tiers__cpu__decode=["8GB/s", "200GB/s"])
    if d.has("tiers.disk"):
        d.maybe(0.5, tiers__disk__kv_ratio=[0.125, 0.5])


def session_prefetch(d: Draft) -> None:
    """Bring a session's blocks up before its next turn, or a waiting request's."""
    d.lower_tiers(True)
    d.clear("fetch.policy")
    d.set(prefetch__policy=d.draw.choice(["session", "queued"]))
    if d.settings["prefetch.policy"] == "session":
        d.maybe(0.5, prefetch__lead=["1ms", "5s"])
    else:
        d.maybe(0.6, fetch__policy=["wait", "best-effort", "timeout"])
        if d.settings.get("fetch.policy") == "timeout":
            d.set(fetch__timeout=d.draw.choice(["1ms", "100ms"]))
    d.maybe(0.5, prefetch__share=[0.02, 1.0])


def shared_pool(d: Draft) -> None:
    """Add a pool that all machines write and read."""
    d.lower_tiers(d.draw.random() < 0.3)
    d.clear("pools", "handover", "fleet")
    pool: dict[str, object] = {"capacity": d.draw.choice(["1GiB", "8GiB", "unbounded"])}
    pool["channels"] = {
        "bandwidth": d.draw.choice(["300MB/s", "25GB/s"]),
        "sharing": d.draw.choice(["fifo", "fair"]),
    }
    d.set(cluster__pool=pool)
    d.maybe(0.6, write__policy=["through"])


def read_buffers(d: Draft) -> None:
    """Bound the number of layers that are loaded before compute needs them."""
    d.lower_tiers(d.has("tiers.disk"))
    d.clear("fetch.layer_pipelining")
    d.set(fetch__read_buffer_layers=d.draw.choice([1, 2, 8]))


def rails(d: Draft) -> None:
    """Use two channels for one edge, chosen by their queues."""
    d.lower_tiers(d.has("tiers.disk"))
    d.clear("channels", "fleet")
    edge = d.draw.choice(["cpu->gpu", "gpu->cpu"])
    for name in ("left", "right"):
        d.settings[f"channels.{name}"] = {"bandwidth": d.draw.choice(["500MB/s", "3GB/s"]), "edges": [edge]}
    d.set(channel_choice="emptiest")


def layered_channels(d: Draft) -> None:
    """Serve one channel for all edges layer by layer."""
    d.lower_tiers(d.has("tiers.disk"))
    link(d)
    d.settings["channels.link"] |= d.draw.choice([{"sharing": "fair"}, {"priority": "loads-first"}])
    d.clear("fleet")
    d.maybe(0.3, replica__copy_submit=["2us"])
