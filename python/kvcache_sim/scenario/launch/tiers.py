"""Tiers below the GPU that a launch line describes, by the engine's own rules where a run can have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import parse_size_bytes
from kvcache_sim.base.values import Value
from kvcache_sim.model.releases import Subject, parse_version
from kvcache_sim.scenario.launch.flags import Flag, connector_keys, connectors, variables
from kvcache_sim.scenario.launch.making import DEFAULT, Given, Making
from kvcache_sim.scenario.launch.parallel import Degrees
from kvcache_sim.scenario.quantities import render_size
from kvcache_sim.scenario.served_model import copies_of

_TRANSFER, _SIZE, _BACKEND = "--kv-transfer-config", "--kv-offloading-size", "--kv-offloading-backend"
_SWITCH, _RATIO, _STORAGE = "--enable-hierarchical-cache", "--hicache-ratio", "--hicache-storage-backend"
_SIMPLE = "VLLM_USE_SIMPLE_KV_OFFLOAD"
_CAPACITY, _SEMANTICS, _CHUNK = "tiers.cpu.capacity", "tiers.cpu.semantics", "tiers.cpu.chunk_tokens"
_KVBM = {"DYN_KVBM_CPU_CACHE_GB": _CAPACITY, "DYN_KVBM_DISK_CACHE_GB": "tiers.disk.capacity"}
_SIMPLE_RULES, _LAZY = "vllm-simple-kv-offload", "tiers.cpu.lazy_offload"
_GIB = 2**30


class Lower(Value):
    """A tier below the GPU: its rules, the flag that describes it, and that flag's further keys."""

    rules: str
    given: Given
    connector: str = ""
    extra: dict[str, Any] = {}


def lower_of(made: Making) -> Lower | None:
    """Return the tier below the GPU that a line describes, and count its flags as read."""
    if made.line.engine.name == "sglang":
        switch = made.take(_SWITCH)
        return Lower("hicache", switch) if switch is not None and switch.on else None
    found = [*_by_size(made), *_by_connector(made)]
    for other in found[1:]:
        made.leave(other.given, f"one tier lies below the GPU, that of {found[0].given}")
    return found[0] if found else None


def _by_size(made: Making) -> Iterator[Lower]:
    """Yield the tier of ``--kv-offloading-size``, GiB of all ranks, by the backend and the release."""
    size, backend = made.take(_SIZE), made.take(_BACKEND)
    if size is None:
        if backend is not None:
            made.note("no effect", str(backend), f"there is no {_SIZE}")
        return
    gib, version = _number(size.text, _SIZE), made.release.version
    is_simple = made.variables.get(_SIMPLE, "0") not in ("0", "")
    kind = "native" if backend is None else backend.text
    size = size if backend is None else Given(size.flag, f"{size.text} {backend}")
    if kind == "lmcache" and version >= parse_version("0.23.0"):
        made.leave(size, connectors()["LMCacheMPConnector"].because)
    elif kind == "lmcache":
        yield Lower("lmcache", size, extra={"all_ranks_gib": gib})
    else:
        if version < parse_version("0.14.0"):
            made.note("assumed", f"{size} starts a connector: {made.release} itself does not start with it")
        rules = _SIMPLE_RULES if is_simple else "vllm-offload"
        yield Lower(rules, size, extra={"cpu_bytes_to_use": round(gib * _GIB)})


def _by_connector(made: Making) -> Iterator[Lower]:
    """Yield the tiers of a line's connectors, nested ones too; say what the others do."""
    given = made.take(_TRANSFER)
    if made.variables.get("ENABLE_LMCACHE") == "1":
        made.variables.pop("ENABLE_LMCACHE")
        yield Lower("lmcache", given or Given(Flag("ENABLE_LMCACHE"), "1"), "LMCacheConnectorV1")
    for config in _nested(_object(given.text, _TRANSFER)) if given is not None else ():
        assert given is not None
        name, role = str(config.get("kv_connector")), str(config.get("kv_role", "kv_both"))
        shown = Given(given.flag, f"{name} {'' if role == 'kv_both' else role}".strip())
        known = connectors().get(name)
        if known is not None and known.hands_over and made.has("pools"):
            made.note("assumed", f"{shown} hands KV over as the pools do: handover.path, channels")
        elif known is not None and known.tier:
            yield Lower(known.tier, shown, name, dict(config.get("kv_connector_extra_config") or {}))
        else:
            made.leave(
                shown, known.because if known else "a connector that no release has; nearest: tiers.cpu"
            )


def _nested(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    known = connectors().get(str(config.get("kv_connector")))
    if known is None or known.tier != "nested":
        yield config
        return
    for inner in (config.get("kv_connector_extra_config") or {}).get("connectors", ()):
        if isinstance(inner, dict):
            yield from _nested(inner)


def write_lower(made: Making, lower: Lower | None, degrees: Degrees) -> None:
    """Write a tier with the engine's rules, else with kvsim's; say which rules stand in, or that none can.

    The other settings must be written already: a ratio is of the GPU's capacity.
    """
    if lower is None:
        _without(made)
        return
    off = made.tree.values.get("cache", {}).get("enabled") is False
    if off and lower.rules == "hicache":
        made.leave(lower.given, "the engine refuses it without its radix cache")
        return
    if off:
        made.attempt({"cache.enabled": ""}, DEFAULT)
        made.note("assumed", "the engine's own cache is off and the store's is on: a run has both")
    settings = _settings(made, lower, degrees)
    flag = lower.given.flag.name
    if _CAPACITY not in settings:
        return
    rules = (
        {} if lower.rules == "kvbm" else {_SEMANTICS: lower.rules, "cache.semantics": made.line.engine.name}
    )
    if lower.rules == _SIMPLE_RULES:
        rules = _simple_rules(made, settings, rules, flag)
    why = made.attempt(settings | rules, flag) if rules else "its rules are not simulated"
    if why:
        size = {key: text for key, text in settings.items() if key.endswith("capacity")}
        plain = {"cache.semantics": "", "write.policy": settings.get("write.policy", "through"), **size}
        by_kind = plain | {"cache.layer_groups": "by-kind"}
        if made.attempt(by_kind, flag) and made.attempt(plain, flag):
            made.leave(lower.given, why)
            return
        made.note("assumed", f"kvsim's own tiers stand in for {lower.connector or lower.rules}: {why}")
    made.note("assumed", f"{lower.given} is tiers.cpu.capacity {settings[_CAPACITY]}{_link(made)}")
    if not why:
        _write_storage(made)
    _without(made)


def _simple_rules(made: Making, settings: dict[str, str], rules: dict[str, str], flag: str) -> dict[str, str]:
    """Return the rules of vLLM's second offloader, which has no other scheduler; else those of its first."""
    of_simple = rules | {"replica.scheduler": made.line.engine.name}
    if not (why := made.attempt(settings | of_simple, flag)):
        return of_simple
    settings.pop(_LAZY, None)
    made.note("assumed", f"the rules of OffloadingConnector stand in for SimpleCPUOffloadConnector: {why}")
    return rules | {_SEMANTICS: "vllm-offload"}


def _link(made: Making) -> str:
    channels = made.check().resolved["channels"]
    rates = [f"{name} {channel['bandwidth']}" for name, channel in channels.items() if "cpu" in name]
    return f", over links of the usual rate: {', '.join(rates)} (channels)" if rates else ""


def _settings(made: Making, lower: Lower, degrees: Degrees) -> dict[str, str]:
    """Return the sizes and further settings of a tier; without a capacity the line does not give one."""
    if lower.rules == "hicache":
        return _of_hicache(made, degrees)
    if lower.rules.startswith("vllm-"):
        return _of_offloading(made, lower, degrees)
    if lower.rules == "lmcache":
        return _of_lmcache(made, lower, degrees)
    sizes = {key: made.variables.pop(name, "") for name, key in _KVBM.items()}
    if not sizes[_CAPACITY]:
        made.leave(
            lower.given, "Dynamo's block manager has its sizes in DYN_KVBM_CPU_CACHE_GB and …_DISK_CACHE_GB"
        )
        return {}
    return {key: _size(f"{_number(text, lower.given.flag.name):g}GB") for key, text in sizes.items() if text}


def _of_offloading(made: Making, lower: Lower, degrees: Degrees) -> dict[str, str]:
    """Return the settings of vLLM's offloading connectors (``v1/kv_offload``): a size is of all ranks."""
    extra, block = dict(lower.extra), int(made.tree.values["cache"]["block_size"])
    made.variables.pop(_SIMPLE, None)
    is_simple, blocks = lower.rules == _SIMPLE_RULES, extra.pop("num_cpu_blocks", None)
    if is_simple and blocks is None:
        extra.setdefault("cpu_bytes_to_use", 8 * _GIB)
    size, each = extra.pop("cpu_bytes_to_use", None), extra.pop("cpu_bytes_to_use_per_rank", None)
    chunk = extra.pop("block_size", None) or block * int(extra.pop("blocks_per_chunk", None) or 1)
    settings = {_CHUNK: str(chunk)} if int(chunk) != block else {}
    if is_simple and extra.pop("lazy_offload", False):
        settings[_LAZY] = "true"
    if (policy := extra.pop("eviction_policy", "lru")) != "lru":
        settings["tiers.cpu.policy"] = str(policy)
    if each is not None or size is not None:
        count = int(_number(str(each if each is not None else size), lower.given.flag.name))
        settings[_CAPACITY] = render_size(count * (degrees.gpus if each is not None else 1))
    elif blocks is not None:
        # one of them is no block of a request
        count = int(_number(str(blocks), lower.given.flag.name)) - is_simple
        settings[_CAPACITY] = f"{count * int(chunk) // block} blocks"
    else:
        made.leave(lower.given, "its size is not in the line: cpu_bytes_to_use; nearest: tiers.cpu.capacity")
    for key, value in extra.items():
        known = connector_keys().get(key)
        if known is None or str(value) not in known.usual:
            made.note(
                "decides", f"{lower.connector} {key} {json.dumps(value)}", "nearest: tiers.cpu, tiers.disk"
            )
    return settings


def _of_lmcache(made: Making, lower: Lower, degrees: Degrees) -> dict[str, str]:
    """Return the settings of LMCache in the engine's processes: GiB of each, or of a latent's first."""
    given = {name[8:].lower(): text for name, text in made.variables.items() if name.startswith("LMCACHE_")}
    for name in given:
        made.variables.pop(f"LMCACHE_{name.upper()}")
    extra = {
        key.removeprefix("lmcache."): str(value)
        for key, value in lower.extra.items()
        if key != "all_ranks_gib"
    }
    given |= extra
    given.pop("config_file", None)
    settings, assumed = {}, []
    model = made.check().model
    once = copies_of(model, model.replica, lower="lmcache").once
    for name, known in variables("lmcache").items():
        text = given.pop(name, None)
        if known.key and known.usual and text is None:
            text = known.usual[0]
            assumed += [f"{name} {text}"] if text != "0" and "all_ranks_gib" not in lower.extra else []
        if text is None or not known.key:
            _say(made, known, name, text)
        elif known.words:
            settings[known.key] = known.words.get(text, text.lower())
        elif known.per_rank:
            ranks = 1 if once else degrees.gpus
            settings[known.key] = f"{_number(text, f'LMCACHE_{name.upper()}') * ranks:g}GiB"
        elif name == "chunk_size":
            settings[_CHUNK] = f"{_number(text, 'LMCACHE_CHUNK_SIZE'):g}"
        elif name == "local_cpu" and text.lower() in ("false", "0"):
            made.note(
                "decides",
                f"LMCACHE_LOCAL_CPU={text}",
                "host memory stages other stores only; nearest: tiers.cpu.capacity",
            )
    for name, text in given.items():
        _say(
            made,
            next(flag for key, flag in variables("lmcache").items() if fnmatchcase(name, key)),
            name,
            text,
        )
    if "all_ranks_gib" in lower.extra:
        settings[_CAPACITY] = f"{lower.extra['all_ranks_gib']:g}GiB"
    if settings.get("tiers.disk.capacity") == "0GiB":
        del settings["tiers.disk.capacity"]
    if assumed:
        made.note("assumed", f"LMCache's defaults: {', '.join(assumed)}")
    return {key: _size(text) if key.endswith("capacity") else text for key, text in settings.items()}


def _say(made: Making, known: Flag, name: str, text: str | None) -> None:
    """Say what a key of LMCache is that has no setting."""
    if text is None:
        return
    given = Given(replace(known, name=f"LMCACHE_{name.upper()}"), text)
    if text in known.usual or known.no_effect:
        made.note("no effect", str(given), known.no_effect or "it is the default")
    else:
        made.leave(given, known.not_simulated, known.decides)


def _of_hicache(made: Making, degrees: Degrees) -> dict[str, str]:
    """Return the settings of HiCache: GB (10^9) of each rank, or so many times the tokens of the GPU."""
    size, ratio, policy = (made.take(name) for name in ("--hicache-size", _RATIO, "--hicache-write-policy"))
    settings = {"write.policy": _value(made, policy, "hicache_write_policy")}
    each = _number(size.text, "--hicache-size") if size is not None else 0.0
    if each:
        if ratio is not None:
            made.note("no effect", str(ratio), "--hicache-size prevails")
        return settings | {_CAPACITY: _size(f"{each * degrees.gpus:.12g}GB")}
    if size is not None:
        made.note("no effect", str(size), f"0: {_RATIO} holds")
    times = ratio.text if ratio is not None else "2.0"
    blocks = made.settle().settings.machines[0].tiers[0].capacity_blocks
    if blocks is None:
        raise UsageError("a ratio needs the capacity of the GPU", _RATIO, times)
    made.note("assumed", f"the CPU tier holds {times} times the blocks of the GPU ({_RATIO})")
    return settings | {_CAPACITY: f"{int(_number(times, _RATIO) * blocks)} blocks"}


def _write_storage(made: Making) -> None:
    """Write the files below HiCache's host memory; other stores are those of several machines."""
    storage = made.take(_STORAGE)
    if storage is None:
        return
    stop = made.take("--hicache-storage-prefetch-policy")
    settings = {
        "tiers.disk.capacity": "unbounded",
        "prefetch.policy": "queued",
        "fetch.policy": _value(made, stop, "hicache_storage_prefetch_policy"),
    }
    more = made.take("--hicache-storage-backend-extra-config")
    described = _object(more.text, more.flag.name) if more is not None and more.text.startswith("{") else {}
    if (least := described.pop("prefetch_threshold", None)) is not None:
        settings["prefetch.threshold"] = str(least)
    if more is not None and (described or least is None):
        made.leave(more, "how the storage is reached; nearest: channels", decides=False)
    if storage.text != "file":
        made.leave(
            storage, "a store of several machines; nearest: cluster.pool, or tiers.disk with its capacity"
        )
        if stop is not None:
            made.leave(stop, "there is no tiers.disk", decides=False)
    elif why := made.attempt(settings, _STORAGE):
        made.leave(storage, why)
    else:
        made.note("assumed", f"{storage}: files without a bound, on the usual disk (channels)")


def _without(made: Making) -> None:
    """Say that flags of a tier have no effect without it."""
    for name in [name for name in made.given if name.startswith("--hicache-")]:
        given = made.take(name)
        if given is not None and given.flag.rule == "tiers":
            made.note(
                "no effect",
                str(given),
                f"there is no {_SWITCH}" if _SWITCH not in made.read else f"there is no {_STORAGE}",
            )
        elif given is not None:
            made.leave(given, given.flag.not_simulated, given.flag.decides)


def _value(made: Making, given: Given | None, setting: str) -> str:
    """Return kvsim's word for a flag's, or for the default of its release."""
    flag = next(
        flag for flag in made.line.engine.flags.values() if flag.name == f"--{setting.replace('_', '-')}"
    )
    row = made.release.table.setting(setting).row(made.release.version, Subject())
    text = given.text if given is not None else str(row.given) if row is not None else "best_effort"
    if text not in flag.words:
        raise UsageError(
            "unknown value", where=flag.name, got=repr(text)[:60], expected=" | ".join(flag.words)
        )
    return flag.words[text]


def _size(text: str) -> str:
    return render_size(parse_size_bytes(text))


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        described = json.loads(text)
    except ValueError as error:
        raise UsageError("not JSON", where, str(error)) from None
    if not isinstance(described, dict):
        raise UsageError("not a JSON object", where, repr(text)[:60])
    return described


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e18:
        raise UsageError("no size", where=where, got=repr(text)[:60], expected="a number")
    return number
