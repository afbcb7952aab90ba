"""netem.impair against the kernel's netem: the same profile, the same packets at the same times, the same fates.

Single fates are chance, so it is their distributions that are compared. The kernel is measured once; the model is run
`RUNS` times on the very times at which the packets were sent, each time with another seed. If both are the same, the
measured loss, bursts, duplicates, reordering and distribution of delays are one more draw among the model's, and lie
within `MOST` standard deviations of their mean. It needs no independence, so packets may well wait for each other.

Delays are compared by Kolmogorov and Smirnov's largest difference of two distribution functions, the one shifted by
`EXACT` either way.

Where both differ by design (see netem.kernel.tc) is told and measured at the end of this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from netem.impair import Impairment
from netem.measurement.tally import UDP_HEADERS, train_counts
from netem.profile import FULL_FRAME, GilbertElliott, LinkProfile
from tests.lab.inside.chance import EXACT, likely
from tests.lab.inside.stage import Stage
from tests.lab.inside.stream import Arrival, Stream, stream

Note = Callable[[str, object, object], None]
DOWN = ("cloud", "device-0")  # a device with this link alone, which may duplicate on any kernel
LEAST = 0.005
"""Of the packets: a standard deviation of distances is not less, as one that just finds room in the kernel's buffer may
find none in the model's, and delays those behind it."""

RUNS = 60  # by which a standard deviation is known to 9 %
REFERENCE = 20  # runs whose delays together are the model's distribution
MOST = 6.0
"""Standard deviations. Of counts, one in 500 million is beyond; of distances, whose distribution has a longer tail, one
in some ten thousand."""

FULL = FULL_FRAME - UDP_HEADERS

EVEN = 0.0005
SPARSE = 0.006
PROFILES = {
    "latency": (LinkProfile(latency=0.01), EVEN, 60),
    "jitter normal": (LinkProfile(latency=0.01, jitter=0.0015), SPARSE, 60),
    "jitter uniform": (LinkProfile(latency=0.01, jitter=0.003, distribution="uniform"), SPARSE, 60),
    "jitter pareto": (LinkProfile(latency=0.01, jitter=0.001, distribution="pareto"), SPARSE, 60),
    "jitter paretonormal": (LinkProfile(latency=0.01, jitter=0.001, distribution="paretonormal"), SPARSE, 60),
    "jitter dense": (LinkProfile(latency=0.01, jitter=0.004), EVEN, 60),
    "jitter above latency": (LinkProfile(latency=0.004, jitter=0.006), 0.002, 60),
    "loss 30%": (LinkProfile(latency=0.003, loss=0.3), EVEN, 60),
    "bursts in part": (LinkProfile(loss=GilbertElliott(p=0.05, r=0.2, loss_good=0.02, loss_bad=0.7)), EVEN, 60),
    "rate, 70 % busy": (LinkProfile(latency=0.005, rate=5e6), 0.0035, FULL),
    "rate, overloaded": (LinkProfile(rate=4e6, buffer_bytes=15 * FULL_FRAME), 0.002, FULL),
    "duplicate": (LinkProfile(latency=0.002, duplicate=0.1), EVEN, 60),
    "corrupt": (LinkProfile(latency=0.002, corrupt=0.05), EVEN, 60),
    "reorder": (LinkProfile(latency=0.02, reorder=0.1), 0.001, 60),
    "mobile": (LinkProfile(latency=0.02, jitter=0.005, loss=0.01, rate=20e6), 0.002, 600),
    "all but rate": (LinkProfile(latency=0.01, jitter=0.002, loss=0.05, corrupt=0.01, reorder=0.05), 0.002, 60),
}


@pytest.mark.parametrize("name", PROFILES)
def test_the_kernel_does_what_the_model_does(stage: Stage, note: Note, name: str) -> None:
    profile, spacing, size = PROFILES[name]
    draw = Random(name)
    count = 600 if spacing > EVEN else 2000
    stage.shape(*DOWN, profile)
    gaps = [draw.uniform(0, 2 * spacing) for _ in range(count)]
    measured = stream(stage, *DOWN, count=count, gaps=gaps, size=size)
    found = deviations(profile, measured)
    note(f"{name}: standard deviations", f"<= {MOST:g}", ", ".join(f"{key} {far:.2f}" for key, far in found.items()))
    quantiles = np.quantile(np.array(measured.delays), [0.0, 0.05, 0.5, 0.9, 0.95, 0.99, 1.0])
    assert max(found.values()) <= MOST, (found, measured.counts(), modelled(profile, measured, 1)[0], quantiles)


def deviations(profile: LinkProfile, measured: Stream) -> dict[str, float]:
    """By how many standard deviations of the model's runs the kernel differs from their mean, in each statistic. The
    distance of delays only counts if it is larger."""
    runs = [modelled(profile, measured, seed) for seed in range(RUNS + REFERENCE)]
    counts = measured.counts()
    found = {}
    for key in ("received", "bursts", "duplicated", "reordered"):
        model = np.array([count[key] for count, _ in runs[:RUNS]])
        if counts[key] or model.any():
            found[key] = abs(deviation(counts[key], model, 0.0))
    reference = Reference(np.concatenate([delays for _, delays in runs[RUNS:]]))
    distances = np.array([reference.distance(delays) for _, delays in runs[:RUNS]])
    distance = reference.distance(np.array(measured.delays))
    found["delays"] = max(0.0, deviation(distance, distances, LEAST))
    return found


def deviation(value: float, model: np.ndarray, least: float) -> float:
    """``least``: of a standard deviation. In a model without chance it is 0."""
    difference = value - float(model.mean())
    if difference == 0:
        return 0.0
    spread = max(float(model.std()), least)
    return difference / spread if spread else math.inf


def modelled(profile: LinkProfile, measured: Stream, seed: int) -> tuple[dict[str, int], np.ndarray]:
    """What the model makes of the packets that were sent: the counts of the train, and the delays."""
    link = Impairment(profile, seed)
    arrivals = sorted(
        (at, number)
        for number, sent in enumerate(measured.sent)
        for at, corrupt in link.offer(sent, measured.frame)
        if not corrupt  # the receiver's checksum would take it away
    )
    counts = train_counts([number for _, number in arrivals], len(measured.sent))
    return counts, np.array([at - measured.sent[number] for at, number in arrivals])


class Reference:
    """The model's distribution of delays, by its quantiles."""

    def __init__(self, delays: np.ndarray) -> None:
        delays = np.sort(delays)
        self._points = np.quantile(delays, np.linspace(0, 1, 401))
        self._below = np.searchsorted(delays, self._points, side="left") / len(delays)
        self._up_to = np.searchsorted(delays, self._points, side="right") / len(delays)

    def distance(self, delays: np.ndarray) -> float:
        """Largest difference of two distribution functions after shifting them towards each other by EXACT."""
        delays = np.sort(delays)
        before = np.searchsorted(delays, self._points - EXACT, side="right") / len(delays)
        behind = np.searchsorted(delays, self._points + EXACT, side="right") / len(delays)
        return float(max(0.0, (before - self._below).max(), (self._up_to - behind).max()))


@pytest.mark.parametrize(
    ("asked", "other"),
    [
        (LinkProfile(latency=0.01), LinkProfile(latency=0.01001)),
        (LinkProfile(latency=0.01, jitter=0.002), LinkProfile(latency=0.01, jitter=0.003)),
        (LinkProfile(latency=0.01, jitter=0.002), LinkProfile(latency=0.01, jitter=0.0045, distribution="uniform")),
        (LinkProfile(loss=0.05), LinkProfile(loss=0.08)),
        (LinkProfile(loss=GilbertElliott(p=0.02, r=0.3)), LinkProfile(loss=0.0625)),
        (LinkProfile(rate=5e6), LinkProfile(rate=4.8e6)),
    ],
    ids=str,
)
def test_other_profiles_are_distinguished(asked: LinkProfile, other: LinkProfile) -> None:
    """The comparison is worth something: of packets that crossed another link it says so."""
    sent = [0.0023 * number for number in range(3000)]
    link = Impairment(other, 1)
    fates = [(number, delivery[0]) for number, at in enumerate(sent) for delivery in link.offer(at, FULL_FRAME)]
    arrivals = [Arrival(number, at - sent[number], at) for number, at in sorted(fates, key=lambda fate: fate[1])]
    assert max(deviations(asked, Stream(sent, FULL_FRAME, arrivals)).values()) > MOST


class TestDifferencesByDesign:
    def test_a_packet_drawn_for_loss_and_duplication_arrives_once(self, stage: Stage, note: Note) -> None:
        profile = LinkProfile(loss=0.4, duplicate=0.5)
        stage.shape(*DOWN, profile)
        measured = stream(stage, *DOWN, count=1000, spacing=EVEN)
        # netem loses a number only if it was drawn for loss and not for duplication: 0.4 x 0.5; the model: 0.4.
        low, high = likely(1000, 0.2)
        assert low <= measured.lost <= high
        lost = 1000 - modelled(profile, measured, 1)[0]["received"]
        low, high = likely(1000, 0.4)
        assert low <= lost <= high
        note("loss 40 %, duplicate 50 %: lost of 1000, kernel and model", "200, 400", f"{measured.lost}, {lost}")

    def test_a_saturated_link_shows_no_jitter(self, stage: Stage, note: Note) -> None:
        profile = LinkProfile(latency=0.02, jitter=0.005, rate=2e6, buffer=1.0)
        stage.shape(*DOWN, profile)
        measured = stream(stage, *DOWN, count=200, spacing=0.003, size=FULL)  # a frame needs 6 ms
        _, delays = modelled(profile, measured, 1)
        kernel, model = (
            float(np.std(np.diff(times)[100:]))
            for times in ([arrival.time for arrival in measured.arrivals], delays + np.array(measured.sent))
        )
        assert kernel < EXACT < 0.001 < model
        note(
            "gaps under jitter 5 ms at saturation, standard deviation (ms)",
            "0, >1",
            f"{kernel * 1e3:.2f}, {model * 1e3:.2f}",
        )

    def test_reordered_packets_skip_the_rate(self, stage: Stage, note: Note) -> None:
        profile = LinkProfile(latency=0.01, reorder=0.5, rate=1e6, buffer=1.0)
        stage.shape(*DOWN, profile)
        measured = stream(stage, *DOWN, count=40, spacing=0, size=FULL)
        early = sum(delay < 0.01 for delay in measured.delays)
        _, delays = modelled(profile, measured, 1)
        # A frame needs 12 ms of the rate, so in the model none arrives earlier.
        assert early > 5
        assert delays.min() > 0.012
        note("at 1 Mbit/s, sent at once by reorder 50 % of 40, kernel and model", "20, 0", f"{early}, 0")
