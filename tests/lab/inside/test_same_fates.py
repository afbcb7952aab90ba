"""netem.impair against the kernel's netem: the same profile, the same packets at the same times, the same fates.

Single fates are chance, so it is their distributions that are compared. The kernel is measured once; the model is run
`RUNS` times on the very times at which the packets were sent, each time with another seed. If both are the same, the
measured loss, bursts, duplicates, reordering and distribution of delays are one more draw among the model's, and the
share of the model's draws that are as far out is a p-value (a Monte Carlo test: Hope, "A simplified Monte Carlo
significance test procedure", JRSS B 30, 1968). It needs no independence, so packets may well wait for each other.

Delays are compared by Kolmogorov and Smirnov's largest difference of two distribution functions, the one shifted by
`TOLERANCE` either way, within which the guest's clock blurs a delay. The host's scheduler makes some packets later,
and none earlier.

Where both differ by design (see netem.kernel.tc) is told and measured at the end of this file.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from netem.impair import Impairment
from netem.measurement.intervals import binomial_range
from netem.measurement.tally import UDP_HEADERS, train_counts
from netem.profile import FULL_FRAME, GilbertElliott, LinkProfile
from tests.lab.inside.chance import by_chance
from tests.lab.inside.stage import Stage
from tests.lab.inside.stream import Arrival, Stream, overhead, stream

Note = Callable[[str, object, object], None]
DOWN = ("cloud", "device-0")  # a device with this link alone, which may duplicate on any kernel
RUNS = 249  # 2 / 250, the least p-value of a count, is significant
REFERENCE = 20  # runs whose delays together are the model's distribution
TOLERANCE = 0.0003  # s
LATENCY = 0.005
BLURRED = 0.1  # of the packets may come later than that: the host takes the guest's processor away for milliseconds
BLURRED_COUNT = 2  # so far may a count be off that is no chance in the model (a full buffer)
SIGNIFICANT = 0.01
TRIES = 3  # by chance alone, one statistic in a million is significant each time
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
    for attempt in range(TRIES):
        # What sending, timers and clocks take on a delayed link; how exact a latency is, is measured elsewhere.
        stage.shape(*DOWN, LinkProfile(latency=LATENCY))
        bare = overhead(stage, *DOWN, spacing) - LATENCY
        stage.shape(*DOWN, profile)
        gaps = [draw.uniform(0, 2 * spacing) for _ in range(count)]
        measured = stream(stage, *DOWN, count=count, gaps=gaps, size=size)
        found = p_values(profile, measured, bare, seed=1000 * attempt)
        if min(found.values()) >= SIGNIFICANT:
            break
    note(f"{name}: p-values", f">= {SIGNIFICANT}", ", ".join(f"{key} {value:.3f}" for key, value in found.items()))
    quantiles = np.quantile(np.array(measured.delays) - bare, [0.0, 0.05, 0.5, 0.9, 0.95, 0.99, 1.0])
    assert min(found.values()) >= SIGNIFICANT, (found, measured.counts(), modelled(profile, measured, 1)[0], quantiles)


def p_values(profile: LinkProfile, measured: Stream, bare: float, seed: int) -> dict[str, float]:
    """Of every statistic: the share of the model's runs that are as far out as the kernel."""
    runs = [modelled(profile, measured, seed + run) for run in range(RUNS + REFERENCE)]
    counts = measured.counts()
    values = {}
    for key in ("received", "bursts", "duplicated", "reordered"):
        model = np.array([found[key] for found, _ in runs[:RUNS]])
        if counts[key] or model.any():
            fewer, more = share(model <= counts[key] + BLURRED_COUNT), share(model >= counts[key] - BLURRED_COUNT)
            values[key] = min(1.0, 2 * min(fewer, more))
    reference = Reference(np.concatenate([delays for _, delays in runs[RUNS:]]))
    distances = np.array([reference.distance(delays) for _, delays in runs[:RUNS]])
    values["delays"] = share(distances >= reference.distance(np.array(measured.delays) - bare, BLURRED))
    return values


def share(as_far: np.ndarray) -> float:
    return (1 + int(as_far.sum())) / (1 + len(as_far))


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

    def distance(self, delays: np.ndarray, late: float = 0.0) -> float:
        """Largest difference of two distribution functions after shifting them towards each other by TOLERANCE.

        A share `late` of the delays may be longer than they should be at no cost.
        """
        delays = np.sort(delays)
        before = np.searchsorted(delays, self._points - TOLERANCE, side="right") / len(delays)
        behind = np.searchsorted(delays, self._points + TOLERANCE, side="right") / len(delays)
        return float(max(0.0, (before - self._below).max(), (self._up_to - behind).max() - late))


@pytest.mark.parametrize(
    ("asked", "other"),
    [
        (LinkProfile(latency=0.01), LinkProfile(latency=0.0105)),
        (LinkProfile(latency=0.01, jitter=0.002), LinkProfile(latency=0.01, jitter=0.003)),
        (LinkProfile(latency=0.01, jitter=0.002), LinkProfile(latency=0.01, jitter=0.0035, distribution="uniform")),
        (LinkProfile(loss=0.05), LinkProfile(loss=0.08)),
        (LinkProfile(loss=GilbertElliott(p=0.02, r=0.3)), LinkProfile(loss=0.0625)),
        (LinkProfile(rate=5e6), LinkProfile(rate=4.8e6)),
    ],
    ids=str,
)
def test_other_profiles_are_distinguished(asked: LinkProfile, other: LinkProfile) -> None:
    """The comparison is worth something: of packets that crossed another link it says so."""
    sent = [0.0023 * number for number in range(1500)]
    link = Impairment(other, 1)
    fates = [(number, delivery[0]) for number, at in enumerate(sent) for delivery in link.offer(at, FULL_FRAME)]
    arrivals = [Arrival(number, at - sent[number], at) for number, at in sorted(fates, key=lambda fate: fate[1])]
    assert min(p_values(asked, Stream(sent, FULL_FRAME, arrivals), 0.0, seed=2).values()) < SIGNIFICANT


class TestDifferencesByDesign:
    @by_chance
    def test_a_packet_drawn_for_loss_and_duplication_arrives_once(self, stage: Stage, note: Note) -> None:
        profile = LinkProfile(loss=0.4, duplicate=0.5)
        stage.shape(*DOWN, profile)
        measured = stream(stage, *DOWN, count=1000, spacing=EVEN)
        # netem loses a number only if it was drawn for loss and not for duplication: 0.4 x 0.5; the model: 0.4.
        low, high = binomial_range(1000, 0.2)
        assert low <= measured.lost <= high
        lost = 1000 - modelled(profile, measured, 1)[0]["received"]
        low, high = binomial_range(1000, 0.4)
        assert low <= lost <= high
        note("loss 40 %, duplicate 50 %: lost of 1000, kernel and model", "200, 400", f"{measured.lost}, {lost}")

    def test_a_saturated_link_shows_no_jitter(self, stage: Stage, note: Note) -> None:
        profile = LinkProfile(latency=0.02, jitter=0.005, rate=2e6, buffer=1.0)
        stage.shape(*DOWN, profile)
        measured = stream(stage, *DOWN, count=200, spacing=0.003, size=FULL)  # a frame needs 6 ms
        _, delays = modelled(profile, measured, 1)
        # Quartiles, since a guest that stands still for a moment makes one long gap and some short ones.
        kernel, model = (
            float(np.subtract(*np.quantile(np.diff(times)[100:], [0.75, 0.25])))
            for times in ([arrival.time for arrival in measured.arrivals], delays + np.array(measured.sent))
        )
        assert kernel < 0.0005 < 0.001 < model
        note(
            "gaps under jitter 5 ms at saturation, quartiles apart (ms)",
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
