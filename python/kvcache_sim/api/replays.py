"""Caches without time, in Python: one policy at one capacity, or the hit rate at every capacity."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack, get_type_hints

import numpy as np

from kvcache_sim.api.arrow import arrow_table
from kvcache_sim.api.calls import check_type, public
from kvcache_sim.api.html import html_page, html_table
from kvcache_sim.api.plot import Plot
from kvcache_sim.api.settings import plain
from kvcache_sim.api.traces import make_trace, read_trace
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.units import format_percent
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.metrics.columns import Column
from kvcache_sim.replay.cachesim import simulate_cache
from kvcache_sim.replay.group_settings import group_settings
from kvcache_sim.replay.request import LastPartial, Outputs, PromptEnd, ReplayRequest
from kvcache_sim.report.cachesim import CapacityOptions, cache_request, cachesim_text, capacity_bytes
from kvcache_sim.report.curve.build import Document, curve_ask, curve_document
from kvcache_sim.report.curve.groups import GroupsAsk, groups_document, groups_rendered
from kvcache_sim.report.curve.sizes import kv_bytes_per_token as kv_bytes_of
from kvcache_sim.report.curve.text import curve_csv, curve_table
from kvcache_sim.report.curve.write import curve_picture
from kvcache_sim.report.picture import Table
from kvcache_sim.report.plotting import require_plotting
from kvcache_sim.workload.trace import Trace

Size = int | str
#: Options that take one value or several.
_REPEATABLE = ("capacity", "policy", "given")
#: The name of a policy, or its class or function.
Policy = str | type | Callable[..., object]
#: Settings of a policy's capacity.
_CAPACITY_OPTIONS = (
    "host_capacity",
    "write_policy",
    "storage",
    "prefetch_threshold",
    "chunk_tokens",
    "cpu_chunks",
    "disk_chunks",
)
#: Settings of the blocks that requests fill.
_REQUEST_OPTIONS = (
    "window",
    "outputs",
    "order",
    "last_partial",
    "flat",
    "reuse_outputs",
    "store_threshold",
)


class ReplaySettings(TypedDict, total=False):
    """Settings of a replay, besides its trace and capacity."""

    #: Tokens a block: a divisor or a multiple of the trace's block size, which is the default.
    block_size: int
    #: A model whose KV bytes turn sizes such as ``16GiB`` into blocks.
    model: str
    order: PromptEnd
    outputs: Outputs
    last_partial: LastPartial


class CacheSettings(ReplaySettings, total=False):
    """Further settings of ``cachesim``."""

    #: KV bytes a token, instead of ``model``.
    kv_bytes_per_token: int
    #: Requests that overlap; 0: one after another.
    window: int
    #: A plain cache of blocks, without prefixes.
    flat: bool
    reuse_outputs: bool
    store_threshold: int
    #: For a model of layer groups under ``vllm``.
    max_num_batched_tokens: int
    retention_interval: str
    #: For ``sglang-unified``: HiCache's host capacity, and its write policy.
    host_capacity: str
    write_policy: str
    #: Its storage below the host, ``unbounded`` or a size, and the fewest tokens of a prefetch from it.
    storage: str
    prefetch_threshold: int
    #: For ``lmcache``, which has no capacity: tokens a chunk, chunks of its tiers.
    chunk_tokens: int
    cpu_chunks: int
    disk_chunks: int


class CurveSettings(ReplaySettings, total=False):
    """Further settings of ``curve``."""

    #: Sizes to show, in blocks or bytes; powers of two unless given.
    capacity: Size | Sequence[Size]
    #: Other policies at these sizes.
    policy: Policy | Sequence[Policy]
    #: Sizes of the tiers above the tier in question, fast to slow.
    given: Size | Sequence[Size]
    by_session: bool
    every_capacity: bool
    #: Estimate from this share of the ids.
    sample: float
    seed: int


class CacheReplay(dict[str, Any]):
    """The figures of one policy at one capacity, as ``kvsim cachesim --format json`` prints them.

    Attributes:
        policy: Name of the eviction policy.
        requests: ``pyarrow.Table`` of a row a request, in tokens; None where the policy keeps no rows.
    """

    def __init__(self, policy: str, figures: dict[str, Any], columns: Any) -> None:
        super().__init__(figures)
        self.policy, self.columns = policy, columns

    @property
    def requests(self) -> Any:
        """Return the hits and misses by cause, in tokens, a row a request."""
        if self.columns is None:
            return None
        columns = {name: np.asarray(values) for name, values in self.columns.items()}
        return arrow_table(
            columns, {name: Column(str(column.dtype), name) for name, column in columns.items()}
        )

    def __str__(self) -> str:
        """Return the text of ``kvsim cachesim``."""
        return cachesim_text(self.policy, dict(self))

    def __repr__(self) -> str:
        rate = f": {format_percent(self['hit_rate'])} of tokens hit" if "hit_rate" in self else ""
        return f"<CacheReplay {self.policy}{rate}, {len(self)} figures>"

    def _repr_html_(self) -> str:
        rows = [(name, value) for name, value in self.items() if isinstance(value, (int, float, str))]
        return html_page(self.policy, html_table(Table(("figure", ""), tuple(rows))))


class Curve:
    """The hit rate at every capacity, with the knee and the upper bounds.

    Attributes:
        document: The JSON of ``kvsim curve --format json``.
        points: Its rows, one a capacity; sizes are in blocks, hit rates are fractions of 1.
    """

    def __init__(self, document: Document) -> None:
        self.document = {key: value for key, value in document.items() if key != "line"}
        self._drawn = document

    @property
    def points(self) -> list[dict[str, Any]]:
        """Return a row a capacity: ``capacity_blocks`` and the figures of each policy."""
        return list(self.document["points"])

    @property
    def knee(self) -> dict[str, Any]:
        """Return the capacity beyond which more capacity pays less, with its hit rate."""
        return dict(self.document["landmarks"]["knee"])

    def plot(self) -> Plot:
        """Return the hit rate over the capacity; raises UsageError without the extra ``report``."""
        require_plotting()
        return Plot(curve_picture(self._drawn))

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` of a row a capacity and policy."""
        import csv
        import io

        import pyarrow as pa

        text = {"policy": str, "capacity_blocks": int, "capacity_bytes": int, "hit_blocks": int}
        rows = csv.DictReader(io.StringIO(curve_csv(self.document)))
        return pa.Table.from_pylist(
            [
                {name: text.get(name, float)(value) if value else None for name, value in row.items()}
                for row in rows
            ]
        )

    def __str__(self) -> str:
        """Return the text of ``kvsim curve``."""
        return curve_table(self.document)

    def __repr__(self) -> str:
        kinds = [name for name in self.points[0] if not name.startswith("capacity_")] if self.points else []
        return f"<{type(self).__name__} of {len(self.points)} capacities: {', '.join(kinds)}>"

    def _repr_html_(self) -> str:
        names = [name for name in self.points[0] if not name.startswith("capacity_")] if self.points else []
        rows = tuple(
            (
                point["capacity_blocks"],
                *(
                    format_percent(point[name].get("block_hit_rate", point[name].get("hit_rate", 0)))
                    for name in names
                ),
            )
            for point in self.points
        )
        return html_page("hit rate by capacity", html_table(Table(("blocks", *names), rows)))


class GroupCurve(Curve):
    """The hit rate of a model of windows, chunks or states at some capacities, each replayed by itself."""

    @property
    def knee(self) -> dict[str, Any]:
        """Raise ``UsageError``: sizes between the replayed sizes are unknown."""
        raise UsageError(
            "no knee", where="knee", got=self.document["model"], expected="a model of full attention"
        )

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` of a row a kind (groups, or full attention) and capacity."""
        import pyarrow as pa

        kinds = [name for name in ("groups", "full_attention") if name in self.points[0]]
        sizes = ("capacity_blocks", "capacity_bytes")
        return pa.Table.from_pylist(
            [
                {"kind": kind, **{name: point[name] for name in sizes}, **point[kind]}
                for point in self.points
                for kind in kinds
            ]
        )

    def __str__(self) -> str:
        """Return the text of ``kvsim curve --model``."""
        return groups_rendered(self.document, "table")


@public
def cachesim(
    trace: Any, policy: Policy = "lru", *, capacity: Size = "", **settings: Unpack[CacheSettings]
) -> CacheReplay:
    """Replay a trace through one cache, without time.

    Args:
        trace: A ``Trace``, the path of a trace file, or columns as ``make_trace`` takes them.
        policy: Eviction policy or engine cache, as ``kvsim policies list`` names them; or a policy's class.
        capacity: Blocks, or a size such as ``"16GiB"`` with a ``model``.
        settings: The options of ``kvsim cachesim``; see ``CacheSettings``.

    Returns:
        Hits and evictions in blocks and tokens, hit rates, misses by cause.

    Raises:
        UsageError: The policy, the capacity or a setting is unknown or has no effect.
        TraceError: The trace has data that cannot be trusted.
    """
    _known(settings, CacheSettings)
    name: str = plain(policy, "policy")
    requests = as_trace(trace)
    model = settings.get("model", "")
    if model and settings.get("kv_bytes_per_token"):
        got = str(settings["kv_bytes_per_token"])
        raise UsageError("a model says its own", where="kv_bytes_per_token", got=got)
    batched, retention = settings.get("max_num_batched_tokens"), settings.get("retention_interval", "")
    with _named_as_keywords():
        groups = group_settings(
            name, model, settings.get("block_size", 0), batched, retention, settings.get("cpu_chunks", 0)
        )
        token_bytes = kv_bytes_of(model) or settings.get("kv_bytes_per_token", 0)
        named: Mapping[str, Any] = settings
        tiers = {key: named[key] for key in _CAPACITY_OPTIONS if key in named}
        options = CapacityOptions(str(capacity), settings.get("block_size", 0), **tiers)
        asked = {key: named[key] for key in _REQUEST_OPTIONS if key in named}
        request = cache_request(requests, name, options, groups, token_bytes, step_tokens=batched, **asked)
    figures = simulate_cache(request, name)
    if token_bytes:
        figures["capacity_bytes"] = capacity_bytes(request, token_bytes)
    columns = figures.pop("requests", None)
    return CacheReplay(name, json.loads(json.dumps(figures)), columns)


@public
def curve(trace: Any, **settings: Unpack[CurveSettings]) -> Curve:
    """Compute the hit rate of a trace at every capacity, from one pass, with the knee and the upper bounds.

    A model with layers of windows, chunks or states is replayed once for each capacity.

    Args:
        trace: A ``Trace``, the path of a trace file, or columns as ``make_trace`` takes them.
        settings: The options of ``kvsim curve``; see ``CurveSettings``.

    Returns:
        The curve; sizes are in blocks, and in bytes with a ``model``.

    Raises:
        UsageError: A setting is unknown, has no effect or is out of range.
        TraceError: The trace has data that cannot be trusted.
    """
    _known(settings, CurveSettings)
    several = {key: plain(value, key) for key, value in settings.items() if key in _REPEATABLE}
    asked: dict[str, Any] = {**settings, **{k: v if isinstance(v, list) else [v] for k, v in several.items()}}
    if "seed" in settings and not settings.get("sample"):
        raise UsageError("a seed has no effect without a sample", where="seed", got=str(settings["seed"]))
    requests = as_trace(trace)
    with _named_as_keywords():
        groups = group_settings("vllm", settings.get("model", ""), settings.get("block_size", 0), None, "")
        if groups is not None:
            return _group_curve(requests, groups, asked)
        return Curve(curve_document(curve_ask(requests, line=True, **asked)))


def _group_curve(requests: Trace, groups: GroupSettings, settings: Mapping[str, Any]) -> Curve:
    if others := set(settings) - {"capacity", "block_size", "model"}:
        expected = "capacity and block_size alone"
        raise UsageError("a model of windows or states has no such setting", min(others), expected=expected)
    request = ReplayRequest(
        requests, settings.get("block_size") or requests.block_size, 1, outputs="computed"
    )
    capacities = tuple(str(one) for one in settings.get("capacity", ()))
    return GroupCurve(groups_document(GroupsAsk(request, groups, capacities)))


@contextmanager
def _named_as_keywords() -> Iterator[None]:
    """Name Python keywords, not options of the command line, in a ``UsageError``."""
    try:
        yield
    except UsageError as error:
        error.where = error.where.removeprefix("--").replace("-", "_")
        raise


def as_trace(given: Any) -> Trace:
    """Return requests: a trace as it is, a file read, columns made into one."""
    if isinstance(given, Trace):
        return given
    return read_trace(given) if isinstance(given, (str, os.PathLike)) else make_trace(given)


def _known(settings: Mapping[str, object], kind: type) -> None:
    hints = get_type_hints(kind)
    known = sorted(hints)
    for name, value in settings.items():
        if name in hints:
            check_type(name, value, hints[name])
        else:
            near = close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"settings: {', '.join(known)}"
            raise UsageError(f"unknown setting {name!r}", where=name, hint=hint)
