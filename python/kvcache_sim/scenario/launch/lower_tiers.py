"""Lower tiers that a line describes by other means than a size: LMCache's variables, SGLang's ratio."""

from __future__ import annotations

import json

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.launch.making import Making
from kvcache_sim.scenario.served_model import copies_of

CONNECTOR = "--kv-transfer-config"
HIERARCHICAL, RATIO = "--enable-hierarchical-cache", "--hicache-ratio"
#: LMCache's variables and their defaults (LMCache 0.5.6, ``v1/config.py``): GiB of one worker's backend.
_CHUNK, _CPU, _DISK = "LMCACHE_CHUNK_SIZE", "LMCACHE_MAX_LOCAL_CPU_SIZE", "LMCACHE_MAX_LOCAL_DISK_SIZE"
_DEFAULTS = {_CHUNK: "256", _CPU: "5", _DISK: "0"}
#: Host tokens per token of the GPU (SGLang 0.5, ``server_args.py``).
_DEFAULT_RATIO = "2.0"


def write_lower_tiers(made: Making, gpus: int) -> None:
    """Write the tiers of an ``LMCacheConnectorV1`` and of SGLang's ratio; what cannot be written is left.

    ``gpus`` are those of a machine. The other settings must be written already: a ratio is of the GPU's
    capacity.
    """
    if _connector(made.left.get(CONNECTOR, "")) == "LMCacheConnectorV1":
        _write_lmcache(made, gpus)
    if HIERARCHICAL in made.left:
        _write_ratio(made)


def _connector(text: str) -> object:
    try:
        described = json.loads(text)
    except ValueError:
        return None
    return described.get("kv_connector") if isinstance(described, dict) else None


def _write_lmcache(made: Making, gpus: int) -> None:
    """Write LMCache's backends: each GPU's worker has one of the size in the environment.

    MLA's latent, which every GPU has, is stored by the first rank alone.
    """
    model = made.check().model
    gpus = 1 if copies_of(model, model.replica, lower="lmcache").once else gpus
    given = dict(variable.split("=", 1) for variable in made.line.environment)
    numbers = {name: _number(given.get(name, usual), name) for name, usual in _DEFAULTS.items()}
    settings = {
        "tiers.cpu.semantics": "lmcache",
        "tiers.cpu.capacity": f"{numbers[_CPU] * gpus:g}GiB",
        "tiers.cpu.chunk_tokens": f"{numbers[_CHUNK]:g}",
    }
    if numbers[_DISK]:
        settings["tiers.disk.capacity"] = f"{numbers[_DISK] * gpus:g}GiB"
    if made.attempt(settings, CONNECTOR):
        made.left.pop(CONNECTOR, None)
        made.used.update(_DEFAULTS)
        defaults = [
            f"{name}={usual}" for name, usual in _DEFAULTS.items() if name not in given and usual != "0"
        ]
        made.assumed += [f"LMCache's defaults {' '.join(defaults)}"] if defaults else []


def _write_ratio(made: Making) -> None:
    """Write SGLang's host memory: so many times the tokens of the GPU."""
    text = made.left.get(RATIO, _DEFAULT_RATIO)
    blocks = made.check().settings.machines[0].tiers[0].capacity_blocks
    if blocks is None:
        return
    host_blocks = int(_number(text, RATIO) * blocks)
    if made.attempt({"tiers.cpu.capacity": f"{host_blocks} blocks"}, HIERARCHICAL):
        made.left.pop(HIERARCHICAL, None)
        made.left.pop(RATIO, None)
        made.assumed.append(f"the CPU tier holds {text} times the blocks of the GPU ({RATIO})")


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e6:
        raise UsageError("no size", where=where, got=repr(text)[:60], expected="0 to 1000000")
    return number
