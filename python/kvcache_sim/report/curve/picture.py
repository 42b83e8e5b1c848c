"""The curve as a picture: SVG, PNG or a self-contained HTML page."""

from __future__ import annotations

from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.report.curve.build import Document

PICTURES = (".svg", ".png", ".html")
_MOST_CORNERS = 2_000
_GIB = 2**30


def curve_picture(document: Document, suffix: str) -> bytes:
    """Return the picture's bytes; raises ``UsageError`` where the ``report`` extra is not installed.

    One line a policy over capacity on a log axis (GiB where the model is known, else blocks), the ceiling
    dashed, the knee marked.
    """
    chart = _chart(document)
    if suffix == ".html":
        page: str = chart.to_html(inline=True)
        return page.encode()
    import vl_convert

    spec = chart.to_json()
    if suffix == ".png":
        return bytes(vl_convert.vegalite_to_png(spec, scale=2))
    return str(vl_convert.vegalite_to_svg(spec)).encode()


def _chart(document: Document) -> Any:
    try:
        import altair
    except ImportError:
        raise UsageError(
            "pictures need the report extra", where="--out", hint="pip install 'kvcache-sim[report]'"
        ) from None
    alt: Any = altair  # its typing cannot follow data given as values
    block_bytes = document["block_size"] * (document["kv_bytes_per_token"] or 0)
    scale = block_bytes / _GIB if block_bytes else 1.0
    title = "capacity, GiB" if block_bytes else f"capacity, blocks of {document['block_size']} tokens"
    x = alt.X("capacity:Q", title=title, scale=alt.Scale(type="log", base=2, nice=False))
    y = alt.Y("share:Q", title="share of blocks found", axis=alt.Axis(format="%"))
    lines = (
        alt.Chart(alt.Data(values=_values(document, scale)))
        .mark_line(point=document.get("every_capacity") is None)
        .encode(x=x, y=y, color=alt.Color("policy:N", title=None))
    )
    layers = [lines]
    if "unbounded" in document:
        top = [{"share": document["unbounded"]["block_hit_rate"]}]
        layers.append(alt.Chart(alt.Data(values=top)).mark_rule(strokeDash=[4, 4]).encode(y="share:Q"))
        knee = document["landmarks"]["knee"]
        if knee["capacity_blocks"]:
            at = [
                {
                    "capacity": knee["capacity_blocks"] * scale,
                    "share": knee["block_hit_rate"],
                    "label": "knee",
                }
            ]
            mark = alt.Chart(alt.Data(values=at)).encode(x=x, y=y)
            layers += [mark.mark_point(filled=True, size=90), mark.mark_text(dy=-12).encode(text="label:N")]
    return alt.layer(*layers).properties(width=640, height=360, title="hit rate over cache size")


def _values(document: Document, scale: float) -> list[dict[str, Any]]:
    values = []
    if "every_capacity" in document:
        corners = document["every_capacity"]
        pairs = list(zip(corners["capacity_blocks"], corners["hit_blocks"], strict=True))
        step = -(-len(pairs) // _MOST_CORNERS)
        references = max(1, document["queried_blocks"])
        values = [
            {"policy": "lru", "capacity": blocks * scale, "share": hits / references}
            for blocks, hits in pairs[::step]
            if blocks > 0
        ]
    for point in document["points"]:
        for name, found in point.items():
            if name.startswith("capacity_") or (name == "lru" and "every_capacity" in document):
                continue
            share = found.get("block_hit_rate", found.get("hit_rate"))
            values.append({"policy": name, "capacity": point["capacity_blocks"] * scale, "share": share})
    return values
