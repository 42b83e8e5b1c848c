"""The joint study as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvcache_sim.report.colours import OTHER, colour_scale
from kvcache_sim.report.picture import Picture, Table, Value
from kvcache_sim.report.series import MOST_SERIES

_KIND, _TITLE = "joint", "Eviction × routing × capacity"
_DEFINITION = (
    "Share of prompt tokens served from a cache, by blocks a machine: a colour a router, a shape an eviction "
    "policy. Dashed: one cache with the blocks of all machines under Belady's policy, and one without bounds "
    "(ceiling); both serve one request after another and know no machines."
)


def joint_text(study: dict[str, Any]) -> str:
    """Return the table of ``JointStudy.as_json``: a row a router and policy, a column a capacity."""
    capacities = list(dict.fromkeys(cell["capacity_blocks"] for cell in study["cells"]))
    names = list(dict.fromkeys((cell["router"], cell["policy"]) for cell in study["cells"]))
    cells = {(c["router"], c["policy"], c["capacity_blocks"]): c for c in study["cells"]}
    best = {
        capacity: max(c["hit_rate"] for c in study["cells"] if c["capacity_blocks"] == capacity)
        for capacity in capacities
    }
    width = max(len(router) for router, _ in names) + max(len(policy) for _, policy in names) + 2
    lines = [
        f"{study['machines']:,} machines; share of prompt tokens from a cache, mean TTFT, machines that work",
        f"{'blocks a machine':<{max(width, 22)}}" + "".join(f"{c:>26,}" for c in capacities),
    ]
    width = max(width, 22)
    for router, policy in names:
        row = f"{router}  {policy}".ljust(width)
        for capacity in capacities:
            cell = cells[router, policy, capacity]
            mark = "*" if cell["hit_rate"] == best[capacity] else " "
            one = f"{cell['hit_rate']:.1%}{mark} {cell['ttft_ms']:,.0f} ms {cell['working_machines']:>4,}"
            row += f"{one:>26}"
        lines.append(row)
    ceilings = study["one_cache"]
    for name, rates in (
        ("one cache, Belady", [ceilings["belady"][str(c)] for c in capacities]),
        ("one cache, no bounds", [ceilings["unbounded"]] * len(capacities)),
    ):
        lines.append(name.ljust(width) + "".join(f"{f'{rate:.1%}':>26}" for rate in rates))
    return "\n".join([*lines, "* most hits at this capacity"])


def joint_picture(study: dict[str, Any], subject: str) -> Picture:
    """Return the picture of ``JointStudy.as_json``; ``subject`` is the trace's name."""
    import altair as alt

    data = _rows(study)
    drawn = list(dict.fromkeys(str(row["series"]) for row in data))
    base = alt.Chart(alt.NamedData("picture")).encode(
        x=alt.X(
            "capacity:Q",
            title="blocks a machine (log scale)",
            scale=alt.Scale(type="log", nice=False, padding=12),
            axis=alt.Axis(values=sorted({int(str(row["capacity"])) for row in data}), labelOverlap=True),
        ),
        y=alt.Y("share:Q", title="share of prompt tokens", axis=alt.Axis(format="%")),
        color=alt.Color("series:N", scale=colour_scale(drawn), sort=drawn, title=None),
        detail="fleet:N",
        tooltip=["fleet:N", "capacity:Q", alt.Tooltip("share:Q", format=".2%")],
    )
    fleets = base.transform_filter("datum.line == 'fleet'")
    shape = alt.Shape("policy:N", title=None)
    points = fleets.mark_point(size=60).encode(shape=shape)
    tops = base.transform_filter("datum.line == 'ceiling'").mark_line(strokeDash=[5, 4])
    layers = alt.layer(tops, fleets.mark_line(), points)
    chart: Any = layers.resolve_legend(shape="independent").properties(width=640, height=320)
    table = Table(
        ("fleet", "blocks a machine", "share of prompt tokens"),
        tuple((row["fleet"], row["capacity"], row["share"]) for row in data),
    )
    return Picture(_KIND, _TITLE, _DEFINITION, data, chart, table, subject)


def _rows(study: dict[str, Any]) -> list[dict[str, Value]]:
    """Return a row a fleet and capacity, and the two ceilings at each."""
    best = {cell["router"]: 0.0 for cell in study["cells"]}
    for cell in study["cells"]:
        best[cell["router"]] = max(best[cell["router"]], cell["hit_rate"])
    series = _named(sorted(best, key=lambda router: -best[router]))
    rows: list[dict[str, Value]] = [
        {
            "capacity": cell["capacity_blocks"],
            "series": series[cell["router"]],
            "policy": cell["policy"],
            "fleet": f"{cell['router']}, {cell['policy']}",
            "share": round(cell["hit_rate"], 6),
            "line": "fleet",
        }
        for cell in study["cells"]
    ]
    ceilings = study["one_cache"]
    for capacity, rate in ceilings["belady"].items():
        for name, value in (("belady", rate), ("ceiling", ceilings["unbounded"])):
            shown = {"series": name, "policy": "", "fleet": f"one cache, {name}", "line": "ceiling"}
            rows.append({"capacity": int(capacity), "share": round(value, 6), **shown})
    return rows


def _named(routers: Sequence[str]) -> dict[str, str]:
    """Return the name each router is drawn under: the best by their own, the rest as one."""
    room = MOST_SERIES - 2  # beside the two ceilings
    if len(routers) <= room:
        return {router: router for router in routers}
    return {router: router if place < room - 1 else OTHER for place, router in enumerate(routers)}
