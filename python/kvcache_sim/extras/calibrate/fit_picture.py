"""The picture of a fit: each iteration's predicted time against its measured one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.extras.calibrate.rows import IterationRows, phase_errors
from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.picture import Picture, Table, Value
from kvcache_sim.report.plotting import check_suffix, encoded, require_plotting

_MOST_POINTS = 2000


def fit_picture_bytes(rows: IterationRows, predicted_ms: NDArray[np.float64], suffix: str) -> bytes:
    """Return the picture as the bytes of an .html, .svg or .png file; UsageError for another suffix."""
    require_plotting()
    check_suffix(suffix, "--picture")
    return encoded(fit_picture(rows, predicted_ms), suffix)


def fit_picture(rows: IterationRows, predicted_ms: NDArray[np.float64]) -> Picture:
    """Return predicted against measured on log axes, a colour a phase, the diagonal beneath."""
    import altair as alt

    data: list[dict[str, Value]] = []
    for phase, mask in rows.phases().items():
        chosen = np.flatnonzero(mask)
        chosen = chosen[:: max(1, -(-len(chosen) // _MOST_POINTS))]
        points = zip(rows.iter_ms[chosen].tolist(), predicted_ms[chosen].tolist(), strict=True)
        data += [{"phase": phase, "measured": round(x, 4), "predicted": round(y, 4)} for x, y in points]
    scale = alt.Scale(type="log", nice=False)
    measured = alt.X("measured:Q", title="measured, ms (log scale)", scale=scale)
    points_chart = (
        alt.Chart()
        .mark_point(size=12, opacity=0.5)
        .encode(
            x=measured,
            y=alt.Y("predicted:Q", title="predicted, ms (log scale)", scale=scale),
            color=alt.Color("phase:N", scale=colour_scale(list(rows.phases())), title=None),
            tooltip=["phase:N", "measured:Q", "predicted:Q"],
        )
    )
    diagonal = alt.Chart().mark_line(strokeWidth=1, opacity=0.6).encode(x=measured, y="measured:Q")
    table = tuple(
        (e.phase, e.rows, round(e.mape, 2), round(e.p95, 2), round(e.bias, 2))
        for e in phase_errors(rows, predicted_ms)
    )
    return Picture(
        "fit",
        "Predicted against measured step times",
        "Each point is an iteration held out from the fit; on the line, prediction and measurement agree.",
        data,
        # Layers take the data of the whole only where the whole has some; the rows are put in when drawn.
        alt.layer(diagonal, points_chart, data=alt.InlineData(values=[])).properties(width=460, height=380),
        Table(("phase", "rows", "mean |error| %", "p95 |error| %", "bias %"), table),
    )
