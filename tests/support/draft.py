"""A scenario while it is drawn: its settings, its files, and the changes that a feature requires."""

import json
import random
from typing import Any

Settings = dict[str, Any]

#: Tokens of an id of a drawn trace, and a token's bytes of the default model.
ID_TOKENS, TOKEN_BYTES = 512, 131_072
TRACE = "trace.jsonl"
#: Keys of ``replica`` that only an engine's scheduler has.
_OF_ENGINES = """
    scheduler pp watermark reserve_full_isl long_prefill_token_threshold
    long_prefill_token_threshold_adaptive max_num_scheduled_tokens max_num_active_seqs
    prefill_schedule_interval max_num_queued_reqs max_num_queued_tokens max_queued_requests priority_preemption
    schedule_policy max_prefill_tokens enable_mixed_chunk schedule_conservativeness
""".split()


class Draft:
    """The settings and files of one scenario. Features change both, one after another."""

    def __init__(self, seed: int, only_spec: bool) -> None:
        self.seed = seed
        self.only_spec = only_spec
        self.draw = random.Random(seed)
        self.settings: Settings = {"seed": seed}
        self.files: dict[str, str] = {}
        #: Rows of the trace, where a feature needs members that no generated workload has.
        self.rows: list[dict[str, Any]] | None = None

    def set(self, **values: Any) -> None:
        """Set keys, whose dots are written as two underscores."""
        self.settings |= {key.replace("__", "."): value for key, value in values.items()}

    def maybe(self, chance: float, **choices: list[Any]) -> None:
        """Set each of some keys with a chance, at one of its values."""
        for key, values in choices.items():
            if self.draw.random() < chance:
                self.set(**{key: self.draw.choice(values)})

    def clear(self, *prefixes: str) -> None:
        """Remove keys and all below them."""
        for key in list(self.settings):
            if any(key == prefix or key.startswith(prefix + ".") for prefix in prefixes):
                del self.settings[key]

    def has(self, prefix: str) -> bool:
        """Return whether a key or one below it is set."""
        return any(key == prefix or key.startswith(prefix + ".") for key in self.settings)

    @property
    def machines(self) -> int:
        """The number of machines."""
        machines = self.settings.get("cluster.machines", 1)
        assert isinstance(machines, int)
        return machines

    @property
    def span_s(self) -> float:
        """The seconds in which requests arrive, roughly."""
        if self.rows is not None:
            return float(max(row["timestamp"] for row in self.rows)) / 1000 + 0.1
        return float(self.settings["workload.requests"] / self.settings["workload.arrivals.rate_per_s"])

    def moment(self) -> str:
        """Return a time in the run, as a scenario says it."""
        return f"{self.draw.uniform(0.05, 1.2) * self.span_s:.3f}s"

    def tree(self) -> None:
        """Make room for what only the tree has: no engine's cache or scheduler, detailed accounting."""
        self.clear("cache.semantics", "cache.enabled", "cache.accounting", "cache.layer_groups", "model")
        self.clear("cache.retention_interval", "tiers.cpu.semantics")
        self.own_scheduler()

    def own_scheduler(self) -> None:
        """Have kvsim's scheduler, without the keys of an engine's."""
        self.clear(*(f"replica.{key}" for key in _OF_ENGINES))

    def one_tier(self) -> None:
        """Leave the GPU tier alone, and nothing that moves."""
        self.clear("tiers.cpu", "tiers.disk", "write", "fetch", "prefetch", "channels", "channel_choice")
        self.clear("cluster.pool")
        if self.settings.get("handover.path") == "via-cpu":
            self.clear("handover.path")

    def lower_tiers(self, disk: bool) -> None:
        """Add a CPU tier below the tree, and a disk tier on request."""
        self.tree()
        self.clear("replica.dp", "replica.instant")
        for name in ("cpu", "disk")[: 1 + disk]:
            if not self.has(f"tiers.{name}"):
                self.set(
                    **{f"tiers__{name}__capacity": self.draw.choice(["1GiB", "4GiB", "20GiB", "unbounded"])}
                )

    def one_machine(self) -> None:
        """Leave one machine."""
        self.clear(
            "router", "pools", "handover", "fetch.lookup", "fetch.remote_disk", "cluster.pool", "fleet"
        )
        self.set(cluster__machines=1)

    def several_machines(self) -> None:
        """Have several machines, each of which does everything."""
        self.clear("pools", "handover")
        self.set(cluster__machines=max(self.machines, self.draw.choice([2, 3, 4])))

    def trace(self) -> list[dict[str, Any]]:
        """Return the rows of the run's trace, drawn on first use; no workload is generated then."""
        if self.rows is None:
            self.rows = _rows(self.draw)
            self.clear("workload")
            self.settings["trace.path"] = TRACE
        return self.rows

    def finish(self) -> None:
        """Write the trace."""
        if self.rows is not None:
            self.files[TRACE] = "".join(json.dumps(row) + "\n" for row in self.rows)


def _rows(draw: random.Random) -> list[dict[str, Any]]:
    """Return the rows of sessions whose prompts grow, share a prefix, and return after a while."""
    closed = draw.random() < 0.3
    fresh, at_ms, rows = 1_000, 0.0, []
    pause_ms = draw.choice([0, 20, 300, 1500])
    shared = list(range(draw.randint(0, 4)))
    sessions: dict[int, list[int]] = {}
    turns: dict[int, int] = {}
    for _ in range(draw.randint(10, 40)):
        at_ms += draw.choice([0, 1, 1, 3]) * pause_ms * draw.random()
        session = draw.randrange(8)
        turns[session] = turns.get(session, -1) + 1
        new = list(range(fresh, fresh + draw.randint(1, 4)))
        fresh += len(new) + 1
        ids = [*sessions.get(session, shared), *new]
        if len(ids) > 30:
            ids = [*shared, *new]
        sessions[session] = ids
        short = draw.choice([0, 0, draw.randrange(ID_TOKENS)])
        row: dict[str, Any] = {
            "timestamp": round(at_ms, 3),
            "input_length": ID_TOKENS * len(ids) + short,
            "output_length": draw.choice([1, draw.randint(1, 60), draw.randint(1, 300)]),
            # traces may leave out the id of a last part
            "hash_ids": [*ids, fresh - 1] if short % 2 else ids,
            "session_id": f"s{session}",
            "turn": turns[session],
        }
        if closed and turns[session]:
            row["delay"] = draw.choice([0, 100, 2000])
        rows.append(row)
    return rows
