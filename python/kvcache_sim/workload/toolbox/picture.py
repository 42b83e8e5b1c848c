"""The working set over time as a small picture that needs no library."""

from __future__ import annotations

from typing import Any

WIDTH, HEIGHT, MARGIN = 640, 300, 50


def working_set_svg(stats: dict[str, Any]) -> str:
    """Return an SVG: distinct blocks named in each window (bars) and up to its end (line)."""
    windows = stats["working_set"]
    top = max((w["seen"] for w in windows), default=1)
    step = (WIDTH - 2 * MARGIN) / max(1, len(windows))

    def x(k: float) -> float:
        return round(MARGIN + k * step, 1)

    def y(blocks: int) -> float:
        return round(HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * blocks / top, 1)

    base = HEIGHT - MARGIN
    bars = "".join(
        f'<rect x="{x(k + 0.1)}" y="{y(w["blocks"])}" width="{step * 0.8:.1f}" '
        f'height="{base - y(w["blocks"]):.1f}" fill="#4c78a8"/>'
        for k, w in enumerate(windows)
    )
    line = " ".join(f"{x(k + 1)},{y(w['seen'])}" for k, w in enumerate(windows))
    end = windows[-1]["until_s"] if windows else 0
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{MARGIN}" y="20">Distinct blocks: in a window (bars), so far (line), up to {top:,}</text>'
        f'{bars}<polyline points="{x(0)},{base} {line}" fill="none" stroke="#e45756" stroke-width="2"/>'
        f'<line x1="{MARGIN}" y1="{base}" x2="{WIDTH - MARGIN}" y2="{base}" stroke="black"/>'
        f'<text x="{MARGIN}" y="{base + 20}">0 s</text>'
        f'<text x="{WIDTH - MARGIN}" y="{base + 20}" text-anchor="end">{end:,.0f} s</text></svg>\n'
    )
