"""The joint study as a table and as a picture."""

from __future__ import annotations

from typing import Any

from kvcache_sim.report.picture import Picture, Table, Value

_KIND, _TITLE = "joint", "Eviction × routing × capacity"
_DEFINITION = (
    "Share of prompt tokens served from a cache, by blocks a machine: a line a router and eviction policy. "
    "Dashed: Belady's policy in one cache with the blocks of all machines, and a cache without bounds; both "
    "serve one request after another and know no machines."
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


def joint_picture(study: dict[str, Any]) -> Picture:
    """Return the picture of ``JointStudy.as_json``."""
    import altair as alt

    data: list[dict[str, Value]] = [
        {
            "capacity": cell["capacity_blocks"],
            "fleet": f"{cell['router']}, {cell['policy']}",
            "share": round(cell["hit_rate"], 6),
            "line": "fleet",
        }
        for cell in study["cells"]
    ]
    ceilings = study["one_cache"]
    for capacity, rate in ceilings["belady"].items():
        both = (("one cache, Belady", rate), ("one cache, no bounds", ceilings["unbounded"]))
        data += [
            {"capacity": int(capacity), "fleet": name, "share": round(value, 6), "line": "ceiling"}
            for name, value in both
        ]
    base = alt.Chart(alt.NamedData("picture")).encode(
        x=alt.X("capacity:Q", title="blocks a machine", scale=alt.Scale(type="log")),
        y=alt.Y("share:Q", title="share of prompt tokens", axis=alt.Axis(format="%")),
        color=alt.Color("fleet:N", title=None),
        tooltip=["fleet:N", "capacity:Q", "share:Q"],
    )
    fleets = base.transform_filter("datum.line == 'fleet'").mark_line(point=True)
    tops = base.transform_filter("datum.line == 'ceiling'").mark_line(point=True, strokeDash=[5, 4])
    chart: Any = alt.layer(fleets, tops).properties(width=640, height=320)
    table = Table(
        ("fleet", "blocks a machine", "share of prompt tokens"),
        tuple((row["fleet"], row["capacity"], row["share"]) for row in data),
    )
    return Picture(_KIND, _TITLE, _DEFINITION, data, chart, table)
