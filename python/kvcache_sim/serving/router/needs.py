"""What a router goes by: an attribute of its class, from which follows where a setting has no effect."""

from __future__ import annotations

from typing import NamedTuple


class Needs(NamedTuple):
    """What a router goes by beside the requests themselves; a built-in router's class has it as ``needs``."""

    #: What the machines have cached.
    caches: bool = False
    #: The engines' own figures, which ``router.view.interval`` makes old.
    engine_loads: bool = False
    #: Nothing but load: it has none to go by where a run takes no time.
    load_alone: bool = False
    #: The blocks of the prompts that it sent: a trace is read whole for it.
    sent_blocks: bool = False
    #: The time: as a decode router it keeps machines on the clock.
    clock: bool = False
    #: The keys of the section ``router`` that it reads.
    keys: tuple[str, ...] = ()
    #: The ``router.index.kind`` that it can keep in place of the truth.
    own_index: str = "truth"
