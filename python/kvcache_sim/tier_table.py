"""The tiers a machine can have: one row each, from fast to slow. To add a tier, add a row.

Everything that depends on the tiers is derived from these rows by ``tiers.py`` and its users: edges and
their channels, keys of scenarios, columns of a run, parts of TTFT, figures of the summary, pictures and
sentences. A program may append a row of its own to ``ROWS`` before it imports anything else of the package.
"""

from __future__ import annotations

from typing import NamedTuple


class Tier(NamedTuple):
    """One tier. KV goes down from each to the next one, and comes up the same way, tier by tier.

    The first row is the memory that computes. The second one is where KV from further down, and from other
    machines, lands before it is loaded; other machines read any tier but the first.
    """

    #: One word of lower-case letters: it names keys, edges and columns.
    name: str
    #: What it is, for help texts.
    meaning: str
    #: Its colour in pictures.
    colour: str
    #: Preset of the channels to and from the tier above, unless a scenario says otherwise.
    link: str = ""
    #: Key of the price of a GiB for a month in a scenario's ``cost``.
    price: str = ""
    #: Whether it wears out by writing: its writes are counted in drive writes a day.
    wears: bool = False
    #: What a router that weighs prefill against load credits a block found here with; on the GPU it is 1.
    router_credit: float = 0.25


ROWS: list[Tier] = [
    Tier("gpu", "memory of the GPU", "#1f9e89", router_credit=1.0),
    Tier("cpu", "memory of the host", "#3b82c4", "pcie5-x16", "dram_gib_month", router_credit=0.75),
    Tier("disk", "drives of the machine", "#b5651d", "nvme", "nvme_gib_month", wears=True),
]
