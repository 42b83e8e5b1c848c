"""Number of examples of the property tests: the same few in every run of the suite, new ones on demand.

``KVSIM_EXAMPLES=5000 pytest tests/core/test_store_machine.py`` tries 5,000 new ones a test; the last line of the
report names the seed that tries the same ones again.
"""

import os
from typing import Any

from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers

#: Number of requested new examples; 0: the frozen examples.
NEW_EXAMPLES = int(os.environ.get("KVSIM_EXAMPLES", "0"))
#: Longest time to shrink a failing example; the smallest example by then is shown.
SHRINKING_S = 45


def register() -> None:
    """Make the profile of this suite the default of every property test."""
    settings.register_profile(
        "kvsim",
        max_examples=NEW_EXAMPLES or 100,
        deadline=None,
        derandomize=not NEW_EXAMPLES,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
        report_multiple_bugs=False,
        print_blob=True,
    )
    settings.load_profile("kvsim")
    # Hypothesis also draws constants of the modules imported so far: a seed would have other examples elsewhere.
    vars(providers)["is_local_module_file"] = lambda _: False


def examples(frozen: int, **changes: Any) -> settings:
    """Return the settings of a test that tries ``frozen`` examples, or the requested number of new ones."""
    return settings(max_examples=NEW_EXAMPLES or frozen, **changes)
