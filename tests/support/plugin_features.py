"""Plug-ins of each kind, several variants of each: written to a file of the run and named by settings."""

from support.draft import Draft

OWN = "own.py"

ADMISSIONS = {
    "Half": "return finished.blocks // 2",
    "Prompts": "return min(finished.prompt_tokens // finished.block_size_tokens, finished.blocks)",
    "Turns": "return finished.blocks if finished.turn or not finished.in_session else finished.blocks // 3",
    "Alternate": "self.seen += 1\n        return finished.blocks if self.seen % 2 else 0",
    "Missed": "is_new = 2 * finished.cached_tokens < finished.prompt_tokens\n"
    "        return finished.blocks if is_new else 1 * (finished.blocks > 0)",
}
QUEUES = {
    "Fewest": "return (waiting.tokens - waiting.cached_tokens, waiting.request)",
    "Latest": "return (-waiting.arrival_ns,)",
    "Fair": "return (waiting.passed < 3, -waiting.turn, waiting.tokens)",
    "Plain": "return ()",
    "Long": "return (waiting.priority, -waiting.cached_tokens / max(waiting.tokens, 1), 0.5, waiting.request % 3)",
}
FETCHES = {
    "HalfOf": "return plan.ready + (plan.end - plan.ready) // 2",
    "Ready": "return plan.ready",
    "All": "return plan.end",
    "Soonest": "return min((plan.ready, plan.end), key=plan.done_ns)",
    "Near": "below = (part.start for part in plan.parts if part.tier != 0 and part.start >= plan.ready)\n"
    "        return next(below, plan.end)",
    "Layers": "is_hidden = plan.pipelining and plan.arrival_ns(plan.end)[1] < plan.compute_ns(plan.ready)\n"
    "        return plan.end if is_hidden else plan.ready",
}
PREFETCHES = {
    "Queued": ("('queued',)", "return candidate.blocks"),
    "Some": ("('queued',)", "return candidate.blocks // 2 if candidate.request % 3 else 0"),
    "Session": ("('session',)", "return candidate.blocks"),
    "Both": (
        "('queued', 'session')",
        "return candidate.blocks if candidate.occasion == 'session' else 4 * (candidate.blocks > 4)",
    ),
    "Short": ("('queued', 'session')", "return candidate.blocks if candidate.prompt_tokens < 4000 else 0"),
}
#: (writes_back, delays_step, committed, used, arrived).
WRITES = {
    "Through": (
        True,
        False,
        "store.write_through(lease, *blocks, now_ns)",
        "None",
        "store.write_on(move, now_ns)",
    ),
    "Sync": (True, True, "store.write_through(lease, *blocks, now_ns)", "None", "None"),
    "Chosen": (False, False, "None", "store.write_selected(lease, self.upper, 2, now_ns)", "None"),
    "Second": (
        True,
        False,
        "self.every(2, lambda: store.write_through(lease, *blocks, now_ns))",
        "None",
        "self.every(2, lambda: store.write_on(move, now_ns))",
    ),
    "Thrice": (
        True,
        False,
        "None",
        "store.write_selected(lease, self.upper, 3, now_ns)",
        "store.write_on(move, now_ns)",
    ),
    "Never": (False, False, "None", "None", "None"),
}
CHANNELS = {
    "First": "return next(iter(channels))",
    "Alternate": "self.seen += 1\n        return sorted(channels)[self.seen % len(channels)]",
    "Emptiest": "return min(channels, key=lambda name: (channels[name].wait_ns(sending.now_ns), name))",
    "Wide": "return max(channels, key=lambda name: channels[name].settings.bandwidth_bytes_per_s)",
    "Small": "return min(channels) if sending.size_bytes < 64 * 2**20 else max(channels)",
}
ROUTERS = {
    "ByRequest": "return sequence.request % len(self.view.replicas)",
    "Idle": "loads = self.view.requests()\n        return loads.index(min(loads))",
    "Found": "found = self.view.look(sequence).found_blocks\n        return found.index(max(found))",
    "Tokens": "loads = self.view.queued_tokens()\n        return loads.index(min(loads))",
}
SCALINGS = {
    "Waiting": "return state.machines + 1 if state.waiting > 2 * state.serving else max(state.machines - 1, 1)",
    "Busy": "return max(1, -(-(state.waiting + state.running) // 3))",
    "Arrivals": "return 1 + state.arrived // 2",
}
PRIORITIES = {
    "by_hits": "(b.hits, -b.depth, b.last_use)",
    "by_use": "b.last_use",
    "by_depth": "(-b.depth, b.last_use_ns)",
    "by_age": "(b.created, b.id % 7)",
    "by_now": "(now - b.last_use) % 3",
    "by_mix": "(b.id * 2654435761) % 1009",
}


def _write(d: Draft, text: str) -> None:
    d.files[OWN] = d.files.get(OWN, '"""Policies of this scenario."""\n') + "\n\n" + text


def _class(
    d: Draft, name: str, method: str, asked: str, body: str, made: str = "self", first: str = ""
) -> str:
    """Write a class with one method; return the value that names it."""
    construct = "".join(f"        self.{own} = {own}\n" for own in made.split(", ")[1:])
    _write(
        d,
        f"class {name}:\n{first}    def __init__({made}):\n{construct}        self.seen = 0\n\n"
        f"    def {method}(self, {asked}):\n        {body}\n",
    )
    return f"{OWN}:{name}"


def _one(d: Draft, variants: dict[str, str], kind: str) -> tuple[str, str]:
    name = d.draw.choice(list(variants))
    return f"{name}{kind}", variants[name]


def admission(d: Draft) -> None:
    """Use a plug-in as the admission policy."""
    d.tree()
    name, body = _one(d, ADMISSIONS, "Admission")
    d.set(cache__admission=_class(d, name, "kept_blocks", "finished", body))


def queue(d: Draft) -> None:
    """Use a plug-in as the queue order."""
    d.own_scheduler()
    d.clear("replica.instant")
    name, body = _one(d, QUEUES, "Queue")
    d.set(replica__queue_order=_class(d, name, "key", "waiting", body))


def fetch(d: Draft) -> None:
    """Use a plug-in as the fetch policy."""
    d.lower_tiers(d.has("tiers.disk"))
    name, body = _one(d, FETCHES, "Fetch")
    d.set(fetch__policy=_class(d, name, "reuse", "plan", body))


def prefetch(d: Draft) -> None:
    """Use a plug-in as the prefetch policy."""
    d.lower_tiers(True)
    name = d.draw.choice(list(PREFETCHES))
    occasions, body = PREFETCHES[name]
    first = f"    occasions = {occasions}\n\n"
    d.set(prefetch__policy=_class(d, f"{name}Prefetch", "blocks", "candidate", body, first=first))


def write(d: Draft) -> None:
    """Use a plug-in as the write policy, on all edges or on one."""
    d.lower_tiers(d.draw.random() < 0.6)
    name = d.draw.choice(list(WRITES))
    back, delays, committed, used, arrived = WRITES[name]
    _write(
        d,
        f"class {name}Write:\n    writes_back = {back}\n    delays_step = {delays}\n\n"
        "    def __init__(self, upper, settings):\n        self.upper = upper\n        self.seen = 0\n"
        f"        self.at_commit = upper == 0 and {committed != 'None'}\n\n"
        "    def every(self, n, send):\n        self.seen += 1\n        return None if self.seen % n else send()\n\n"
        f"    def committed(self, store, lease, blocks, now_ns):\n        return {committed}\n\n"
        f"    def used(self, store, lease, now_ns):\n        return {used}\n\n"
        f"    def arrived(self, store, move, now_ns):\n        return {arrived}\n",
    )
    d.clear("write")
    own = f"{OWN}:{name}Write"
    if d.has("tiers.disk") and d.draw.random() < 0.5:
        other = d.draw.choice(["back", "through", "selective"])
        d.set(write__policy=d.draw.choice([{"gpu": own, "cpu": other}, {"gpu": other, "cpu": own}]))
    else:
        d.set(write__policy=own)


def channel(d: Draft) -> None:
    """Choose among the channels of one edge by a plug-in."""
    d.lower_tiers(d.draw.random() < 0.4)
    d.clear("channels", "fleet")
    edges = ["cpu->gpu", "gpu->cpu", *(["disk->cpu"] if d.has("tiers.disk") else [])]
    edge = d.draw.choice(edges)
    for own in d.draw.choice([("left", "right"), ("a", "b", "c")]):
        d.settings[f"channels.{own}"] = {"bandwidth": d.draw.choice(["500MB/s", "3GB/s"]), "edges": [edge]}
    name, body = _one(d, CHANNELS, "Channel")
    d.set(channel_choice=_class(d, name, "choose", "sending, channels", body))


def router(d: Draft) -> None:
    """Use a plug-in as the router, for arrivals or for hand-overs."""
    if d.machines == 1:
        d.several_machines()
    name, body = _one(d, ROUTERS, "Router")
    own = _class(d, name, "choose", "sequence", body, "self, view")
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
    if d.draw.random() < 0.7:
        name = d.draw.choice(list(PRIORITIES))
        _write(d, f"def {name}(b, now):\n    return {PRIORITIES[name]}\n")
    else:
        name = "Oldest"
        _write(d, _OLDEST)
    d.settings[key] = f"{OWN}:{name}"


_OLDEST = """class Oldest:
    mode = "leaves"

    def __init__(self):
        self.used = {}

    def on_insert(self, b, now):
        self.used[b.id] = (now, -b.depth, b.id)

    def on_hit(self, b, now):
        self.used[b.id] = (now, -b.depth, b.id)

    def victims(self, n, now, pinned):
        free = [entry for block, entry in self.used.items() if block not in pinned]
        return [min(free)[2]] if free else None

    def on_remove(self, b, now):
        del self.used[b.id]
"""


def scaling(d: Draft) -> None:
    """Order and release machines by a plug-in."""
    from support.run_features import scaling as built_in

    built_in(d)
    d.clear("fleet.scaling.target")
    name, body = _one(d, SCALINGS, "Scaling")
    d.set(fleet__scaling__policy=_class(d, name, "wanted", "state", body, "self, settings"))
