from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebed.baselines import masked_sum as protocol
from edgebed.baselines.masked_sum import GENERATOR, PRIME, MaskedSum
from edgebed.testing import Federation, federation, star
from node.assignment import Gathering

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16}


def pair(folder: Path, clients: int, **more: Any) -> tuple[Federation, Federation]:
    """The masked sum, and FedAvg on the same data with the same disturbances."""
    name = "edgebed.baselines.masked_sum"
    found = federation(folder, name, "masked-sum", star(clients), params=LOCAL, model="cnn", **more).run()
    other = folder / "avg"
    params, parts = MaskedSum(**LOCAL), found.partition
    avg = Federation(found.data, star(clients), "fedavg", params, other, model="cnn", partition=parts, **more)
    return found, avg.run()


def test_the_group_is_that_of_the_rfc() -> None:
    """Its prime begins with 2^64 - 1, as RFC 3526 prints it, and p and (p - 1) / 2 pass Fermat's test."""
    assert f"{PRIME:x}".startswith("ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd1")
    assert f"{PRIME:x}".endswith("15728e5a8aacaa68ffffffffffffffff")
    assert pow(3, PRIME - 1, PRIME) == pow(3, (PRIME - 3) // 2, (PRIME - 1) // 2) == 1


def test_both_ends_agree_on_a_seed_that_differs_by_round() -> None:
    (a, public_a), (b, public_b) = protocol.key_pair(1), protocol.key_pair(2)
    assert protocol.agreed(a, public_b, 3) == protocol.agreed(b, public_a, 3) != protocol.agreed(a, public_b, 4)
    assert int.from_bytes(public_a) == pow(GENERATOR, a, PRIME)
    for key in (b"", (1).to_bytes(256), (PRIME - 1).to_bytes(256)):
        with pytest.raises(ValueError, match="no public key"):
            protocol.agreed(a, key, 1)


def test_quantised_shares_worked_example() -> None:
    """C = 4: the value 2 with the share ½ is ½ · 2 · 2^30 / 4 = 2^28, and -8 is clipped to -4, so -2^29 mod 2^32."""
    found = protocol.quantised(np.array([2.0, -8.0]), 0.5, 4.0)
    assert found.tolist() == [2**28, 2**32 - 2**29]
    assert protocol.restored(found, 4.0).tolist() == [1.0, -2.0]


def test_masks_cancel() -> None:
    """Three clients a, b, c hold 1, 2 and 2^32 - 1 (-1). All three: 2. Without c, with the seeds that a and b share
    with it: 3."""
    seeds = {"ab": b"1", "ac": b"2", "bc": b"3"}
    held = {"a": 1, "b": 2, "c": 2**32 - 1}
    of = {one: {two: seeds["".join(sorted(one + two))] for two in held if two != one} for one in held}
    y = {one: protocol.masked(np.array([x], np.uint32), one, of[one]) for one, x in held.items()}
    assert all(y[one].tolist() != [x] for one, x in held.items())
    assert y["a"].tolist() == [(1 + int(protocol.mask(b"1", 1)[0]) + int(protocol.mask(b"2", 1)[0])) % 2**32]
    assert protocol.unmasked(y, {}).tolist() == [2]
    there = {one: y[one] for one in "ab"}
    assert protocol.unmasked(there, {one: {"c": of[one]["c"]} for one in "ab"}).tolist() == [3]


def test_the_masked_sum_is_fedavg(tmp_path: Path) -> None:
    found, avg = pair(tmp_path, 3, rounds=2)
    for name, values in avg.state("cloud").items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(found.state("cloud")[name], values, atol=2e-6)
    assert not found.journals["cloud"].rounds("dropped")


def test_a_client_that_drops_out_after_its_key_is_left_out(tmp_path: Path) -> None:
    """The third client trains for 6 s and is not waited for longer than 2 s; FedAvg leaves it out as well."""
    found, avg = pair(tmp_path, 3, rounds=1, slow={"device-2": 100.0}, gathering=Gathering(quorum=0.5, deadline=2))
    cloud = found.journals["cloud"]
    assert [fields["nodes"] for name, _, fields in cloud.events if name == "dropped"] == [["device-2"]]
    for name, values in avg.state("cloud").items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(found.state("cloud")[name], values, atol=2e-6)


def test_it_continues_when_clients_come_and_go(tmp_path: Path) -> None:
    crash, cuts = {"device-0": (0.1, 2.0)}, {("cloud", "device-1"): (0.5, 3.0)}
    more: dict[str, Any] = {"crash": crash, "cuts": cuts, "gathering": Gathering(quorum=0.5, deadline=1)}
    params = {**LOCAL, "evaluate_samples": 60}
    run = federation(tmp_path, "edgebed.baselines.masked_sum", "masked-sum", star(4), params=params, rounds=12, **more)
    journal = run.run().journals["cloud"]
    assert journal.series("global")[12] > 0.5
    assert "device-1" in run.roles["cloud"].present


@pytest.mark.filterwarnings("error")
def test_an_update_that_is_not_finite_is_not_hidden_by_masks(tmp_path: Path) -> None:
    params = {**LOCAL, "learning_rate": 1e30}
    run = federation(tmp_path, "edgebed.baselines.masked_sum", "masked-sum", star(2), params=params, rounds=1).run()
    assert run.journals["cloud"].rounds("bad_message") == [1, 1]


def test_nothing_is_learned_of_too_few(tmp_path: Path) -> None:
    params = {**LOCAL, "threshold": 3}
    run = federation(tmp_path, "edgebed.baselines.masked_sum", "masked-sum", star(2), params=params, rounds=1).run()
    initial = run.roles["cloud"].learner.initial()
    assert run.journals["cloud"].rounds("round_abandoned") == [1]
    assert all(np.array_equal(values, initial[name]) for name, values in run.state("cloud").items())


def test_what_clipping_and_rounding_change_is_reported(tmp_path: Path) -> None:
    """By hand: of ½, -6 and 0 one value of three is clipped to -4; in steps of C / (share 2^30) = 4 / 2^29 all are
    exact. In a run each value is rounded by at most half of such a step."""
    update = np.array([0.5, -6.0, 0.0])
    x = protocol.quantised(update, 0.5, 4.0)
    assert protocol.left_out(update, x, 0.5, 4.0) == {"clipped_values": 1 / 3, "rounding": 0.0}
    params = {**LOCAL, "clip": 0.001}
    run = federation(tmp_path, "edgebed.baselines.masked_sum", "masked-sum", star(2), params=params).run()
    reported = [values for _, values in run.journals["device-0"].metrics if "clipped_values" in values]
    assert len(reported) == 3
    assert all(0.1 < values["clipped_values"] < 1 for values in reported)
    assert all(0 < values["rounding"] < 1e-6 for values in reported)
