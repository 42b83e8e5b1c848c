"""Gateways' rules that the core evaluates: LMetric, Dynamo's two-tier cost, and its adaptive controllers."""

from __future__ import annotations

from kvcache_sim import _core
from kvcache_sim.base.rng import stream
from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.sequence import Arrival


class _InCore:
    """A rule of the core over the prefixes on each machine's GPU and the router's own count of open requests.

    Blocks on lower tiers count nothing. Of equal machines one is drawn from the stream ``router``. Cost: one
    lookup on all machines.
    """

    def __init__(self, view: RouterView, rule: _core.GatewayRule, class_blocks: int = 0) -> None:
        self._view, self._rule = view, rule
        self._class_tokens = class_blocks * view.block_size_tokens
        self._draw = stream(view.seed, "router")

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the rule, or one of its equal machines."""
        view = self._view
        prompt = sequence.prompt_num_tokens, view.block_size_tokens
        on_gpu, active = self._on_gpu(sequence), view.requests()
        equal = self._rule.choose(prompt, self._class_of(sequence), on_gpu, active, view.now_ns())
        return equal[0] if len(equal) == 1 else equal[int(self._draw.integers(len(equal)))]

    def _on_gpu(self, sequence: Arrival) -> list[int]:
        return self._view.look(sequence).gpu_blocks

    def _class_of(self, sequence: Arrival) -> int | None:
        """Return the name of the prompt's first blocks, None without classes or for a shorter prompt."""
        tokens, prompts = self._class_tokens, self._view.prompts
        if not tokens or prompts is None or sequence.prompt_num_tokens < tokens:
            return None
        return prompts.head(sequence, tokens)


class Lmetric(_InCore):
    """The least max(1, uncached prompt tokens) × (open requests + 1), the first of equals.

    A class of prompts is its first ``class_prefix_blocks``. If its share of the last ``window_requests``
    choices is above the share of machines that have these blocks, and twice as many choices in a row as there
    are such machines went to them, the others serve it (``hotspot_detection``).

    Why: A product needs no weights; requests and tokens scale each other.
    Example: 500 uncached × 4 requests is 2,000; 1,500 × 1 is 1,500 and wins.
    Source: arXiv 2603.15202 in the form of lib/router-plugins/builtin/src/lmetric.rs of ai-dynamo/dynamo at
    6dcfceb3. llm-d's form, without the floor and with lower tiers, is the scorer ``lmetric`` of ``weighted``.
    """

    needs = Needs(
        caches=True,
        sent_blocks=True,
        keys=("hotspot_detection", "class_prefix_blocks", "window_requests"),
    )

    def __init__(self, view: RouterView) -> None:
        settings = view.settings
        blocks = settings.class_prefix_blocks if settings.hotspot_detection else 0
        super().__init__(view, _core.GatewayRule.lmetric(blocks, settings.window_requests), blocks)


class TwoTier(_InCore):
    """The least loaded machine if loads are uneven; else the least loaded holder of a long enough prefix.

    Loads are uneven if they differ by more than ``balance_abs_threshold`` requests and by more than the
    factor ``balance_rel_threshold``. A prefix is long enough above the share ``cache_threshold`` of the
    prompt's blocks. Without either, the least loaded machine. The first of equals.

    Why: Two plain cases in place of a weighted sum: even loads follow prefixes, uneven loads do not.
    Example: Even loads, 70 % of the prompt on machine 2, a threshold of 0.5: machine 2.
    Source: dynamo-two-tier-cost-fn, lib/router-plugins/builtin/src/two_tier_cost_fn.rs of ai-dynamo/dynamo at
    0c3850ca.
    """

    needs = Needs(
        caches=True,
        keys=("balance_abs_threshold", "balance_rel_threshold", "cache_threshold"),
        defaults={"balance_abs_threshold": 32, "balance_rel_threshold": 1.1, "cache_threshold": 0.5},
    )

    def __init__(self, view: RouterView) -> None:
        settings = view.settings
        thresholds = settings.balance_abs_threshold, settings.balance_rel_threshold, settings.cache_threshold
        super().__init__(view, _core.GatewayRule.two_tier(*thresholds))


class TwoTierAdaptive(_InCore):
    """The least (1 − w) × uncached share + w × relative load; w follows the imbalance of loads by a sigmoid.

    Relative load: (open requests − fewest) / (``load_scale`` + most − fewest). w, from 0.1 to 0.9, or to 0.5
    if all are busy, changes at most once per ``update_interval``. The first of equals.

    Why: Load matters more, the less even loads are: the weight follows.
    Example: w 0.1: a full hit at relative load 0.5 costs 0.05, no hit on an idle machine 0.9.
    Source: the adaptive mode of dynamo-two-tier-cost-fn at 13c11ee8 (pull request 14596).
    """

    needs = Needs(
        caches=True, clock=True, keys=("update_interval", "load_scale"), defaults={"load_scale": 32.0}
    )

    def __init__(self, view: RouterView) -> None:
        settings = view.settings
        super().__init__(
            view, _core.GatewayRule.two_tier_adaptive(settings.update_interval_ns, settings.load_scale)
        )


class Aimd(_InCore):
    """The cost of ``dynamo-two-tier-adaptive`` with w of a controller, ties at random.

    The smoothed imbalance is the coefficient of variation of the open requests over its largest value, damped
    by ``load_scale``. Above 0.35 w rises by 0.1 per ``update_interval``; below half of that its excess over
    0.1 falls by a tenth. ``controller: sigmoid`` moves w towards a sigmoid of the imbalance. A decode pool
    has no uncached share.

    Why: Additive increase, multiplicative decrease: even loads let the weight of load fall slowly.
    Example: An imbalance of 0.4 raises w from 0.3 to 0.4 at the next update.
    Source: examples/router/custom-policy-example/adaptive of ai-dynamo/dynamo at 2343b33d (pull request
    14531, closed).
    """

    needs = Needs(caches=True, clock=True, keys=("update_interval", "load_scale", "controller"))

    def __init__(self, view: RouterView) -> None:
        settings = view.settings
        sigmoid = settings.controller == "sigmoid"
        super().__init__(
            view, _core.GatewayRule.aimd(settings.update_interval_ns, settings.load_scale, sigmoid)
        )

    def _on_gpu(self, sequence: Arrival) -> list[int]:
        return [0] * len(self._view.replicas) if self._view.decodes else super()._on_gpu(sequence)
