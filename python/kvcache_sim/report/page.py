"""A page: one HTML file with everything inside, the same bytes for the same parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from kvcache_sim.report.parts import Asked, Part, body, heading
from kvcache_sim.report.picture import Picture

#: Nothing may be fetched and nothing sent: a browser enforces what the file promises. Vega compiles its
#: expressions to functions, hence unsafe-eval.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
)


def safe_json(value: object) -> str:
    """Return JSON that cannot end its script element."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def build_page(title: str, warnings: Sequence[str], parts: Sequence[Part], opening: str = "") -> str:
    """Return the whole page; ``opening`` is the HTML at its start."""
    from kvcache_sim.report.render import columns_of, vega, vega_script

    charts: dict[str, Any] = {}
    bodies = []
    for number, part in enumerate(parts):
        anchor = f"s{number}"
        picture = part.picture if isinstance(part, Asked) else part
        if isinstance(picture, Picture):
            charts[picture.kind] = {"vega": vega(picture), "columns": columns_of(picture)}
        words = f'<h2><a href="#{anchor}">{escape(heading(part))}</a></h2>' if len(parts) > 1 else ""
        bodies.append(f'<section id="{anchor}">{words}{body(part, anchor)}</section>')
    links = " ".join(f'<a href="#s{n}">{escape(heading(part))}</a>' for n, part in enumerate(parts))
    navigation = f"<details class=contents><summary>contents</summary><nav>{links}</nav></details>"
    notes = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    assets = files("kvcache_sim.report").joinpath("assets")
    style, script = (assets.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    runtime = vega_script().replace("</script", "<\\/script") if charts else ""
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{style}</style></head><body>",
            f'<header><h1 title="{escape(title)}">{escape(title)}</h1></header>',
            opening,
            f'<ul class="warnings">{notes}</ul>' if notes else "",
            navigation if len(parts) > 1 else "",
            *bodies,
            f'<script type="application/json" id="specifications">{safe_json(charts)}</script>',
            f"<script>{runtime}</script><script>{script}</script></body></html>\n",
        ]
    )
