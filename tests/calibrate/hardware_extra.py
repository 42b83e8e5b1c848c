"""The extra ``hardware``: what needs its library is skipped, with this reason, where it is not installed."""

from importlib.util import find_spec

import pytest

needs_library = pytest.mark.skipif(
    find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is not installed (extra hardware)"
)
