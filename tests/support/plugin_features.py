"""Plug-ins of each kind: a scenario has those of ``own_plugins.py`` in a file of its own, named by settings."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from support import own_plugins
from support.draft import Draft
from support.run_features import scaling as built_in_scaling

OWN = "own.py"


def _named(d: Draft, name: str, hows: Sequence[str], **more: Any) -> str:
    """Give the scenario the plug-ins' file; return the value that names one, by one of its rules."""
    d.files[OWN] = Path(own_plugins.__file__).read_text()
    arguments = {"how": d.draw.choice(hows), "seed": d.draw.randrange(100), **more}
    return f"{OWN}:{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def admission(d: Draft) -> None:
    """Use a plug-in as the admission policy."""
    d.tree()
    d.set(cache__admission=_named(d, "Admission", [*own_plugins.CUTS, "prompt"]))


def queue(d: Draft) -> None:
    """Use a plug-in as the queue order."""
    d.own_scheduler()
    d.clear("replica.instant")
    d.set(replica__queue_order=_named(d, "Queue", [*own_plugins.KEYS, "random"]))


def fetch(d: Draft) -> None:
    """Use a plug-in as the fetch policy."""
    d.lower_tiers(d.has("tiers.disk"))
    d.set(fetch__policy=_named(d, "Fetch", [*own_plugins.FETCHES, *own_plugins.PLANS]))


def prefetch(d: Draft) -> None:
    """Use a plug-in as the prefetch policy."""
    d.lower_tiers(True)
    occasions: Iterable[str] = d.draw.choice([("queued",), ("session",), ("queued", "session")])
    d.set(prefetch__policy=_named(d, "Prefetch", own_plugins.CUTS, occasions=occasions))


def write(d: Draft) -> None:
    """Use a plug-in as the write policy, on all edges or on one."""
    d.lower_tiers(d.draw.random() < 0.6)
    d.clear("write")
    flags = tuple(d.draw.random() < 0.5 for _ in range(3))
    own, other = (
        _named(d, "Write", own_plugins.WRITES, flags=flags),
        d.draw.choice(["back", "through", "selective"]),
    )
    both: list[Any] = [{"gpu": own, "cpu": other}, {"gpu": other, "cpu": own}]
    d.set(write__policy=d.draw.choice([own, own, *both]) if d.has("tiers.disk") else own)


def channel(d: Draft) -> None:
    """Choose among the channels of one edge by a plug-in."""
    d.lower_tiers(d.draw.random() < 0.4)
    d.clear("channels", "fleet")
    edges = ["cpu->gpu", "gpu->cpu", *(["disk->cpu"] if d.has("tiers.disk") else [])]
    edge = d.draw.choice(edges)
    for own in d.draw.choice([("left", "right"), ("a", "b", "c")]):
        d.settings[f"channels.{own}"] = {"bandwidth": d.draw.choice(["500MB/s", "3GB/s"]), "edges": [edge]}
    d.set(channel_choice=_named(d, "Channel", own_plugins.CHANNELS))


def router(d: Draft) -> None:
    """Use a plug-in as the router, for arrivals or for hand-overs."""
    if d.machines == 1:
        d.several_machines()
    own = _named(d, "Router", own_plugins.ROUTERS)
    d.clear("router")
    if d.settings.get("pools.decode", 0) > 1 and d.draw.random() < 0.5:
        d.set(handover__router=own)
    else:
        d.clear("pools", "handover")
        d.set(router__policy=own)


def eviction(d: Draft) -> None:
    """Evict by a plug-in: a priority, or a class that names victims."""
    d.tree()
    key = d.draw.choice(["cache.policy", "tiers.gpu.policy"] + ["tiers.cpu.policy"] * d.has("tiers.cpu"))
    d.clear("cache.policy", "tiers.gpu.policy")
    d.files[OWN] = Path(own_plugins.__file__).read_text()
    d.settings[key] = f"{OWN}:{d.draw.choice(own_plugins.EVICTIONS)}"


def scaling(d: Draft) -> None:
    """Order and release machines by a plug-in."""
    built_in_scaling(d)
    d.clear("fleet.scaling.target")
    d.set(fleet__scaling__policy=_named(d, "Scaling", own_plugins.SCALINGS))
