"""The specification with rails and submission piece by piece, which no seed asks for: models of the core's rules.

Where an edge has several channels (rails), a transfer takes the one that it would wait for least. Where the
CPU submits pieces, a job's bytes wait until all of its pieces are submitted, after those of earlier jobs.
"""

from collections.abc import Sequence
from typing import Any

from kvcache_sim.base.units import LAST_NS
from kvcache_sim.engine import NO_MACHINE, TRANSFER, beyond_time
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings
from kvcache_sim.spec.channels import Channel, Expected, FifoChannel, LayeredChannel, LayeredJob, Link, Size
from kvcache_sim.spec.mover import Mover
from kvcache_sim.spec.simulator import Machine, Simulator

from support.product.spec import Transmission


class _Submitted(Link):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        #: Time at which the CPU has submitted all queued pieces.
        self.submitted_ns = 0

    def submit_ns(self, pieces: int) -> int:
        """Return the CPU's time to submit the given number of pieces, in ns."""
        if pieces * self.settings.piece_submit_ns > LAST_NS:
            raise beyond_time()
        return pieces * self.settings.piece_submit_ns

    def wait_ns(self, now_ns: int, pieces: int = 0) -> int:
        """Return how long a job waits for earlier ones, and for its submission."""
        raise NotImplementedError

    def expected_ns(self, size: Size, now_ns: int) -> Expected:
        first, last = super().expected_ns(size, now_ns)
        submission = self.wait_ns(now_ns, size[1]) - self.wait_ns(now_ns)
        return Expected(first + submission, last + submission)


class SubmittedFifo(_Submitted, FifoChannel):
    """A channel whose jobs go one after another, each once it is submitted."""

    def wait_ns(self, now_ns: int, pieces: int = 0) -> int:
        submitted = max(self.submitted_ns - now_ns, 0) + self.submit_ns(pieces)
        return max(FifoChannel.wait_ns(self, now_ns), submitted)

    def transmit(self, size: Size, now_ns: int, feed: Transmission | None = None) -> Transmission:
        if size[0]:
            submit, asked = self.submit_ns(size[1]), now_ns if feed is None else feed.first_layer_ns
            self.submitted_ns = max(asked, self.submitted_ns) + submit
            self.queued_ns -= submit
        return super().transmit(size, now_ns, feed)


class SubmittedLayered(_Submitted, LayeredChannel):
    """A channel that serves the layers of jobs that are submitted."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._unsubmitted: set[LayeredJob] = set()

    def wait_ns(self, now_ns: int, pieces: int = 0) -> int:
        own = self.submit_ns(pieces)
        submitted = max(self.submitted_ns - now_ns, 0) + own if own else 0
        return max(LayeredChannel.wait_ns(self, now_ns), submitted)

    def _can_send(self, job: LayeredJob) -> bool:
        return job not in self._unsubmitted and super()._can_send(job)

    def _enter(self, job: LayeredJob, size: Size) -> None:
        own = self.submit_ns(size[1])
        if own:
            self.submitted_ns = max(self.engine.now_ns, self.submitted_ns) + own
            self._unsubmitted.add(job)
            job.requested_ns += own
            self.engine.schedule(self.submitted_ns, TRANSFER, NO_MACHINE, self._on_submitted, job)
        super()._enter(job, size)

    def _on_submitted(self, job: LayeredJob) -> None:
        self._account()
        self._unsubmitted.remove(job)
        self._serve()


class RailMover(Mover):
    """A mover that chooses among the channels of an edge."""

    rails: dict[str, Sequence[Channel]]

    def channel(self, edge: str) -> Channel:
        rails, now = self.rails.get(edge, (self.channels[edge],)), self.engine.now_ns
        return min(rails, key=lambda channel: channel.wait_ns(now))


class RailSimulator(Simulator):
    """A cluster whose edges may have several channels."""

    def _build(self, number: int, own: MachineSettings) -> Machine:
        machine: Any = super()._build(number, own)
        chosen = own.edge_rails if self.settings.movement.channel_choice == "emptiest" else {}
        machine.mover.rails = {
            edge: [self.channels[name] for name in names] for edge, names in chosen.items()
        }
        built: Machine = machine
        return built


def has_rails_or_submission(settings: ClusterSettings) -> bool:
    """Return True if settings need this model."""
    networks = settings.network.default, settings.handover.network.default
    every = [*settings.channels.values(), *networks]
    rails = settings.movement.channel_choice == "emptiest"
    return rails or any(channel.piece_submit_ns for channel in every)
