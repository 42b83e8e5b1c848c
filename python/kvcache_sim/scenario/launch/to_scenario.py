"""A launch line as a commented scenario."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import parse_size_bytes
from kvcache_sim.model.kv_groups import token_bytes
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.releases import newest_equal
from kvcache_sim.model.step_times import own_set
from kvcache_sim.scenario.idle import leave_out
from kvcache_sim.scenario.launch.drafts import drafts_of
from kvcache_sim.scenario.launch.line import LaunchLine, parse_launch, without_secrets
from kvcache_sim.scenario.launch.lower_tiers import write_lower_tiers
from kvcache_sim.scenario.launch.making import Making
from kvcache_sim.scenario.launch.names import about_model, gpu_of, kv_dtype_of_name, model_of
from kvcache_sim.scenario.launch.one_kind import as_one_kind
from kvcache_sim.scenario.launch.weights import has_experts, weights_of
from kvcache_sim.scenario.quantities import render_size
from kvcache_sim.scenario.resolved import to_yaml
from kvcache_sim.scenario.yaml_tree import Tree, parse_path, set_value

#: The date of a later release, such as 2507, whose context may differ from the first one's.
_RELEASE = re.compile(r"-[0-9]{4}(?=-|$)")


_STAGES = "replica.pp"
_CONTEXT = "replica.max_model_len"
#: Environment variables with which an engine accepts a context above the model's.
_ALLOWS_LONG = ("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1")


def count_of(line: LaunchLine, flag: str) -> int:
    """Return the number of GPUs or ranks of a flag; 1 without it. Raises UsageError for an invalid number."""
    text = line.flags.get(flag, "1")
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise UsageError("no number of GPUs", where=flag, got=repr(text)[:60], expected="1 to 4096")
    return int(text)


def stages_of(line: LaunchLine) -> int:
    """Return the line's pipeline stages: the memory of each GPU is multiplied by them."""
    flags = [flag for flag, key in line.engine.spread.items() if key == _STAGES]
    return count_of(line, flags[0]) if flags else 1


def spread(made: Making) -> None:
    """Write stages and shared blocks into a scenario that is valid without them; leave conflicting flags."""
    for flag, key in made.line.engine.spread.items():
        count = count_of(made.line, flag)
        if count == 1:
            continue
        if key == _STAGES:
            if made.attempt({key: str(count), "replica.scheduler": made.line.engine.name}, flag):
                made.assumed.append(
                    "a step takes as long as without stages: transfers between them take no time"
                )
            continue
        # A block spans the GPUs of a group; each GPU has the block size of the line.
        block = int(made.tree.values["cache"]["block_size"]) * count
        made.attempt({key: str(count), "cache.block_size": str(block)}, flag)


#: Numbers in vLLM's syntax: 32k is 32,000, 32K is 32,768.
_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmMgG])$")
_SCALE = {"k": 10**3, "K": 1 << 10, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30}

#: vLLM applies it regardless of memory; of several flags for the same setting the last one counts.
_PREVAILS = "--num-gpu-blocks-override"


def scenario_of_launch(text: str, gpu: str, model: str = "") -> str:
    """Return a launch line's scenario as YAML: flags with a setting as settings, the others as comments.

    ``model`` is the catalog's name if the line's is not known; ``gpu`` "" is the one that the text names.
    Raises UsageError for a line of no known engine, an unknown model, and an invalid value of a flag.
    """
    line = parse_launch(text)
    made = Making(line)
    for key, value in line.engine.defaults.items():
        made.write(key, value, "--from")
    made.write("replica.release", str(newest_equal(line.engine.name)), "--from")
    named, found = model or model_of(line.model), gpu_of(text, gpu)
    gpu = found.name
    made.assumed += about_model(named, line.model, model)
    degree = _ranks(made, named, count_of(line, line.engine.tensor_parallel))
    _settings(made, degree * stages_of(line))
    kv = made.tree.values.get("cache", {}).get("kv_dtype") or kv_dtype_of_name(line.model)
    if kv and "kv_dtype" not in made.tree.values.get("cache", {}):
        made.write("cache.kv_dtype", kv, "--from")
        made.assumed.append(f"KV is {kv}, as the configuration of {line.model} says")
    ranks = int(made.tree.values.get("replica", {}).get("dp", 1))
    spread_experts = ranks > 1 and made.left.pop("--enable-expert-parallel", None) is not None
    degrees = {"tp": degree, "ep": degree * ranks if spread_experts else 1, "dp": ranks}
    options = [*(f"{kind}{count}" for kind, count in degrees.items() if count > 1)]
    weights = weights_of(made, named)
    options += [*([weights] if weights else []), *([f"kv-{kv}"] if kv else [])]
    # Packaged sets of own iterations are of vLLM, with the model's own formats.
    as_published = line.engine.name == "vllm" and not kv and not weights
    measured = own_set(named, gpu, *degrees.values()) if as_published else None
    step_time = measured or f"roofline:{named}@{gpu}" + (f":{','.join(options)}" if options else "")
    made.write("replica.step_time", step_time, "--from")
    made.write("model", named, "--from")
    if line.engine.name == "vllm" and not token_bytes(load_model(named)):
        made.write("cache.semantics", "vllm", "--from")
    _allow_long(made, named)
    _leave_out_unusable(made)
    as_one_kind(made)
    spread(made)
    write_lower_tiers(made, degree * stages_of(line))
    left = [
        one for one in line.environment if one not in _ALLOWS_LONG and one.partition("=")[0] not in made.used
    ]
    head = [
        f"# Made from: {' '.join(text.split())}",
        f"# {found.comment}. Run it with  kvsim simulate TRACE -c FILE",
        *(f"# assumed: {one}" for one in made.assumed),
        *(f"# not simulated: {one}" for one in left),
        *_left(made),
    ]
    lines = (" ".join(without_secrets(one).split()) for one in head)  # a name may hold line breaks
    return "\n".join(lines) + "\n" + to_yaml(made.tree.values)


def _allow_long(made: Making, named: str) -> None:
    """Accept a context above the model's if the line does, or if its release of the model has another one."""
    given, longest = (
        made.tree.values["replica"].get("max_model_len"),
        load_model(named).context.longest_tokens,
    )
    if not isinstance(given, int) or longest is None or given <= longest:
        return
    allowed = any(one in _ALLOWS_LONG for one in made.line.environment)
    if allowed or _RELEASE.search(made.line.model):
        made.write("replica.allow_long_max_model_len", "true", "--from")
    if not allowed and _RELEASE.search(made.line.model):
        made.assumed.append(f"{made.line.model} has a context of {given:,} tokens; {named} has {longest:,}")


def _left(made: Making) -> Iterator[str]:
    """Yield comments on flags without a setting, then on the closest settings."""
    engine = made.line.engine
    for flag, value in made.left.items():
        yield f"# {'done anyway' if flag in engine.granted else 'not simulated'}: {flag} {value}".rstrip()
    for flag in made.left:
        if flag in engine.nearest:
            yield f"# nearest to {flag}: {engine.nearest[flag]}"


def _ranks(made: Making, model: str, degree: int) -> int:
    """Write data parallelism as ranks in lockstep or as machines. Return the GPUs of one of them."""
    line, flag = made.line, made.line.engine.replicas
    count = count_of(line, flag)
    if count == 1:
        return degree
    sglang = line.engine.name == "sglang"
    together = "--enable-dp-attention" in line.flags if sglang else has_experts(load_model(model))
    per_rank = max(degree // count, 1) if sglang and together else degree
    lower = any(line.engine.sized.get(one, ("",))[0] == "tiers.cpu.capacity" for one in line.flags)
    if together and not lower:
        line.flags.pop("--enable-dp-attention", None)
        made.write("replica.dp", str(count), flag)
        return per_rank
    if together:
        made.assumed.append("ranks step by themselves: lock step goes with no lower tier here")
    made.write("cluster.machines", str(count), flag)
    if not sglang:
        made.write("router.policy", "vllm-dp", flag)
    return per_rank


def _with_lower_tier(made: Making, flags: dict[str, str]) -> None:
    """Remove a switch that only enables a lower tier if another flag gives the tier's size."""
    if made.line.engine.name == "sglang" and "--hicache-size" in flags:
        flags.pop("--enable-hierarchical-cache", None)


def _settings(made: Making, gpus: int) -> None:
    """Write flags with settings into the tree; the other flags are left."""
    line, engine = made.line, made.line.engine
    flags = dict(line.flags)
    _with_lower_tier(made, flags)
    drafts, assumed = drafts_of(flags)
    if drafts is not None:
        if any(engine.switches.get(flag) == ("cache.enabled", "false") for flag in flags):
            drafts.pop("eagle", None)  # no hits, so EAGLE recomputes no last block
        set_value(made.tree, ("replica", "speculation"), drafts, "speculative decoding")
        made.assumed.append(assumed)
        if (name := "--async-scheduling") in flags:
            made.left[name] = f"{flags.pop(name)} (not with drafts)".strip()
    alongside = _with_own_scheduler(made, drafts is not None, flags)
    for flag, value in sorted(
        flags.items(), key=lambda item: item[0] not in engine.same
    ):  # the page size first
        if flag in engine.same:
            key, text = engine.same[flag], _plain(value)
        elif flag in engine.sized:
            key, form = engine.sized[flag]
            text = _sized(made, flag, value, form, gpus)
        elif flag in engine.switches:
            key, text = engine.switches[flag]
        elif flag in engine.words:
            key, words = engine.words[flag]
            text = _word(flag, value, words)
        elif flag in engine.own_scheduler and alongside:
            made.left[flag] = (
                f"{value} (of the engine's own scheduler, which has no {alongside} here)".strip()
            )
            continue
        elif flag in engine.own_scheduler:
            key, words = engine.own_scheduler[flag]
            text = _word(flag, value, words) if words else _plain(value)
            set_value(made.tree, ("replica", "scheduler"), engine.name, flag)
        elif flag in (engine.tensor_parallel, engine.replicas, *engine.spread):
            continue
        else:
            made.left[flag] = value
            continue
        if not value and flag not in engine.switches and flag not in engine.valueless:
            raise UsageError("no value", where=flag)
        if text in ("auto", "-1") and key == _CONTEXT:
            made.write(key, "auto", flag)
        elif text in ("auto", "-1"):
            made.left[flag] = value
        elif text:
            _write_one(made, key, text, flag)


def _write_one(made: Making, key: str, text: str, flag: str) -> None:
    """Write a flag's setting; of two flags of one setting the loser is left, with the winner's name."""
    before = made.tree.locations.get(parse_path(key, flag), "")
    if before in made.line.flags:
        loser, winner = (flag, before) if before == _PREVAILS else (before, flag)
        made.left[loser] = f"{made.line.flags[loser]} ({winner} prevails)".strip()
        if loser == flag:
            return
    made.write(key, text, flag)


def _with_own_scheduler(made: Making, drafts: bool, flags: dict[str, str]) -> str:
    """Return the feature that an engine's own scheduler cannot be simulated with; "" if there is none."""
    lower = any(made.line.engine.sized.get(flag, ("",))[0] == "tiers.cpu.capacity" for flag in flags)
    ranks = made.tree.values.get("replica", {}).get("dp", 1) > 1
    if "--disable-radix-cache" in flags:
        return "cache switched off"
    return "lower tiers" if lower else "drafts" if drafts else "ranks in lock step" if ranks else ""


def _word(flag: str, value: str, words: dict[str, str]) -> str:
    if value not in words:
        raise UsageError("unknown value", where=flag, got=repr(value), expected=" | ".join(words))
    return words[value]


def _plain(value: str) -> str:
    """Return a number with its suffix for thousands expanded, or the text as it is."""
    found = _COUNT.match(value)
    return str(round(float(found[1]) * _SCALE[found[2]])) if found else value


def _sized(made: Making, flag: str, value: str, form: str, gpus: int) -> str:
    """Return a flag's number as a capacity of the machine."""
    try:
        number = float(_plain(value))
    except ValueError:
        raise UsageError("no number", where=flag, got=repr(value)[:60]) from None
    if flag in made.line.engine.sized_per_gpu:
        number *= gpus
    if form == "{} tokens":
        page = int(made.tree.values.get("cache", {}).get("block_size", 1))
        return f"{int(number) // page} blocks"
    text = form.format(f"{number:.12g}" if number != int(number) else int(number))
    return text if text.endswith("blocks") else render_size(parse_size_bytes(text))


def _leave_out_unusable(made: Making) -> None:
    """Remove settings that have no effect with the others, and record the reason.

    Raises UsageError for an invalid value.
    """
    while True:
        try:
            made.check()
            return
        except UsageError as error:
            paths = [path for path, location in made.tree.locations.items() if location == error.where]
            if "has no effect" not in error.what or error.where in ("", "--from") or not paths:
                raise
            for path in paths:
                _take_out(path, made.tree)
            flag = str(error.where)
            made.left[flag] = f"{made.line.flags.get(flag, '')} ({error.hint})".strip()


def _take_out(path: tuple[str | int, ...], tree: Tree) -> None:
    """Remove a setting, and sections that are empty without it."""
    leave_out(path, tree)
    for depth in range(len(path) - 1, 0, -1):
        section = tree.values
        for step in path[: depth - 1]:
            section = section[str(step)]
        if section[str(path[depth - 1])]:
            return
        del section[str(path[depth - 1])]
