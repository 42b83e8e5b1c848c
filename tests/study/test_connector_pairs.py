"""Published pairs with and without a connector: the page has the simulated figures, and what they share."""

import pytest
from support.connector_pairs import PAIRS, ladder, served
from support.docs_data import figures


def judged(stated: list[list[float]], simulated: list[float]) -> None:
    published, shown = stated
    assert shown[:2] == pytest.approx(simulated[:2], abs=6e-4)
    assert shown[2] == pytest.approx(simulated[2], abs=6e-4)
    assert (shown[2] > 1) == (published[2] > 1)


@pytest.mark.parametrize("pair", PAIRS)
def test_the_page_has_a_pairs_figures_and_their_sign_is_the_published_one(pair):
    judged(figures("connector-pairs", pair), served(pair))


def test_the_page_has_the_figures_of_the_guides_ladder(tmp_path):
    for rate, found in zip((10, 20), ladder(tmp_path), strict=True):
        judged(figures("connector-pairs", f"the same after the lower rate, {rate} requests/s"), found)
