"""Each rule on settings without effect, in a sweep of two cells of which the other one uses the setting.

Rows come from the table of ``test_every_setting``: where one setting has a refusal and a change, the
refusal's settings
make a cell that cannot use it and the change's one that does.
"""

import random
from types import SimpleNamespace

import pytest
from kvcache_sim.base.errors import KvsimError, UsageError
from kvcache_sim.extras.study.sweeps.cell import Limits
from kvcache_sim.extras.study.sweeps.simulation import plan_sweep
from kvcache_sim.extras.study.sweeps.space import Space
from kvcache_sim.extras.study.sweeps.study import SweepFile
from kvcache_sim.scenario import effects, engine_effects, request_effects
from kvcache_sim.scenario.cluster_sections import (
    AdaptersSection,
    FaultSection,
    FleetEventSection,
    FleetSection,
    ModelsSection,
    ServedModelSection,
    TenantSection,
    TenantsSection,
)
from kvcache_sim.scenario.idle import IdleError
from kvcache_sim.scenario.load import varied_from_text
from kvcache_sim.scenario.machine_sections import ReplicaSection
from kvcache_sim.scenario.router_section import RouterIndexSection, RouterSection, RouterViewSection
from kvcache_sim.scenario.schema import (
    CacheSection,
    ClusterSection,
    FetchSection,
    PoolsSection,
    PrefetchSection,
    ScenarioModel,
    WriteSection,
)
from kvcache_sim.scenario.trace_section import RetentionSection
from kvcache_sim.scenario.yaml_tree import read_tree
from support.setting_effects import CHANGES, REFUSALS, Refusal
from support.tiered_scenario import BASE, load

#: Settings that others rule out, and why: without the rule another run than the requested one would be
#: simulated.
RULED_OUT = {
    "cache.accounting": ("counts one tier's tokens",),
    "cache.semantics": ("has a gpu tier only",),
    "tiers.cpu.semantics": ("this tier keeps a tree's cache groups", "LMCache's server has no default"),
    "trace.path": ("keep one of the two",),
    "workload.prompt_structure": ("how 'kvsim trace generate' writes rows",),
    "fleet.plan": (
        "a lose-tier takes no channel",
        "a flush takes no tier",
        "that every machine has",
        "channel: one of",
        "there are machines",
    ),
    "retention": ("hints need cache.semantics tree", "no time passes"),
    "tenants.max_in_flight": (
        "no request waits for its turn or for tokens",
        "polls follow the trace's arrivals",
    ),
    "tenants.of.a.cache_blocks": ("quotas of cache need cache.semantics tree",),
    "fleet.scaling": (
        "are not from least to most",
        "fewer than least",
        "add fleet.scaling.schedule",
        "decide which machines join and leave",
        "the kind of a joining machine is undefined",
    ),
    "cluster.pool": ("only blocks of the tree", "auto is for the tier", "does not support a time to live"),
    "fleet.faults": ("add fleet.faults_until",),
    "pools.decode": ("nothing is handed over",),
    "handover.decide": ("add handover.prefill_busy", "counts each machine it names as chosen"),
    "handover.path": ("hand-overs cross memory as they are on the gpu",),
    "tiers.cpu.kv_ratio": (
        "cluster.pool holds blocks as they are",
        "cache groups send pages of their layers",
    ),
    "cache.cache_output": ("SGLang's tree keeps prompts and answers",),
    "replica.scheduler": ("gives out the blocks of its own pool", "gives out the pages of its own tree"),
    "replica.speculation": (
        "drafts no tokens here",
        "asynchronous scheduling with drafts is not simulated",
        "drafts are not handed over",
        "what a rejected draft leaves of a state",
        "a hit that loses its last block is not simulated",
        "drafts in several cache groups with a tier below",
    ),
    "replica.dp": ("ranks that step together have no lower tiers",),
    "replica.pp": ("micro-batches are those of vLLM's own", "over several stages is not simulated"),
    "replica.cp": ("is no multiple of it", "copies of", "windows and states are not shared out"),
    "tiers.cpu.chunk_tokens": ("a chunk is whole blocks",),
    "machines[0].tiers.cpu.chunk_tokens": ("the tiers of all machines have the same chunk_tokens",),
    "tiers.cpu.capacity": ("auto is for the gpu",),
    "tiers.gpu.semantics": ("engines' own rules are the cpu's",),
    "tiers.disk.semantics": ("engines' own rules are the cpu's",),
    "machines[0].tiers.cpu.semantics": ("the tiers of all machines have the same semantics",),
    "machines[0].replica.instant": ("for all machines or for none",),
    "machines[0].replica.dp": ("for all machines or for none",),
    "machines[0].replica.max_model_len": ("all machines serve one model",),
    "machines[0].replica.allow_long_max_model_len": ("all machines serve one model",),
    "machines[0].replica.on_overflow": ("all machines serve one model",),
    "machines[0].tiers.cpu": ("blocks reach the disk through the cpu",),
}


def is_ruled_out(row: Refusal) -> bool:
    """Return True if other settings rule out the setting of a row, according to the refusal of one run."""
    return any(why in str(of_a_run(row)) for why in RULED_OUT.get(key(row.assignment), ()))


def of_a_run(row: Refusal) -> KvsimError | None:
    """Return the refusal of the one run of a row, if it can be found without a trace."""
    if any("{folder}" in one for one in (row.assignment, *row.given)) and not row.assignment.startswith(
        "trace.path"
    ):
        return None
    try:
        load(*row.given, row.assignment.replace("{folder}", "/nowhere"))
    except KvsimError as refusal:
        return refusal
    return None


WITHOUT_EFFECT = [
    row
    for row in REFUSALS
    if isinstance(refused := of_a_run(row), UsageError) and "no effect" in refused.what
]


def key(assignment: str) -> str:
    return assignment.partition("=")[0]


@pytest.mark.parametrize("row", WITHOUT_EFFECT, ids=lambda row: f"{row.assignment} {' '.join(row.given)}")
def test_a_cell_leaves_out_what_it_cannot_use(row: Refusal, tmp_path):
    name, settings = key(row.assignment), (*row.given, row.assignment.replace("{folder}", str(tmp_path)))
    if is_ruled_out(row):
        with pytest.raises(UsageError, match="has no effect") as refused:
            varied_from_text(BASE, "s", tmp_path, settings)
        assert not isinstance(refused.value, IdleError) or name.startswith("machines")
        assert any(why in str(refused.value) for why in RULED_OUT[name])
        return
    cell = varied_from_text(BASE, "s", tmp_path, settings)
    assert cell.idle
    assert all("has no effect" in note for note in cell.notes[-len(cell.idle) :])


def test_every_rule_is_tried():
    assert len(WITHOUT_EFFECT) > 55
    reported = [(key(row.assignment), str(of_a_run(row))) for row in WITHOUT_EFFECT]
    for name, reasons in RULED_OUT.items():
        for why in reasons:
            assert any(name == own and why in refusal for own, refusal in reported), (name, why)


def pairs() -> list[tuple[Refusal, tuple[str, ...]]]:
    """Return refusals with the settings of a cell that uses the very same assignment."""
    found = []
    for row in WITHOUT_EFFECT:
        users = [
            change.given
            for change in CHANGES
            if change.assignment == row.assignment and not any("{folder}" in one for one in change.given)
        ]
        if users and not is_ruled_out(row):
            found.append((row, users[0]))
    return found


def as_row(assignments: tuple[str, ...]) -> dict:
    """Return assignments as a row of a sweep."""
    row = {}
    for one in assignments:
        name, _, text = one.partition("=")
        row[name] = read_tree(f"v: {text}".encode(), "row").values["v"]
    return row


@pytest.mark.parametrize(
    ("row", "given"),
    pairs(),
    ids=lambda part: part.assignment if isinstance(part, Refusal) else " ".join(part),
)
def test_a_sweep_runs_where_the_other_cell_uses_it(row: Refusal, given: tuple[str, ...], tmp_path):
    idle, used = ((*settings, row.assignment) for settings in (row.given, given))
    space = Space(points=[as_row(idle), as_row(used)])
    plan = plan_sweep(
        SweepFile(tmp_path / "sweep", "s", read_tree(BASE.encode(), "s").values, space, 1, 0, Limits())
    )
    assert len(plan.cells) == 2
    alone = Space(points=[as_row(idle), as_row((*idle, "seed=9"))])
    with pytest.raises(UsageError, match="no effect"):
        plan_sweep(
            SweepFile(tmp_path / "sweep", "s", read_tree(BASE.encode(), "s").values, alone, 1, 0, Limits())
        )


def test_pairs_are_many():
    assert len({key(row.assignment) for row, _ in pairs()}) > 20


# --- every reason of a section at once ----------------------------------------------------------------------

CHOICES = {
    "there": [("gpu",), ("gpu", "cpu"), ("gpu", "cpu", "disk")],
    "machines": [1, 2],
    "pool": [False, True],
    "fetch": ["always", "never", "timeout", "best-effort"],
    "lookup": ["local", "cluster"],
    "remote_disk": ["direct", "via-cpu"],
    "pipelined": [True, False],
    "buffer": [None, 2],
    "timeout": [None, 5],
    "exclusive": [(), ("cpu->gpu", "disk->cpu")],
    "prefetch": ["none", "queued", "session"],
    "share": [0.5, 0.4],
    "lead": [10**9, 7],
    "write": ["back", "through", "selective", {"gpu": "selective", "cpu": "back"}, {"gpu": "back", "cpu": "through-sync"}],
    "uses": [2, 3],
}  # fmt: skip
#: A setting → when it has no effect; each reason is a row of its own.
REASONS = [
    ("write.policy", lambda c: isinstance(c.write, str) and c.write != "back" and not c.lower),
    ("write.policy.gpu", lambda c: c.by_tier.get("gpu") == "selective" and "cpu" not in c.there),
    ("write.policy.cpu", lambda c: c.by_tier.get("cpu") == "through-sync" and "disk" not in c.there),
    ("write.policy.cpu", lambda c: c.by_tier.get("cpu") == "through-sync"),
    ("write.selective_uses", lambda c: c.uses == 3 and "selective" not in (c.write, c.by_tier.get("gpu"))),
    ("fetch.policy", lambda c: c.fetch != "always" and not c.lower),
    ("fetch.policy", lambda c: c.fetch in ("timeout", "best-effort") and c.prefetch != "queued"),
    ("prefetch.policy", lambda c: c.prefetch != "none" and c.there == ("gpu", "cpu") and not c.elsewhere),
    ("prefetch.policy", lambda c: c.prefetch != "none" and c.fetch == "never"),
    ("prefetch.policy", lambda c: c.prefetch != "none" and not c.lower),
    ("prefetch.share", lambda c: c.share == 0.4 and c.prefetch == "none"),
    ("prefetch.lead", lambda c: c.lead == 7 and c.prefetch != "session"),
    ("fetch.lookup", lambda c: c.cluster and (c.machines == 1 or not c.lower or c.fetch == "never")),
    ("fetch.remote_disk", lambda c: c.remote_disk == "via-cpu" and not (c.cluster and "disk" in c.there)),
    ("fetch.layer_pipelining", lambda c: not c.pipelined and not c.lower),
    ("fetch.read_buffer_layers", lambda c: c.buffer == 2 and not (c.lower and c.pipelined and c.fetch != "never")),
    ("fetch.timeout", lambda c: c.timeout == 5 and c.fetch != "timeout"),
    ("fetch.exclusive.0", lambda c: bool(c.exclusive) and ("cpu" not in c.there or c.fetch == "never")),
    ("fetch.exclusive.1", lambda c: bool(c.exclusive) and ("disk" not in c.there or c.fetch == "never")),
]  # fmt: skip


def movement_case(draw: random.Random) -> SimpleNamespace:
    c = SimpleNamespace(**{name: draw.choice(values) for name, values in CHOICES.items()})
    c.lower, c.cluster = len(c.there) > 1, c.lookup == "cluster"
    c.by_tier = c.write if isinstance(c.write, dict) else {}
    c.elsewhere = c.cluster or c.pool
    return c


@pytest.mark.parametrize("seed", range(500))
def test_every_reason_why_nothing_moves(seed: int):
    c = movement_case(random.Random(seed))
    fetch = FetchSection(
        policy=c.fetch, lookup=c.lookup, remote_disk=c.remote_disk, layer_pipelining=c.pipelined,
        read_buffer_layers=c.buffer, timeout=c.timeout, exclusive=list(c.exclusive),
    )  # fmt: skip
    model = ScenarioModel(
        fetch=fetch,
        write=WriteSection(policy=c.write, selective_uses=c.uses),
        prefetch=PrefetchSection(policy=c.prefetch, share=c.share, lead=c.lead),
        cluster=ClusterSection(machines=c.machines, pool=object() if c.pool else None),
    )
    tiers = SimpleNamespace(present=dict.fromkeys(c.there), lower=dict.fromkeys(c.there[1:]))
    found = sorted(
        ".".join(map(str, path)) for path, _ in effects._movement(model, [SimpleNamespace(tiers=tiers)])
    )
    assert found == sorted(name for name, holds in REASONS if holds(c))


@pytest.mark.parametrize("edges", [("gpu->cpu",), ("cpu->gpu",), ("gpu->cpu", "cpu->gpu"), ("0: disk->cpu",)])
@pytest.mark.parametrize("name", ["cpu-to-gpu", "own"])
@pytest.mark.parametrize("fetch", ["never", "always"])
@pytest.mark.parametrize("path", ["via-cpu", "gpu-to-gpu"])
@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize(("occupies", "latency"), [(False, 0), (True, 0), (True, 5)])
@pytest.mark.parametrize("priority", ["loads-first", "in-order"])
def test_every_reason_why_a_channel_has_no_use(
    edges, name, fetch, path, sharing, occupies, latency, priority
):
    channel = SimpleNamespace(
        edges=list(edges), sharing=sharing, latency_occupies=occupies, latency=latency, priority=priority
    )
    model = SimpleNamespace(
        channels={name: channel}, fetch=SimpleNamespace(policy=fetch), handover=SimpleNamespace(path=path)
    )
    expected = [("latency_occupies",)] if occupies and (sharing == "fair" or latency == 0) else []
    loads = [edge for edge in edges if edge != "gpu->cpu"]
    expected += [()] if len(loads) == len(edges) and fetch == "never" and path != "via-cpu" else []
    expected += [("priority",)] if priority == "loads-first" and len(edges) == 1 else []
    assert [where[2:] for where, _ in effects._channels(model)] == expected


def paths_of(findings) -> list[str]:
    return [".".join(map(str, path)) for path, _ in findings]


@pytest.mark.parametrize("seed", range(200))
def test_every_reason_of_tenants_retention_and_adapters(seed: int):
    draw = random.Random(seed)
    name = {"weight": draw.choice([1.0, 3.0]), "priority": draw.choice([0, 1]), "tokens_per_s": draw.choice([None, 9]), "burst": draw.choice([None, 5]), "cache_blocks": draw.choice([None, 0, 4])}  # fmt: skip
    own = {"max_in_flight": draw.choice([None, 2]), "order": draw.choice(["in-turn", "random"]), "isolate": draw.choice([False, True])}  # fmt: skip
    of = {"a": TenantSection(**name)} if draw.random() < 0.8 else {}
    enabled, instant, polled, tree, given = (draw.random() < 0.5 for _ in range(5))
    model = ScenarioModel(
        cache=CacheSection(enabled=enabled, semantics="tree" if tree else "vllm"),
        replica=ReplicaSection(instant=instant),
        router=RouterSection(view=RouterViewSection(interval=7 if polled else 0)),
        tenants=TenantsSection(of=of, **own) if given else None,
        retention=RetentionSection() if given else None,
        adapters=AdaptersSection() if given else None,
    )
    waits = own["max_in_flight"] is not None
    holds_back = waits or bool(of and name["tokens_per_s"])
    expected = []
    if given:
        expected += ["tenants.order"] * (own["order"] == "random" and not holds_back)
        if of:
            expected += ["tenants.of.a.weight"] * (name["weight"] != 1 and not waits)
            expected += ["tenants.of.a.priority"] * (name["priority"] != 0 and not waits)
            expected += ["tenants.of.a.burst"] * (name["burst"] is not None and name["tokens_per_s"] is None)
        expected += ["tenants"] * (holds_back and instant)
        expected += ["tenants"] * (bool(of) and name["cache_blocks"] is not None and not (tree and enabled))
        expected += ["tenants"] * (holds_back and polled)
        expected += ["tenants.isolate"] * (own["isolate"] and not enabled)
    assert paths_of(request_effects.of_tenants(model)) == expected
    refused = ["retention"] * (not (tree and enabled)) + ["retention"] * instant
    assert paths_of(request_effects.of_retention(model)) == (refused if given else [])
    assert paths_of(request_effects.of_models(model, ())) == (["adapters"] if given and not enabled else [])


@pytest.mark.parametrize("seed", range(200))
def test_every_reason_of_models(seed: int):
    draw = random.Random(seed)
    machines, counted = draw.choice(
        [(3, {"a": 1, "b": 2}), (3, {"a": 1, "b": 1}), (2, {"a": 1, "b": 1}), (2, {})]
    )
    joins, repairs, handed, elsewhere, ranks, pool, index = (draw.random() < 0.3 for _ in range(7))
    kind = draw.choice(["truth", "gateway-tree"])
    plan = [FleetEventSection(at=1, do=draw.choice(["join", "drain"]))]
    faults = [FaultSection(do=draw.choice(["lose", "slow"]), mtbf=5, repair=draw.choice([None, 3]))]
    model = ScenarioModel(
        models=ModelsSection(of={name: ServedModelSection(machines=count) for name, count in counted.items()}),
        cluster=ClusterSection(machines=machines, pool=object() if pool else None),
        fleet=FleetSection(
            plan=plan if joins else [], faults=faults if repairs else [],
            scaling=object() if draw.random() < 0.2 else None,
        ),
        fetch=FetchSection(lookup="cluster" if elsewhere else "local"),
        replica=ReplicaSection(dp=2 if ranks else 1),
        router=RouterSection(index=RouterIndexSection(kind=kind), index_blocks=9 if index else None),
    )  # fmt: skip
    roles = [SimpleNamespace(role=role) for role in ("both", "prefill" if handed else "both")]
    reasons = [
        sum(counted.values()) != machines,
        model.fleet.scaling is not None or (joins and plan[0].do == "join"),
        repairs and faults[0].do == "lose" and faults[0].repair == 3,
        *(handed, elsewhere, ranks, pool, index and kind == "truth"),
    ]
    expected = ["models"] * (sum(reasons) if counted else 1)
    assert paths_of(request_effects.of_models(model, roles)) == expected


@pytest.mark.parametrize("seed", range(200))
def test_every_reason_of_ranks_and_stages(seed: int):
    draw = random.Random(seed)
    named, own, lower, prefill, decode = (draw.random() < 0.4 for _ in range(5))
    settings = {"dp": draw.choice([1, 2]), "pp": draw.choice([None, 1, 2]), "instant": draw.random() < 0.3, "scheduler": draw.choice(["kvsim", "vllm"]), "async_scheduling": draw.choice(["none", "length"])}  # fmt: skip
    replica = ReplicaSection(**settings)
    machine = SimpleNamespace(replica=replica, tiers=SimpleNamespace(lower={"cpu": 1} if lower else {}))
    model = ScenarioModel(
        replica=replica,
        machines=[{"replica": {"dp": 2} if named else {"pp": 2} if own else None}],
        pools=PoolsSection(prefill=int(prefill), decode=int(decode)),
    )
    expected = ["machines.0.replica.dp"] * named
    if settings["dp"] > 1:
        reasons = (settings["instant"], lower, prefill or decode, settings["scheduler"] != "kvsim")
        expected += ["replica.dp"] * sum(reasons)
    assert paths_of(engine_effects.of_ranks(model, (machine,))) == expected
    staged = settings["pp"] == 2 and (
        settings["scheduler"] != "vllm" or settings["async_scheduling"] != "none" or lower
    )
    where = "machines.0.replica.pp" if own and not named else "replica.pp"
    assert paths_of(engine_effects.of_parallel(model, (machine,))) == [where] * staged
