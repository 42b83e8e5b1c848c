"""Explanations of a run's results, in Python."""

from __future__ import annotations

import os
from pathlib import Path

from kvcache_sim.api.calls import public
from kvcache_sim.api.html import html_list, html_page
from kvcache_sim.api.run import Run, load_run
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.certainty import certain_figures
from kvcache_sim.report.explain.sentences import explain as explain_case
from kvcache_sim.report.finished import find_trace
from kvcache_sim.report.plain_table import plain_sentences


class Explanation(dict[str, dict[str, str]]):
    """Sentences by topic and name: ``explanation["What TTFT is made of"]["queueing"]``.

    ``print`` shows the text of ``kvsim explain``.

    Attributes:
        sentences: All sentences in their order.
        missing: The reason for which the run's trace is not available, or "".
    """

    def __init__(self, said: dict[str, dict[str, str]], missing: str) -> None:
        super().__init__(said)
        self.missing = missing

    @property
    def sentences(self) -> list[str]:
        """Return all sentences in their order."""
        return [sentence for group in self.values() for sentence in group.values()]

    def __str__(self) -> str:
        """Return the topics with their sentences."""
        return "\n\n".join(
            f"{topic}\n{plain_sentences(list(group.values()), indent='  ')}" for topic, group in self.items()
        )

    def __repr__(self) -> str:
        missing = f"; {self.missing}" if self.missing else ""
        return f"<Explanation: {len(self.sentences)} sentences on {len(self)} topics{missing}>"

    def _repr_html_(self) -> str:
        return "".join(html_page(topic, html_list(list(group.values()))) for topic, group in self.items())


@public
def explain(run: Run | str | os.PathLike[str]) -> Explanation:
    """Explain a run: its certainty, the hit rate, the parts of TTFT, and the settings without an effect.

    Args:
        run: A run, or its directory.

    Returns:
        Sentences by topic and name; sentences whose cause is absent are left out.

    Raises:
        UsageError: The directory holds no finished run.
        InputOutputError: A file of the run was changed.
    """
    opened = run if isinstance(run, Run) else load_run(Path(run))
    missing = find_trace(opened.finished)
    said = certain_figures(opened.finished) | explain_case(Case(opened.finished))
    return Explanation(said, missing)
