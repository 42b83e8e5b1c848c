"""Each rule on settings without effect, in a sweep of two cells of which the other one uses the setting.

Rows come from the table of ``test_every_setting``: where one setting has a refusal and a change, the
refusal's settings make a cell that cannot use it and the change's one that does.
"""

import pytest
from kvcache_sim.base.errors import KvsimError, UsageError
from kvcache_sim.extras.study.sweeps.cell import Limits
from kvcache_sim.extras.study.sweeps.simulation import plan_sweep
from kvcache_sim.extras.study.sweeps.study import SweepFile
from kvcache_sim.scenario.idle import IdleError
from kvcache_sim.scenario.yaml_tree import read_tree
from support.product.scenarios import varied_from_text
from support.product.sweeps import Space
from support.setting_effects import CHANGES, REFUSALS, Refusal
from support.tiered_scenario import BASE, load

#: Settings that others rule out, and why: without the rule another run than the requested one would be
#: simulated.
_RULED_OUT = """
cache.accounting | counts one tier's tokens
cache.semantics | has a gpu tier only
tiers.cpu.semantics | this tier keeps a tree's cache groups | LMCache's server has no default |
    its scheduler is replica.scheduler vllm alone
trace.path | keep one of the two
workload.prompt_structure | how 'kvsim trace generate' writes rows
fleet.plan | a lose-tier takes no channel | a flush takes no tier | that every machine has | channel: one of |
    there are machines
retention | hints need cache.semantics tree | no time passes
tenants.max_in_flight | no request waits for its turn or for tokens | polls follow the trace's arrivals
tenants.of.a.cache_blocks | quotas of cache need cache.semantics tree
fleet.scaling | are not from least to most | fewer than least | add fleet.scaling.schedule | decide which
    machines join and leave | the kind of a joining machine is undefined
cluster.pool | only blocks of the tree | auto is for the tier | does not support a time to live
fleet.faults | add fleet.faults_until
pools.decode | nothing is handed over
handover.decide | add handover.prefill_busy | counts each machine it names as chosen
handover.path | hand-overs cross memory as they are on the gpu
tiers.cpu.kv_ratio | cluster.pool holds blocks as they are | cache groups send pages of their layers
cache.cache_output | SGLang's tree keeps prompts and answers
replica.scheduler | gives out the blocks of its own pool | gives out the pages of its own tree
replica.speculation | drafts no tokens here | asynchronous scheduling with drafts is not simulated | drafts are
    not handed over | what a rejected draft leaves of a state | a hit that loses its last block is not simulated
    | drafts in several cache groups with a tier below
replica.dp | ranks that step together have no lower tiers
replica.pp | micro-batches are those of vLLM's own
replica.cp | is no multiple of it | copies of | windows and states are not shared out
tiers.cpu.chunk_tokens | a chunk is whole blocks
machines[0].tiers.cpu.chunk_tokens | the tiers of all machines have the same chunk_tokens
tiers.cpu.capacity | auto is for the gpu
tiers.gpu.semantics | engines' own rules are the cpu's
tiers.disk.semantics | engines' own rules are the cpu's
machines[0].tiers.cpu.lazy_offload | the tiers of all machines have the same lazy_offload
machines[0].tiers.cpu.semantics | the tiers of all machines have the same semantics
machines[0].replica.instant | for all machines or for none
machines[0].replica.dp | for all machines or for none
machines[0].replica.max_model_len | all machines serve one model
machines[0].replica.allow_long_max_model_len | all machines serve one model
machines[0].replica.on_overflow | all machines serve one model
machines[0].tiers.cpu | blocks reach the disk through the cpu
"""
RULED_OUT = {
    key: tuple(reasons)
    for key, *reasons in (row.split(" | ") for row in _RULED_OUT.strip().replace("\n    ", " ").splitlines())
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
