"""A profile says what is wrong with it, and its written form is exact."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from netem.errors import ProfileError
from netem.profile import DISTRIBUTIONS, FULL_FRAME, GilbertElliott, LinkProfile
from tests.texts import containing

fractions = st.floats(min_value=0, max_value=1)
durations = st.floats(min_value=0, max_value=1e4)


@st.composite
def profiles(draw: st.DrawFn) -> LinkProfile:
    chains = st.builds(
        GilbertElliott,
        p=fractions,
        r=st.floats(min_value=0, max_value=1, exclude_min=True),
        loss_good=fractions,
        loss_bad=fractions,
    )
    rate = draw(st.none() | st.floats(min_value=1, max_value=1e12))
    buffers: dict[str, Any] = {}
    if rate is not None:
        buffers = draw(
            st.just({})
            | st.fixed_dictionaries({"buffer": durations})
            | st.fixed_dictionaries({"buffer_bytes": st.integers(min_value=0, max_value=2**40)})
        )
    latency = draw(durations)
    return LinkProfile(
        latency=latency,
        jitter=draw(durations),
        distribution=draw(st.sampled_from(DISTRIBUTIONS)),
        loss=draw(fractions | chains),
        rate=rate,
        duplicate=draw(fractions),
        corrupt=draw(fractions),
        reorder=draw(fractions) if latency else 0.0,
        drop_above=draw(st.none() | st.integers(min_value=576, max_value=1500)),
        **buffers,
    )


@given(profiles())
def test_written_form_is_exact_and_plain_json(profile: LinkProfile) -> None:
    mapping = json.loads(json.dumps(profile.to_mapping()))
    assert LinkProfile.from_mapping(mapping) == profile


def test_a_limit_of_sizes_is_merged_and_removed() -> None:
    narrow = LinkProfile().merged({"drop_above": "1200"})  # as the command line and tables give it
    assert narrow == LinkProfile(drop_above=1200)
    assert narrow.needs_packet_truth
    assert narrow.describe() == "drops packets above 1200 bytes"
    assert narrow.merged({"loss": "1%"}).drop_above == 1200
    assert narrow.merged({"drop_above": None}) == LinkProfile()


@given(profiles())
def test_every_profile_can_be_described(profile: LinkProfile) -> None:
    assert profile.describe()


def test_written_form() -> None:
    mapping = {"latency": "40ms", "jitter": "5ms", "loss": "0.5%", "rate": "50mbit", "buffer": "50ms"}
    profile = LinkProfile.from_mapping(mapping)
    assert profile == LinkProfile(latency=0.04, jitter=0.005, loss=0.005, rate=50e6, buffer=0.05)
    assert profile.to_mapping() == mapping
    assert profile.describe() == "40ms ±5ms, loss 0.5%, 50mbit, buffer 50ms"


def test_a_size_as_buffer() -> None:
    profile = LinkProfile.from_mapping({"rate": "1mbit", "buffer": "64kb"})
    assert (profile.buffer, profile.buffer_bytes) == (None, 64_000)


def test_gilbert_elliott_written_form() -> None:
    profile = LinkProfile.from_mapping({"loss": {"gilbert-elliott": {"p": "2%", "r": "30%"}}})
    assert profile.loss == GilbertElliott(p=0.02, r=0.3, loss_good=0.0, loss_bad=1.0)
    # 0.02 / (0.02 + 0.3) = 1/16; 1 / 0.3 = 3.33
    assert profile.describe() == containing("loss 6.25% in bursts", "3.33 packets")


def test_gilbert_elliott_means() -> None:
    chain = GilbertElliott(p=0.1, r=0.4, loss_good=0.01, loss_bad=0.5)
    # Stationary bad state 0.1 / 0.5 = 0.2: loss 0.8 * 0.01 + 0.2 * 0.5 = 0.108; a stay in it lasts 1 / 0.4 packets.
    assert chain.mean_loss == pytest.approx(0.108)
    assert chain.mean_burst == 2.5
    assert LinkProfile(loss=chain).mean_loss == pytest.approx(0.108)


def test_nothing_asked_is_nothing_done() -> None:
    profile = LinkProfile()
    assert profile.describe() == "unimpaired"
    assert profile.to_mapping() == {}
    assert not profile.needs_packet_truth
    assert profile.buffer_limit is None


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"latncy": "40ms"}, "unknown key 'latncy'; did you mean 'latency'\\? allowed: latency, jitter"),
        ({"bandwidth": "1mbit"}, "unknown key 'bandwidth'; allowed: .*rate"),
        ({"buffer_bytes": "64kb"}, "did you mean 'buffer'"),
        ({"latency": 40}, "latency: 40 has no unit"),
        ({"latency": None}, "latency: nothing is not a duration"),
        ({"rate": "10Mbps"}, "rate: '10Mbps'.*write 10mbit"),
        ({"rate": 0}, "rate: must be at least 1bit"),
        ({"loss": "120%"}, "loss: '120%' is more than 100%"),
        ({"loss": 1}, "loss: 1 has no unit"),
        ({"duplicate": 0.1}, r"duplicate: 0.1 has no unit"),
        ({"corrupt": 1.0}, "corrupt: 1.0 has no unit"),
        ({"latency": "1ms", "reorder": "0.5"}, "reorder: '0.5' has no unit"),
        ({"loss": {"gilbert-elliott": {"p": 0.02, "r": "30%"}}}, "gilbert-elliott: p: 0.02 has no unit"),
        ({"loss": {"gilbert-elliott": {"p": "2%", "r": 1}}}, "gilbert-elliott: r: 1 has no unit"),
        ({"loss": {"gilbert-elliott": {"p": "2%", "r": "3%", "loss_bad": 1}}}, "loss_bad: 1 has no unit"),
        ({"loss": {"bernoulli": 0.1}}, "loss: unknown key 'bernoulli'; allowed: gilbert-elliott"),
        ({"loss": {"gilbert-elliott": "2%"}}, "gilbert-elliott: {p: 2%, r: 30%}"),
        ({"loss": {"gilbert-elliott": {"p": "2%"}}}, "r is missing"),
        ({"loss": {"gilbert-elliott": {"p": "2%", "r": "30"}}}, "gilbert-elliott: r: .*write a percentage: 30%"),
        ({"loss": {"gilbert-elliott": {"p": "2%", "r": "0%"}}}, "r must be above 0%"),
        ({"loss": {"gilbert-elliott": {"p": "2%", "q": "0%"}}}, "unknown key 'q'"),
        ({"distribution": "gauss"}, r"distribution: 'gauss' is not.*normal"),
        ({"distribution": 3}, "distribution: 3 is not one of"),
        ({"buffer": "50ms"}, "buffer: needs a rate"),
        ({"rate": "1mbit", "buffer": "50"}, r"buffer: '50' is neither.*50ms.*64kb"),
        ({"reorder": "5%"}, "reorder: needs a latency"),
        ({"drop_above": 575}, "drop_above: must be a whole number of bytes from 576 to 1500, or null"),
        ({"drop_above": 1501}, "drop_above: .* not 1501"),
        ({"drop_above": "1.2kb"}, "drop_above: .* not '1.2kb'"),
        ({"drop_above": 1200.0}, "drop_above: .* not 1200.0"),
        ({"drop_above": True}, "drop_above: .* not true"),
    ],
)
def test_bad_written_forms(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        LinkProfile.from_mapping(mapping)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"latency": -0.1}, "latency"),
        ({"latency": float("nan")}, "latency"),
        ({"jitter": float("inf")}, "jitter"),
        ({"loss": 1.5}, "loss"),
        ({"loss": True}, "loss"),
        ({"rate": "1mbit"}, "rate"),
        ({"corrupt": -1}, "corrupt"),
        ({"rate": 1e6, "buffer": 0.1, "buffer_bytes": 64}, r"buffer: give a time.*size"),
        ({"rate": 1e6, "buffer_bytes": 64.5}, r"buffer: must.*whole number of bytes"),
    ],
)
def test_bad_typed_values(values: dict[str, Any], key: str) -> None:
    with pytest.raises(ProfileError, match=key):
        LinkProfile(**values)


def test_merged_replaces_only_what_is_named() -> None:
    base = LinkProfile(latency=0.04, loss=0.005, rate=50e6, buffer=0.05)
    assert base.merged({"loss": "30%"}) == LinkProfile(latency=0.04, loss=0.3, rate=50e6, buffer=0.05)
    assert base.merged(latency=0.1) == LinkProfile(latency=0.1, loss=0.005, rate=50e6, buffer=0.05)
    assert base.merged({"loss": "30%"}, latency=0.1).latency == 0.1
    assert base.merged() == base


def test_merged_buffer_replaces_the_other_kind() -> None:
    base = LinkProfile(rate=50e6, buffer=0.05)
    assert base.merged({"buffer": "64kb"}) == LinkProfile(rate=50e6, buffer_bytes=64_000)
    assert base.merged({"rate": None}) == LinkProfile()
    assert base.merged({"buffer": None}) == LinkProfile(rate=50e6)
    assert base.merged(latency=None, rate=1e6) == LinkProfile(rate=1e6, buffer=0.05)


def test_merged_refuses_unknown_names() -> None:
    with pytest.raises(ProfileError, match="did you mean 'loss'"):
        LinkProfile().merged({"los": "1%"})
    with pytest.raises(ProfileError, match="did you mean 'latency'"):
        LinkProfile().merged(latncy=0.1)


@given(profiles(), profiles())
def test_merging_a_whole_profile_gives_that_profile(base: LinkProfile, other: LinkProfile) -> None:
    changes = other.to_mapping()
    assume(set(base.to_mapping()) <= set(changes))
    assert base.merged(changes) == other


@pytest.mark.parametrize(
    ("profile", "limit"),
    [
        (LinkProfile(rate=80e6, buffer=0.05), 500_000),  # 10 MB/s for 50 ms
        (LinkProfile(rate=80e6, buffer_bytes=64_000), 64_000),
        (LinkProfile(rate=80e6), 1_000_000),  # 100 ms
        (LinkProfile(rate=80e6, latency=0.2), 4_000_000),  # twice 200 ms
        (LinkProfile(rate=1e4), 16 * FULL_FRAME),  # 100 ms would be 125 bytes
    ],
)
def test_buffer_limit(profile: LinkProfile, limit: int) -> None:
    assert profile.buffer_limit == limit


@pytest.mark.parametrize("name", ["loss", "duplicate", "corrupt", "reorder"])
def test_fractions_of_packets_need_packets(name: str) -> None:
    assert LinkProfile(latency=0.1).merged(**{name: 0.1}).needs_packet_truth
    assert not LinkProfile(latency=0.1, jitter=0.01, rate=1e6).needs_packet_truth
    assert LinkProfile(loss=GilbertElliott(p=0.1, r=0.5)).needs_packet_truth


class TestReal:
    def test_it_is_written_and_read(self) -> None:
        assert LinkProfile(real=True).to_mapping() == {"real": True}
        assert LinkProfile.from_mapping({"real": True}) == LinkProfile(real=True)
        assert LinkProfile(real=True).describe() == "not shaped"

    @pytest.mark.parametrize(
        ("settings", "key"),
        [({"latency": "1ms"}, "latency"), ({"loss": "1%"}, "loss"), ({"rate": "1mbit", "buffer": "5ms"}, "rate")],
    )
    def test_it_takes_no_other_setting(self, settings: dict[str, Any], key: str) -> None:
        with pytest.raises(ProfileError, match=f"{key}: a real link"):
            LinkProfile(real=True).merged(settings)

    def test_another_profile_takes_its_place(self) -> None:
        assert LinkProfile(real=True).merged({"real": False, "latency": "1ms"}) == LinkProfile(latency=0.001)

    def test_it_is_true_or_false(self) -> None:
        with pytest.raises(ProfileError, match="real: must be true or false"):
            LinkProfile.from_mapping({"real": "yes"})
