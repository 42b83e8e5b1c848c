"""The language model that a scenario serves: its formats, cache groups, and the model of its step times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvcache_sim.base.errors import KvsimError, UsageError
from kvcache_sim.base.tiers import STAGING, TIERS
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.model.dtypes import KV_DTYPES, bits_per_value, check_dtype
from kvcache_sim.model.kv_groups import kv_layout, token_bytes
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.releases import Version, newest_equal, parse_release
from kvcache_sim.model.step_times import measured_on, nearest_source
from kvcache_sim.scenario.engine_tiers import chunk_tokens, lower_semantics
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.kv_copies import KvCopies, kv_copies
from kvcache_sim.scenario.machine_sections import ReplicaSection
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel


def served_model(model: ScenarioModel) -> ModelSpec:
    """Return the served model.

    ``cache.kv_dtype`` takes precedence over the step-time set's format, which takes precedence over the
    model's. Raises UsageError for an unknown model, step-time set or format.
    """
    subject = measured_on(model.replica.step_time)
    given = model.cache.kv_dtype
    kv_dtype = check_dtype(given, "cache.kv_dtype", KV_DTYPES) if given else subject.kv_dtype
    return load_model(str(model.model)).with_dtypes(subject.weight_dtype, kv_dtype)


#: Models whose weights differ by less, such as two releases of one size, count as the same model.
_ALIKE = 0.1


def other_model_timed(model: ScenarioModel) -> str | None:
    """Return a note if the step-time set's model differs from the served model.

    None if no time passes, if the set names no model or a model of its own, or if both models have about the
    same number of weights.
    """
    replica, served = model.replica, str(model.model)
    if replica.instant:
        return None
    subject = measured_on(replica.step_time)
    if subject.model is None or subject.gpu is None or subject.model == served:
        return None
    try:
        named, timed = load_model(served), load_model(subject.model)
    except KvsimError:
        return None  # an unknown model cannot be compared
    pairs = ((named.params_total, timed.params_total), (named.params_active, timed.params_active))
    if all(abs(a - b) <= _ALIKE * b for a, b in pairs):
        return None
    own_steps = nearest_source(served, subject.gpu, subject.tensor_parallel)
    return (
        f"steps take as long as those of {subject.model} (replica.step_time: {replica.step_time}), KV is "
        f"that of {served}: its own steps are replica.step_time={own_steps}"
    )


def other_kv_timed(model: ScenarioModel) -> str | None:
    """Return a note if ``cache.kv_dtype`` has another size than the KV that the steps were timed with.

    None if no time passes, and for sources that name no GPU or are files: their format is not known.
    """
    replica, given = model.replica, model.cache.kv_dtype
    if replica.instant or given is None or replica.step_time.endswith((".toml", ".csv", ".csv.gz")):
        return None
    subject = measured_on(replica.step_time)
    if subject.model is None or subject.gpu is None:
        return None
    try:
        timed = subject.kv_dtype or load_model(subject.model).kv_dtype
    except KvsimError:
        return None
    if bits_per_value(timed) == bits_per_value(given):
        return None
    degree = f"tp{subject.tensor_parallel}" if subject.tensor_parallel > 1 else ""
    options = [each for each in (degree, subject.weight_dtype) if each]
    source = f"roofline:{subject.model}@{subject.gpu}"
    with_given = f"{source}:{','.join([*options, f'kv-{given}'])}"
    as_timed = source + (f":{','.join(options)}" if options else "")
    return (
        f"steps read {timed} KV (replica.step_time: {replica.step_time}), not {given}: that takes "
        f"replica.step_time={with_given}, compared with {as_timed}"
    )


#: Semantics of the tier below the GPU that support cache groups, by the semantics of the GPU.
_TIERS_OF_GROUPS = {"vllm": ("vllm-offload", "vllm-simple-kv-offload"), "tree": ("groups",)}

_WORDS = {"window": "windows", "chunk": "chunks", "state": "states"}


def cache_groups(model: ScenarioModel) -> GroupSettings | None:
    """Return the groups of the served model; None if all its layers keep every block or share a tree.

    Raises UsageError for a model whose layers cannot be split into groups.
    """
    if not has_groups(model):
        return None
    spec, replica = served_model(model), model.replica
    gpus = measured_on(replica.step_time).tensor_parallel
    if model.cache.semantics == "tree" and not token_bytes(spec):
        raise UsageError(f"a tree's layout of {spec.name} is not known", hint="set cache.semantics=vllm")
    layout = kv_layout(spec, gpus, model.cache.block_size, _layout_release(replica))
    settings = GroupSettings(
        spec.name,
        layout,
        replica.max_num_batched_tokens,
        model.cache.retention_interval,
        gpus=gpus,
        rules="vllm" if model.cache.semantics == "vllm" else "tree",
    )
    longest = replica.max_model_len
    return replace(settings, max_model_len=longest) if longest is not None and longest > 0 else settings


def _layout_release(replica: ReplicaSection) -> Version:
    """Return the release of vLLM that lays out the layers: the newest under another engine's."""
    release = newest_equal("vllm") if replica.release is None else parse_release(replica.release)
    return release.version if release.engine == "vllm" else newest_equal("vllm").version


def has_groups(model: ScenarioModel) -> bool:
    """Return True if the served model's layers form several cache groups."""
    cache = model.cache
    default = "by-kind" if cache.semantics == "vllm" else "as-full"
    if (cache.layer_groups or default) == "as-full":
        return False
    return _supports_groups(model) and _has_kinds(model)


def _supports_groups(model: ScenarioModel) -> bool:
    return model.cache.semantics in ("vllm", "tree") and model.cache.accounting == "detailed"


def _has_kinds(model: ScenarioModel) -> bool:
    return any(kept.reach != "all" for kept in served_model(model).caches())


def taken_as_full(model: ScenarioModel) -> str | None:
    """Return a note if a tree treats windows or states as full attention without a setting that asks for it.

    None if all layers keep every block, if groups are simulated, or if ``as-full`` was written.
    """
    cache = model.cache
    if cache.semantics != "tree" or cache.layer_groups is not None or not _supports_groups(model):
        return None
    caches = served_model(model).caches()
    kinds = sorted({_WORDS[kept.reach] for kept in caches if kept.reach != "all"})
    if not kinds:
        return None
    by_kind = "cache.layer_groups=by-kind simulates them, as-full is this"
    remedy = by_kind if token_bytes(served_model(model)) else "cache.semantics=vllm simulates them"
    return (
        f"all layers of {model.model} count as full attention: its {' and '.join(kinds)} use no memory and "
        f"limit no hit; {remedy}"
    )


def of_groups(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield settings that conflict with cache groups, or need them, each with the reason."""
    if not has_groups(model):
        if model.cache.retention_interval != 0:
            yield ("cache", "retention_interval"), _only_groups(model)
        if model.cache.layer_groups is not None and not (_supports_groups(model) and _has_kinds(model)):
            yield ("cache", "layer_groups"), _only_groups(model)
        return
    name = served_model(model).name
    given = model.cache.kv_bytes_per_token
    if given and given != served_model(model).kv_bytes_per_token:
        yield ("cache", "kv_bytes_per_token"), f"the layers of {name} say what a block of its groups holds"
    groups = cache_groups(model)
    assert groups is not None
    align, chunk = groups.layout.scheduler_block_size, chunk_tokens(model)
    if chunk and (chunk % align or any(g.block_size_tokens != align for g in groups.layout.groups)):
        sizes = ", ".join(str(g.block_size_tokens) for g in groups.layout.groups)
        why = f"a chunk is whole blocks of groups with blocks of one size, and those of {name} have {sizes}"
        yield Contradiction(("tiers", TIERS[STAGING], "chunk_tokens"), why)
    unit, what = (chunk, "chunk below") if chunk else (align, "common block")
    if model.cache.retention_interval is not None and model.cache.retention_interval % unit:
        why = f"windows and states are kept at multiples of {unit}, the groups' {what}"
        yield ("cache", "retention_interval"), why
    if model.pools.prefill or model.pools.decode:
        why = f"the cache groups of {name} are not handed over between machines"
        yield Contradiction(("pools", "prefill"), why)
    below = _TIERS_OF_GROUPS[model.cache.semantics]
    if lower_semantics(model) not in (None, *below):
        why = f"below the cache groups of {name} only {' or '.join(below)} supports groups"
        yield Contradiction(("tiers", TIERS[STAGING], "semantics"), why)
    if model.router.index_blocks is not None:
        yield ("router", "index_blocks"), f"a router's own index has no cache groups, as {name} has"
    common = model.replica
    for index, machine in enumerate(machines):
        replica = machine.replica
        same = replica.max_num_batched_tokens == common.max_num_batched_tokens
        if not same or _gpus(replica) != _gpus(common):
            key = "step_time" if same else "max_num_batched_tokens"
            yield (
                ("machines", index, "replica", key),
                f"the cache groups of {name} are the same on all machines",
            )


def check_block_bytes(model: ScenarioModel) -> None:
    """Raise UsageError if nothing says what a block holds: a layout that is not known, no size of a token."""
    spec, given = served_model(model), model.cache.kv_bytes_per_token
    if not has_groups(model) and not token_bytes(spec) and given in (None, spec.kv_bytes_per_token):
        raise UsageError(
            f"how many tokens of {spec.name} memory holds is not known here",
            expected="blocks",
            hint="set cache.semantics=vllm",
        )


def _gpus(replica: ReplicaSection) -> int:
    return measured_on(replica.step_time).tensor_parallel


def _only_groups(model: ScenarioModel) -> str:
    cache = model.cache
    if not _supports_groups(model):
        got = cache.accounting if cache.semantics in ("vllm", "tree") else cache.semantics
        return f"cache groups need cache.semantics vllm or tree with detailed accounting, not {got}"
    if _has_kinds(model):
        return "all layers count as full attention: cache.layer_groups is not by-kind"
    return f"all layers of {served_model(model).name} keep every block"


def copies_of(
    model: ScenarioModel, replica: ReplicaSection, spec: ModelSpec | None = None, lower: str | None = None
) -> KvCopies:
    """Return the copies of KV on a machine of the filled scenario.

    ``spec`` is a model of its own, ``lower`` the rules of its lower tiers if they are not the scenario's. Of
    cache groups each tier stores what all GPUs do, as their pages are those of all layers.
    """
    release = model.replica.release or ""
    semantics = None if has_groups(model) else lower or lower_semantics(model)
    return kv_copies(spec or served_model(model), _gpus(replica), replica.cp or 1, semantics, release)


def block_bytes(model: ScenarioModel, replica: ReplicaSection) -> int:
    """Return the bytes of a block over all layers and GPUs of a machine; the model must be filled."""
    groups = cache_groups(model)
    if groups is not None:
        return groups.block_bytes
    per_token = model.cache.kv_bytes_per_token or served_model(model).kv_bytes_per_token
    return model.cache.block_size * copies_of(model, replica).bytes_on_gpus(per_token)
