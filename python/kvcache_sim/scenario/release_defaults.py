"""Defaults of an engine's release: what a scenario leaves out of ``replica``, and which release that is.

A value that is written is never replaced, whatever it is; ``kvsim releases`` prints the tables.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.hosts import load_host
from kvcache_sim.model.release_subject import release_subject
from kvcache_sim.model.releases import Release, ReleaseSetting, Subject, newest_equal, parse_release
from kvcache_sim.model.step_times import contains_host, measured_on
from kvcache_sim.scenario.machine_sections import ReplicaSection
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.served_model import served_model
from kvcache_sim.scenario.yaml_tree import Path, Tree, at_location

RELEASE: Path = ("replica", "release")
_KEY = "replica."
_TOKENS, _SEQS = "max_num_batched_tokens", "max_num_seqs"


def with_release(
    machine: MachineSection, model: ScenarioModel, tree: Tree, index: int | None = None
) -> MachineSection:
    """Return a machine with its release, and with that release's values of the keys that are left out.

    ``index``: of a machine with settings of its own. Without ``replica.release`` a capacity that is found
    from the GPU's memory takes the newest release that the recorded decisions of its engine equal; a machine
    with neither stays as it is. Raises UsageError for an unknown release, for another engine's than the
    scheduler's, and if the GPU decides and is not known.
    """
    path = RELEASE if index is None else ("machines", index, *RELEASE)
    if (gpu := measured_on(machine.replica.step_time).gpu) is not None:
        at_location(tree, ("replica", "step_time"), lambda: load_gpu(gpu))
    usual = None if index is None else model.replica.release
    release = at_location(tree, path, lambda: _release_of(machine, usual))
    written = written_keys(tree, index)
    if release is None:
        return machine if "host" in written else _with_host_of_stages(machine)
    if machine.replica.host is not None:
        written |= at_location(
            tree, ("replica", "host"), lambda: frozenset(load_host(str(machine.replica.host)).figures)
        )
    taken = at_location(tree, path, lambda: release_values(machine.replica, model, release, written))
    return replace(machine, replica=replace(machine.replica, **taken, release=str(release)))


def _with_host_of_stages(machine: MachineSection) -> MachineSection:
    """Return a machine without a release, with the host of its pipeline stages if it has several."""
    replica = machine.replica
    if (replica.pp or 1) == 1 or replica.scheduler != "vllm" or replica.instant:
        return machine
    host = newest_equal("vllm").value("host", Subject(traits=frozenset({"pp"})))
    return replace(machine, replica=replace(replica, host=host))


def written_keys(tree: Tree, index: int | None = None) -> frozenset[str]:
    """Return the keys of ``replica`` that a scenario writes, for all machines or for one of them."""
    sections: list[Any] = [tree.values.get("replica")]
    machines = tree.values.get("machines") or []
    if index is not None and index < len(machines):
        sections.append(machines[index].get("replica"))
    return frozenset(
        key for section in sections for key, value in (section or {}).items() if value is not None
    )


def _release_of(machine: MachineSection, usual: str | None) -> Release | None:
    """Return a machine's release; ``usual``: the other machines', for one that names none."""
    replica = machine.replica
    if replica.release is not None:
        return _checked(parse_release(replica.release), replica)
    if usual is not None and replica.scheduler in ("kvsim", parse_release(usual).engine):
        return parse_release(usual)
    is_found = machine.tiers.compute.capacity.auto and measured_on(replica.step_time).gpu is not None
    return release_of(replica) if is_found else None


def release_of(replica: ReplicaSection) -> Release:
    """Return a replica's release: unless named, the newest that its engine's recorded decisions equal."""
    if replica.release is not None:
        return parse_release(replica.release)
    return newest_equal("sglang" if replica.scheduler == "sglang" else "vllm")


def _checked(release: Release, replica: ReplicaSection) -> Release:
    if release.engine not in ("vllm", "sglang"):
        raise UsageError("not the engine of a replica", got=release.engine, expected="vllm or sglang")
    if replica.scheduler not in ("kvsim", release.engine):
        what = f"a release of {release.engine} under replica.scheduler {replica.scheduler}"
        raise UsageError(what, got=str(release))
    return release


def release_values(
    replica: ReplicaSection, model: ScenarioModel, release: Release, written: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return a release's values of the keys of ``replica`` that are not written.

    The engine's own scheduler alone takes the keys that only it has, and an instant run, whose steps take
    whole prompts, no budget. vLLM (``engine/arg_utils.py``) holds sequences that are not given to the
    budget, and a budget that is not given to the sequences' longest context; SGLang's ranks of attention
    share a chunk.
    """
    subject = _subject(replica, model, release)
    taken: dict[str, Any] = {}
    for setting in release.table.moving("replica"):
        key = setting.moves.removeprefix(_KEY)
        if key in written or not _applies(setting, replica):
            continue
        is_contained = contains_host(replica.step_time) and (replica.pp or 1) == 1
        if key == "host" and (replica.instant or is_contained):
            continue  # steps that were timed in the engine contain it, but for that of stages
        if subject is None and any(row.gpu or row.least_bytes for row in setting.rows):
            hint = f"write replica.{_TOKENS} and replica.{_SEQS}"
            raise UsageError("the release's batch follows the GPU, and the step times name none", hint=hint)
        row = setting.row(release.version, subject or Subject())
        if row is not None and row.taken != "absent":
            taken[key] = row.taken
    if taken.get("async_scheduling", replica.async_scheduling) == "none":
        taken.pop("pp_steps", None)
    tokens, seqs = taken.get(_TOKENS), taken.get(_SEQS)
    if tokens is not None and release.engine == "sglang":
        taken[_TOKENS] = max(tokens // replica.dp, 1)
    elif tokens is not None and (context := _context(replica, model)):
        taken[_TOKENS] = min(tokens, (replica.max_num_seqs if seqs is None else seqs) * context)
    if seqs is not None:
        taken[_SEQS] = min(seqs, taken.get(_TOKENS, replica.max_num_batched_tokens))
    return taken


def with_running_requests(
    machine: MachineSection, model: ScenarioModel, tree: Tree, index: int | None = None
) -> MachineSection:
    """Return a machine with its most running requests where they follow its pool and are not written."""
    seqs = _running_requests(machine, model)
    if seqs is None or _SEQS in written_keys(tree, index):
        return machine
    return replace(machine, replica=replace(machine.replica, max_num_seqs=seqs))


def _running_requests(machine: MachineSection, model: ScenarioModel) -> int | None:
    """Return SGLang's most running requests, None of another engine, an instant run or an unknown pool.

    512 requests for each context that the pool holds, from 2,048 to 4,096, and at most one for two tokens;
    with drafts 48 (``max_running_requests`` of the table).
    """
    replica, blocks = machine.replica, machine.tiers.compute.capacity.blocks
    context = replica.max_model_len
    if replica.release is None or replica.instant or blocks is None or context is None:
        return None
    if parse_release(replica.release).engine != "sglang":
        return None
    if replica.speculation is not None:
        return 48
    tokens = blocks * model.cache.block_size
    return min(max(int(tokens / context * 512), 2048), 4096, max(tokens // 2, 1))


def _applies(setting: ReleaseSetting, replica: ReplicaSection) -> bool:
    if setting.own_scheduler and replica.scheduler == "kvsim":
        return False
    return not (replica.instant and (setting.own_scheduler or setting.moves == _KEY + _TOKENS))


def _subject(replica: ReplicaSection, model: ScenarioModel, release: Release) -> Subject | None:
    """Return what a release's values depend on; None if the step times name no GPU."""
    measured = measured_on(replica.step_time)
    if measured.gpu is None:
        return None
    gpu = load_gpu(measured.gpu)
    subject = release_subject(served_model(model), gpu, measured.tensor_parallel, release)
    more = {"pp": (replica.pp or 1) > 1, "drafts": replica.speculation is not None}
    return replace(subject, traits=subject.traits | {trait for trait, holds in more.items() if holds})


def _context(replica: ReplicaSection, model: ScenarioModel) -> int:
    """Return the most tokens of a sequence, 0 if memory decides."""
    given = replica.max_model_len
    return served_model(model).context.default_tokens if given is None else max(given, 0)


class ReleaseUse(Value):
    """A release, and its values that a run uses by key, such as ``replica.max_num_seqs``."""

    name: str
    note: str
    values: dict[str, Any]


def release_use(model: ScenarioModel) -> ReleaseUse | None:
    """Return the release of a filled scenario's machines, with the values of it that they use."""
    replica = model.replica
    if replica.release is None:
        return None
    release = parse_release(replica.release)
    known = release_values(replica, model, release)
    running = _running_requests(MachineSection(tiers=model.tiers, replica=replica), model)
    known |= {} if running is None else {_SEQS: running}
    used = {_KEY + key: value for key, value in known.items() if getattr(replica, key) == value}
    return ReleaseUse(str(release), release.note, used)
