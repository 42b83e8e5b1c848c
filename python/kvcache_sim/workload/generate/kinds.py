"""The kinds of workload, one file each."""

from __future__ import annotations

from kvcache_sim.workload.generate.agentic import Agentic
from kvcache_sim.workload.generate.conversational import Conversational
from kvcache_sim.workload.generate.diverse import Diverse
from kvcache_sim.workload.generate.few_shot import FewShot
from kvcache_sim.workload.generate.overflow import Overflow
from kvcache_sim.workload.generate.rag import Rag
from kvcache_sim.workload.generate.repetitive import Repetitive
from kvcache_sim.workload.generate.settings import Workload

#: Every kind of workload under its name.
KINDS: dict[str, type[Workload]] = {
    "conversational": Conversational,
    "repetitive": Repetitive,
    "diverse": Diverse,
    "few-shot": FewShot,
    "overflow": Overflow,
    "agentic": Agentic,
    "rag": Rag,
}
