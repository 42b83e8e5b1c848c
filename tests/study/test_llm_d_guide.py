"""llm-d's guide on 16 H100: the page has the simulated figures of each router, and the measured ones."""

import pytest
from support.docs_data import figures
from support.llm_d_guide import ROUTERS, served


def changes(without: list[float], tier: list[float]) -> list[float]:
    return [100 * (tier[at] / without[at] - 1) for at in (0, 2, 4)]


@pytest.mark.parametrize("router", ROUTERS)
def test_the_page_has_each_routers_figures(router):
    without, tier = served(router, False), served(router, True)
    stated = figures("offload-guide", router)
    assert stated[0] == [pytest.approx(value, abs=0.06) for value in without]
    assert stated[1] == [pytest.approx(value, abs=0.06) for value in tier]
    assert stated[2] == [pytest.approx(value, abs=0.6) for value in changes(without, tier)]


def test_the_measured_changes_lie_between_the_two_weights_of_the_guides_scorers():
    measured = figures("offload-guide", "measured")[2]
    low, high = (figures("offload-guide", f"the guide's scorers, prefix {n}")[2] for n in (1, 2))
    assert low[0] >= measured[0] >= high[0]
    assert low[1] >= measured[1] >= high[1]
    assert low[2] <= measured[2] <= high[2]
