"""A resolved scenario as a launch line of an engine: the tables of flags, read the other way."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import parse_size_bytes
from kvcache_sim.base.values import Value
from kvcache_sim.metrics.names import flatten
from kvcache_sim.model.catalog import entry_names
from kvcache_sim.model.model_file import load_model, maker_id, model_names
from kvcache_sim.model.releases import newest_equal, parse_release
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.kv_copies import connector_rules, kv_copies
from kvcache_sim.scenario.launch import one_kind
from kvcache_sim.scenario.launch.drafts import flags_of_drafts
from kvcache_sim.scenario.launch.flags import Engine, Flag, launch_engine
from kvcache_sim.scenario.launch.weights import flags_of_weights
from kvcache_sim.scenario.load import scenario_from_text

#: Sections that describe the engine; the others describe requests, hardware and prices.
_THE_ENGINE = (
    "cache.",
    "tiers.",
    "replica.",
    "write.",
    "fetch.",
    "prefetch.",
    "router.",
    "pools.",
    "handover.",
)
#: Keys of these sections that a line expresses otherwise, or that follow from them.
_SAID = (
    "replica.step_time",
    "replica.scheduler",
    "replica.dp",
    "replica.speculation.",
    "cache.semantics",
    "cache.kv_bytes_per_token",
    "tiers.gpu.capacity",
)
#: The degree of experts that all ranks share, in the name of a step-time source.
_SPREAD_EXPERTS = re.compile(r"[:,-]ep(\d+)")
_CAPACITY, _GIB, _GB = "tiers.cpu.capacity", 2**30, 10**9


class Launch(Value):
    """A launch line, and the non-default settings that it has no flag for."""

    line: str
    without_flag: tuple[str, ...]


class _Line:
    """A line that is being written: variables before it, its words, and the settings that they express."""

    def __init__(self, engine: Engine, settings: Mapping[str, Any]) -> None:
        self.engine, self.settings = engine, settings
        self.subject = measured_on(str(settings["replica.step_time"]))
        self.variables: list[str] = []
        self.words: list[str] = []
        self.said: set[str] = set()

    def say(self, key: str, *words: str) -> None:
        """Add words that express a setting."""
        self.words.extend(words)
        self.said.add(key)

    def get(self, key: str, usual: Any = None) -> Any:
        """Return a setting; ``usual`` if it is not set."""
        found = self.settings.get(key)
        return usual if found is None else found

    def flag(self, rule: str) -> str:
        """Return the name of a rule's flag."""
        return next(flag.name for flag in self.engine.flags.values() if flag.rule == rule)

    @property
    def gpus(self) -> int:
        """GPUs of a machine."""
        return self.subject.tensor_parallel * int(self.get("replica.pp", 1))

    def text(self) -> str:
        """Return the line."""
        return " ".join([*self.variables, shlex.join(self.words)])


def launch_of_scenario(resolved: Mapping[str, Any], engine_name: str) -> Launch:
    """Return the launch line of an engine that a scenario describes.

    Raises UsageError for an unknown engine.
    """
    if engine_name not in ("vllm", "sglang"):
        raise UsageError("unknown engine", "--engine", repr(engine_name)[:60], "vllm | sglang")
    engine, settings = launch_engine(engine_name), flatten(resolved)
    line = _Line(engine, settings)
    model = str(settings["model"])
    hub = maker_id(model) if model in model_names() else ""
    line.words = [
        *engine.starts[0],
        *filter(None, engine.models[:1] if engine_name != "vllm" else ()),
        hub or model,
    ]
    _say_degrees(line)
    for flag in sorted(engine.flags.values(), key=lambda flag: flag.prevails):
        if flag.is_in(parse_release(str(line.get("replica.release", newest_equal(engine_name)))).version):
            _say_flag(line, flag)
    for variable in engine.variables.values():
        if variable.on and str(line.get(variable.key, "")).lower() == variable.on:
            line.variables.append(f"{variable.name}=1")
            line.said.add(variable.key)
    if settings.get(_CAPACITY) is not None:
        _say_tier(line)
    if one_kind.is_one_kind(settings, model):
        line.say(one_kind.KEY, line.flag("one-kind"))
    drafts = resolved.get("replica", {}).get("speculation")
    line.words += flags_of_drafts(engine_name, drafts) if drafts else []
    weights = flags_of_weights(line.subject.weight_dtype, model)
    line.words += weights or []
    table = newest_equal(engine_name).table
    hosts = [row.taken for row in table.setting("host").rows] if table.has("host") else []
    line.said |= {"replica.host"} if line.get("replica.host") in hosts else set()
    share = connector_rules(line.get("tiers.cpu.semantics")).get("copy_gpu_share", 0.0)
    line.said |= {"replica.copy_gpu_share"} if line.get("replica.copy_gpu_share") == share else set()
    without = _without_flag(settings, line.said)
    own_rules = settings.get(_CAPACITY) is not None and line.get("tiers.cpu.semantics") is None
    without += ["tiers.cpu.semantics"] if own_rules else []
    without += [] if weights is not None else [f"weights in {line.subject.weight_dtype} (replica.step_time)"]
    return Launch(line.text(), tuple(without))


def _say_degrees(line: _Line) -> None:
    """Say the degrees of parallelism, and the engine's own balancer."""
    tensor, ranks, machines = (
        line.subject.tensor_parallel,
        line.get("replica.dp", 1),
        line.get("cluster.machines", 1),
    )
    is_sglang = line.engine.name == "sglang"
    if is_sglang and ranks > 1:
        line.words += [line.flag("attention")]
        tensor *= ranks
    if tensor > 1:
        line.words += [line.flag("tp"), str(tensor)]
    if (count := machines if ranks == 1 else ranks) > 1:
        line.words += [line.flag("dp"), str(count)]
    spread = _SPREAD_EXPERTS.search(str(line.settings["replica.step_time"]))
    if spread and int(spread[1]) > 1:
        line.words += [line.flag("ep"), spread[1]] if is_sglang else [line.flag("ep")]
    for rule in ("pp", "cp"):
        if (count := line.get(f"replica.{rule}", 1)) > 1:
            line.say(f"replica.{rule}", line.flag(rule), str(count))
    policy = line.get("router.policy")
    if ranks > 1 or policy == ("round-robin" if is_sglang else "vllm-dp"):
        line.said.add("router.policy")
    elif is_sglang and machines > 1:
        flag = next(flag for flag in line.engine.flags.values() if flag.rule == "balance")
        for word, meaning in list(flag.words.items())[::-1]:
            if meaning == policy and policy not in line.said:
                line.say("router.policy", flag.name, word)
                break


#: Settings that a line leaves out: the engines' own defaults.
_USUAL = {
    "seed": 0,
    "cache.retention_interval": 0,
    "cache.enabled": True,
    "replica.long_prefill_token_threshold": 0,
    "replica.long_prefill_token_threshold_adaptive": False,
    "replica.prefill_schedule_interval": 1,
    "replica.watermark": 0.0,
    "replica.reserve_full_isl": True,
    "replica.schedule_policy": "fcfs",
    "replica.schedule_conservativeness": 1.0,
    "replica.enable_mixed_chunk": False,
    "replica.queue_order": "fcfs",
    "replica.priority_preemption": 10,
    "replica.sampling": "model",
    "cache.policy": "lru",
}


def _say_flag(line: _Line, flag: Flag) -> None:
    """Say a setting by its row; one that another flag says already, or the engine's default, is left out."""
    value, is_engines = line.settings.get(flag.key), line.get("replica.scheduler") == line.engine.name
    if (
        not flag.key
        or flag.rule
        or flag.key in line.said
        or value is None
        or (flag.own_scheduler and not is_engines)
    ):
        return
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if value == _USUAL.get(flag.key):
        line.said.add(flag.key)
    elif flag.alone and flag.key == "replica.async_scheduling" and text == "none" and not is_engines:
        line.said.add(flag.key)  # kvsim's scheduler alone has none by default
    elif flag.takes == "switch" and text == flag.off:
        line.said.add(flag.key)  # what the engine does without the switch
    elif flag.alone:
        spelled = {flag.on: flag.name, flag.off: f"--no-{flag.name[2:]}"}.get(text)
        if spelled:
            line.say(flag.key, spelled)
    elif flag.words:
        word = next((word for word, meaning in flag.words.items() if meaning == text), "")
        if word:
            line.say(flag.key, flag.name, word)
    elif flag.unit:
        _say_size(line, flag, text)
    elif flag.key == "cache.block_size":
        line.say(flag.key, flag.name, str(int(text) // line.get("replica.cp", 1)))
    else:
        shares = line.get("replica.dp", 1) if flag.per_dp else 1
        line.say(flag.key, flag.name, str(int(text) * shares) if shares > 1 else text)


def _say_size(line: _Line, flag: Flag, written: str) -> None:
    """Say a capacity in a flag's unit; nothing if it is in another unit."""
    in_blocks = written.endswith(" blocks")
    if flag.unit == "tokens" and in_blocks:
        page = int(line.get("cache.block_size", 1))
        line.say(flag.key, flag.name, str(int(written.removesuffix(" blocks")) * page))
    elif flag.unit == "blocks" and in_blocks:
        line.say(flag.key, flag.name, written.removesuffix(" blocks"))
    elif flag.unit in ("B", "GB") and written[0].isdigit() and not in_blocks:
        per = line.gpus if flag.per_rank else 1
        line.say(
            flag.key, flag.name, f"{parse_size_bytes(written) / parse_size_bytes(f'1{flag.unit}') / per:.12g}"
        )


def _say_tier(line: _Line) -> None:
    """Say the tier below the GPU, if the engine has one with these rules."""
    rules, written = line.get("tiers.cpu.semantics"), str(line.settings[_CAPACITY])
    size = None if written.endswith(" blocks") else parse_size_bytes(written)
    if rules in ("vllm-offload", None) and line.engine.name == "vllm":
        _say_offloading(line, size, written)
    elif rules == "vllm-simple-kv-offload":
        _say_simple(line, size, written)
    elif rules == "lmcache" and line.engine.name == "vllm" and size is not None:
        _say_lmcache(line, size)
    elif rules in ("hicache", None) and line.engine.name == "sglang":
        _say_hicache(line, size, written)
    else:
        return
    if rules is not None:
        line.said.add("tiers.cpu.semantics")
    line.said.add(_CAPACITY)


def _say_offloading(line: _Line, size: int | None, written: str) -> None:
    chunk, policy = line.get("tiers.cpu.chunk_tokens"), line.get("tiers.cpu.policy")
    if size is not None and chunk is None and policy is None:
        line.words += ["--kv-offloading-size", f"{size / _GIB:.17g}", "--kv-offloading-backend", "native"]
        return
    block = int(line.settings["cache.block_size"])
    extra: dict[str, Any] = {} if size is None else {"cpu_bytes_to_use": size}
    if size is None:
        extra["num_cpu_blocks"] = int(written.removesuffix(" blocks")) * block // int(chunk or block)
    extra |= {"block_size": chunk} if chunk else {}
    extra |= {"eviction_policy": policy} if policy else {}
    _say_connector(line, "OffloadingConnector", extra)


def _say_simple(line: _Line, size: int | None, written: str) -> None:
    """Say vLLM's second offloader; one of its blocks is no block of a request."""
    extra = (
        {"cpu_bytes_to_use": size} if size else {"num_cpu_blocks": int(written.removesuffix(" blocks")) + 1}
    )
    if line.get("tiers.cpu.lazy_offload"):
        extra["lazy_offload"] = True
    line.said.add("tiers.cpu.lazy_offload")
    _say_connector(line, "SimpleCPUOffloadConnector", extra)


def _say_connector(line: _Line, name: str, extra: Mapping[str, Any]) -> None:
    config = {"kv_connector": name, "kv_role": "kv_both"}
    more = {"kv_connector_extra_config": extra} if extra else {}
    line.words += ["--kv-transfer-config", json.dumps(config | more)]
    line.said |= {"tiers.cpu.chunk_tokens", "tiers.cpu.policy"}


def _say_lmcache(line: _Line, size: int) -> None:
    """Say LMCache's variables: GiB of each rank, of a latent of the first alone."""
    ranks, release = line.subject.tensor_parallel, str(line.get("replica.release", ""))
    model, cp = load_model(str(line.settings["model"])), line.get("replica.cp", 1)
    per = 1 if kv_copies(model, ranks, cp, "lmcache", release).once else line.gpus
    sizes = {"LMCACHE_MAX_LOCAL_CPU_SIZE": size}
    if (disk := line.get("tiers.disk.capacity")) is not None and not str(disk).endswith("blocks"):
        sizes["LMCACHE_MAX_LOCAL_DISK_SIZE"] = parse_size_bytes(str(disk))
        line.said.add("tiers.disk.capacity")
    chunk = line.get("tiers.cpu.chunk_tokens", line.settings["cache.block_size"])
    line.variables += [
        f"LMCACHE_CHUNK_SIZE={chunk}",
        *(f"{name}={each / _GIB / per:.12g}" for name, each in sizes.items()),
    ]
    if (policy := line.get("tiers.cpu.policy")) is not None:
        line.variables.append(f"LMCACHE_CACHE_POLICY={str(policy).upper()}")
    _say_connector(line, "LMCacheConnectorV1", {})


def _say_hicache(line: _Line, size: int | None, written: str) -> None:
    flags = line.engine.flags
    line.words.append("--enable-hierarchical-cache")
    if size is not None:
        line.words += ["--hicache-size", f"{size / _GB / line.gpus:.12g}"]
    elif (gpu := str(line.get("tiers.gpu.capacity", ""))).endswith(" blocks"):
        ratio = int(written.removesuffix(" blocks")) / int(gpu.removesuffix(" blocks"))
        line.words += ["--hicache-ratio", f"{ratio:.12g}"]
    keys = ["--hicache-write-policy"]
    if line.get("tiers.disk.capacity") is not None and line.get("tiers.cpu.semantics") == "hicache":
        line.say("tiers.disk.capacity", "--hicache-storage-backend", "file")
        line.said.add("prefetch.policy")
        keys.append("--hicache-storage-prefetch-policy")
    for name in keys:
        key = flags[name].key
        word = next((word for word, meaning in flags[name].words.items() if meaning == line.get(key)), "")
        if word:
            line.say(key, name, word)


def _without_flag(settings: Mapping[str, Any], used: set[str]) -> list[str]:
    """Return the engine's non-default settings that no flag expresses; those of other engines have none."""
    sglang = str(settings.get("replica.release") or "").startswith("sglang")
    others = ("replica.gpu_memory_utilization", "replica.sampler") if sglang else ("replica.mem_fraction",)
    usual = flatten(scenario_from_text("", "", Path.cwd()).resolved)
    usual["replica.release"] = None
    newest = [str(newest_equal(name)) for name in entry_names("releases")]
    return [
        key
        for key, value in settings.items()
        if key not in used
        and key.startswith(_THE_ENGINE)
        and not key.startswith((*_SAID, *others))
        and value not in (None, [], {}, usual.get(key), *(newest if key == "replica.release" else ()))
    ]
