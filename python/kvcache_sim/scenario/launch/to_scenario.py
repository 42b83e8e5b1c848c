"""A launch line as a commented scenario."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import parse_size_bytes
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.release_subject import release_subject
from kvcache_sim.model.releases import parse_version
from kvcache_sim.model.run_intervals import WIDE, unmeasured
from kvcache_sim.model.step_times import own_set
from kvcache_sim.scenario.gpu_memory import blocks_of_a_start
from kvcache_sim.scenario.launch.argv import plain_number
from kvcache_sim.scenario.launch.deployment import read_deployment
from kvcache_sim.scenario.launch.drafts import write_drafts
from kvcache_sim.scenario.launch.echo import shown
from kvcache_sim.scenario.launch.line import LaunchLine
from kvcache_sim.scenario.launch.making import DEFAULT, Given, Making, take_out
from kvcache_sim.scenario.launch.names import about_model, gpu_of, kv_dtype_of_name, model_of
from kvcache_sim.scenario.launch.one_kind import as_one_kind
from kvcache_sim.scenario.launch.parallel import (
    Degrees,
    degrees_of,
    write_degrees,
    write_shared_tokens,
    write_stages,
)
from kvcache_sim.scenario.launch.pools import around, joined, of_pool, without_ranks
from kvcache_sim.scenario.launch.tiers import lower_of, write_lower
from kvcache_sim.scenario.launch.weights import weights_of
from kvcache_sim.scenario.quantities import render_size
from kvcache_sim.scenario.resolved import to_yaml

#: The date of a later release, such as 2507, whose context may differ from the first one's.
_RELEASE = re.compile(r"-[0-9]{4}(?=-|$)")
_CONTEXT = "replica.max_model_len"
#: A capacity that is replaced.
_ENOUGH = "10000000 blocks"
_ALLOW = "replica.allow_long_max_model_len"
_TOKENS = re.compile(r"[1-9][0-9]{0,8}")
#: Settings' own defaults.
_USUAL = {"cache.enabled": True, "cache.retention_interval": 0}
#: Values that leave a setting to the engine.
_LEFT_OPEN = ("auto", "-1", "None", "")


def scenario_of_launch(text: str, gpu: str, model: str = "") -> str:
    """Return a launch line's scenario as YAML: flags with a setting as settings, the others as comments.

    ``model`` is the catalog's name if the line's is not known; ``gpu`` "" is the one that the text names.
    Raises UsageError for a line of no known engine, an unknown model, and an invalid value of a flag.
    """
    deployment, found = read_deployment(text, model), gpu_of(text, gpu)
    outside = around(deployment)
    made = [_made_of_worker(worker.line, found.name, model, outside) for worker in deployment.workers]
    return commented(joined(deployment, made), text, found.comment)


def _made_of_worker(line: LaunchLine, gpu: str, model: str, outside: Mapping[str, str]) -> Making:
    """Return the scenario of one line of several; what it names and is not here is refused."""
    try:
        named = model or model_of(line.model)
    except UsageError as error:
        if line.refusal is not None:
            error.hint += f"; then {line.refusal.what}: {line.refusal.got}"
        raise
    if line.refusal is not None:
        raise line.refusal
    line = of_pool(line) if "pools.prefill" in outside else line
    together = without_ranks(line) if "pools.prefill" in outside else None
    try:
        made = made_of_line(line, gpu, named, outside)
    except UsageError:
        if together is None:
            raise
        made = made_of_line(together, gpu, named, outside)
        lost = [f"{name} {text}".strip() for name, text in line.flags.items() if name not in together.flags]
        why = "ranks hand nothing over between machines here: one tensor-parallel group stands in"
        made.note("decides", ", ".join(lost), why)
    for about in about_model(named, line.model, model):
        made.note("assumed", about)
    return made


def commented(made: Making, text: str, gpu: str) -> str:
    """Return a scenario as YAML below its comments: what can change the answer first, then its GPU's.

    Above all of them stands which step times were not measured.
    """
    comments = list(made.comments())
    times = [one for one in comments if one.startswith("step times: ")]
    deciding = [one for one in comments if one.startswith("not simulated, and")]
    others = comments[len(times) + len(deciding) :]
    run = f"{gpu}. Run it with  kvsim simulate TRACE -c FILE"
    head = (f"# {shown(one)}\n" for one in (*times, f"Made from: {text}", *deciding, run, *others))
    return "".join(head) + to_yaml(made.tree.values)


def made_of_line(line: LaunchLine, gpu: str, named: str, around: Mapping[str, str] = {}) -> Making:
    """Return the scenario of a line for a model of the catalog; every flag and variable is set or noted.

    ``around`` are settings of what stands around the line: ``pools``, ``cluster.machines``, a router.
    """
    try:
        return _made(line, gpu, named, around, above_tier=False)
    except UsageError:
        # Ranks that do not fit by themselves step together, without the tier below them.
        with suppress(UsageError):
            together = _made(line, gpu, named, around, above_tier=True)
            if together.has("replica.dp"):
                return together
        raise


def _made(line: LaunchLine, gpu: str, named: str, around: Mapping[str, str], above_tier: bool) -> Making:
    """Return the scenario of a line; ``above_tier``: ranks step together although a tier is below them."""
    made = Making(line)
    made.write("model", named, DEFAULT)
    _write_release(made)
    for key, text in around.items():
        made.write(key, text, DEFAULT)
    lower = lower_of(made)
    degrees = degrees_of(made, named, lower is not None and not above_tier)
    write_degrees(made, degrees)
    _write_step_time(made, named, gpu, degrees)
    _write_defaults(made, named, gpu, degrees)
    of_scheduler = _write_plain(made, degrees)
    write_drafts(made)
    _allow_long(made, named)
    write_stages(made, degrees.stages)
    write_shared_tokens(made)
    _settle_pool(made)
    _double(made)
    as_one_kind(made)
    write_lower(made, lower, degrees)
    _write_own_rules(made, of_scheduler, degrees)
    _name_the_rest(made)
    return made


def _write_release(made: Making) -> None:
    """Write the engine's release and its cache; say what stands in for an engine without rules here."""
    name, release = made.line.engine.name, made.release
    if not made.has_rules:
        what = "kvsim's cache and scheduler, and vLLM's rule of memory, stand in for the engine's"
        made.note("decides", name, what)
        return
    made.write("replica.release", str(release), DEFAULT)
    made.write("cache.semantics", name, DEFAULT)
    if made.line.release and parse_version(made.line.release.partition("@")[2]) < release.version:
        made.note("assumed", f"{made.line.release} is older than what was read: values of {release}")


def _write_step_time(made: Making, named: str, gpu: str, degrees: Degrees) -> None:
    """Write the source of step times: a packaged set of own iterations, else a roofline of the same form."""
    weights = weights_of(made, named)
    given = [one for one in made.given.values() if one.flag.key == "cache.kv_dtype"]
    dtype = given[-1].flag.words.get(given[-1].text, "") if given else ""
    form = {"tp": degrees.tensor, "ep": degrees.experts, "dp": degrees.ranks}
    if not dtype and (dtype := kv_dtype_of_name(made.line.model)):
        made.write("cache.kv_dtype", dtype, DEFAULT)
        made.note("assumed", f"KV is {dtype}, as the configuration of {made.line.model} says")
    options = [*(f"{kind}{count}" for kind, count in form.items() if count > 1)]
    options += [*([weights] if weights else []), *([f"kv-{dtype}"] if dtype else [])]
    # Packaged sets of own iterations are of vLLM, with the model's own formats.
    as_published = made.line.engine.name == "vllm" and not dtype and not weights
    measured = own_set(named, gpu, *form.values()) if as_published else None
    roofline = f"roofline:{named}@{gpu}" + (f":{','.join(options)}" if options else "")
    made.write("replica.step_time", measured or roofline, DEFAULT)
    if words := unmeasured(measured or roofline, made.line.engine.name):
        made.note("times", f"{words}: ×{WIDE.low:.2f}–{WIDE.high:.2f}")


def _write_defaults(made: Making, named: str, gpu: str, degrees: Degrees) -> None:
    """Write the release's values of the cache's keys, which ``replica.release`` does not fill in."""
    subject = release_subject(load_model(named), load_gpu(gpu), degrees.tensor, made.release)
    for setting in made.release.table.moving("cache") if made.has_rules else ():
        row = setting.row(made.release.version, subject)
        if row is not None and row.taken != _USUAL.get(setting.moves):
            made.write(setting.moves, str(row.taken).lower(), DEFAULT)


def _write_plain(made: Making, degrees: Degrees) -> list[Given]:
    """Write the flags whose row has a setting; return those of the engine's own scheduler."""
    of_scheduler: list[Given] = []
    by_key: dict[str, Given] = {}
    for name in sorted(made.given, key=lambda one: made.given[one].flag.key != "cache.block_size"):
        given = made.given[name]
        if given.flag.rule or not given.flag.key:
            continue
        made.take(name)
        if given.flag.own_scheduler:
            of_scheduler.append(given)
            continue
        text = _setting(made, given, degrees)
        before = by_key.get(given.flag.key)
        if before is not None and text:
            loser, winner = (given, before) if before.flag.prevails else (before, given)
            made.note("no effect", str(loser), f"{winner.flag.name} prevails")
            if winner is before:
                continue
        if text:
            by_key[given.flag.key] = given
            made.write(given.flag.key, text, name)
    return of_scheduler


def _setting(made: Making, given: Given, degrees: Degrees) -> str:
    """Return the text of a flag's setting, "" if it leaves the setting to the engine; note why."""
    flag, text = given.flag, given.text
    if flag.alone:
        if found := flag.on if given.on else flag.off:
            return found
        made.note("no effect", str(given), "it is the default")
        return ""
    if not text:
        raise UsageError("no value", where=flag.name)
    if text in _LEFT_OPEN and flag.key == _CONTEXT:
        return "auto"
    if flag.words:
        if meaning := flag.words.get(text):
            return meaning
        if text in flag.words:
            made.note("no effect", str(given), "it is the default")
        else:
            made.leave(given, f"a value that no setting has; nearest: {flag.key}")
        return ""
    if text in _LEFT_OPEN:
        made.leave(given, f"nearest: {flag.key}", decides=text == "-1" and flag.per_dp)
        return ""
    text = plain_number(text) if flag.human or made.line.engine.name == "vllm" else text
    if flag.key == "cache.block_size" and not _TOKENS.fullmatch(text):
        raise UsageError("no number of tokens", flag.name, repr(text)[:60])
    if flag.per_dp and degrees.attention > 1 and text.isdecimal():
        share = str(max(int(text) // degrees.attention, 1))
        made.note("assumed", f"{given} is of all {degrees.attention} ranks of attention: {share} each")
        return share
    return _sized(made, given, text, degrees) if flag.unit else text


def _sized(made: Making, given: Given, text: str, degrees: Degrees) -> str:
    """Return a flag's number as a capacity of the machine."""
    try:
        number = float(text)
    except ValueError:
        raise UsageError("no number", where=given.flag.name, got=repr(text)[:60]) from None
    number *= degrees.gpus if given.flag.per_rank else 1
    if given.flag.unit == "tokens":
        return f"{int(number) // int(made.tree.values['cache']['block_size'])} blocks"
    if given.flag.unit == "blocks":
        return f"{int(number)} blocks"
    return render_size(parse_size_bytes(f"{number:.12g}{given.flag.unit}"))


def _allow_long(made: Making, named: str) -> None:
    """Accept a context above the model's if the line does, or if its release of the model has another one."""
    allowing = [name for name in made.variables if made.line.engine.variable(name).key == _ALLOW]
    allowed = any(made.variables.pop(name) in ("1", "true", "True") for name in allowing)
    given, longest = (
        made.tree.values["replica"].get("max_model_len"),
        load_model(named).context.longest_tokens,
    )
    if not isinstance(given, int) or longest is None or given <= longest:
        return
    configured = [str(given) for given in made.given.values() if given.flag.rule == "context"]
    if allowed or configured or _RELEASE.search(made.line.model):
        made.write(_ALLOW, "true", DEFAULT)
    if not allowed and not configured and _RELEASE.search(made.line.model):
        made.note("assumed", f"{made.line.model} has a context of {given:,} tokens; {named} has {longest:,}")


def _settle_pool(made: Making) -> None:
    """Leave out settings without effect, and the engine's own cache if they rule it out.

    Raises UsageError for an invalid value, and for a model or a context that the GPU cannot hold.
    """
    if not made.attempt({}, DEFAULT) or not made.attempt({"cache.semantics": ""}, DEFAULT):
        return
    if not made.has(_CONTEXT) and not made.attempt({_CONTEXT: "auto"}, DEFAULT):
        fits = made.check().model.replica.max_model_len
        why = (
            f"replica.max_model_len is auto: {fits:,} tokens fit" if fits else "replica.max_model_len is auto"
        )
        made.note("decides", "the engine refuses to start with the model's whole context", why)
        return
    if not made.has("tiers.gpu.capacity") and not made.attempt({"tiers.gpu.capacity": _ENOUGH}, DEFAULT):
        blocks = blocks_of_a_start(made.check().model)
        take_out(("tiers", "gpu", "capacity"), made.tree)
        if blocks is not None and not made.attempt({"tiers.gpu.capacity": f"{blocks} blocks"}, DEFAULT):
            why = f"the capacity is taken as the {blocks} blocks of one request of the context"
            made.note("decides", "whether the engine starts lies within the error of the GPU's capacity", why)
            return
    made.settle()


def _double(made: Making) -> None:
    """Double the batch that is not given, as ``--performance-mode throughput`` does."""
    given = made.take("--performance-mode")
    if given is None:
        return
    if given.text != "throughput":
        made.note("no effect", str(given), "the batch is the default one")
        return
    filled = made.check().model.replica
    for key in ("max_num_batched_tokens", "max_num_seqs"):
        if not made.has(f"replica.{key}"):
            made.write(f"replica.{key}", str(2 * getattr(filled, key)), given.flag.name)


def _write_own_rules(made: Making, of_scheduler: list[Given], degrees: Degrees) -> None:
    """Write the engine's own cache and scheduler where a run can have them, with the scheduler's flags."""
    name = made.line.engine.name
    if not made.has_rules:
        return
    scheduler = {"cache.semantics": name, "replica.scheduler": name}
    why = made.attempt(scheduler, DEFAULT)
    if why:
        made.note("assumed", f"kvsim's scheduler stands in for {name}'s: {why}")
    for given in of_scheduler:
        if why:
            made.leave(given, f"of the engine's own scheduler: {why}")
            continue
        text = _setting(made, given, degrees)
        if given.flag.key.endswith("conservativeness") and degrees.attention > 1:
            text = f"{0.3 * float(text):g}"
        if text and (refused := made.attempt({given.flag.key: text}, given.flag.name)):
            made.leave(given, refused)


def _name_the_rest(made: Making) -> None:
    """Say of each flag and variable that is left why it has no setting."""
    for name in list(made.given):
        given = made.take(name)
        assert given is not None
        _name(made, given)
    for name, text in made.variables.items():
        _name(made, Given(made.line.engine.variable(name), text))


def _name(made: Making, given: Given) -> None:
    flag = given.flag
    value = ("true" if given.on else "false") if flag.alone else given.text
    if flag.no_effect and (not flag.not_simulated or value in flag.usual):
        made.note("no effect", str(given), flag.no_effect)
    elif value in flag.usual or (flag.alone and not given.on and not flag.no_effect):
        made.note("no effect", str(given), "it is the default")
    else:
        made.leave(
            given, flag.not_simulated or f"nearest: {flag.key}", flag.decides or not flag.not_simulated
        )
