"""FedAvg whose cloud learns the sum of its clients' updates, and no single update. K. Bonawitz et al., "Practical
Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, section 4 and figure 4, reduced to pairwise
masks.

x_u update of client u as integers modulo R = 2^32, s_{u,v} seed that u and v agree on, PRG mask of a seed, U_1 clients
that sent a key, U_2 those that also sent a masked update, n_u samples.

    keys       client u draws a key pair and sends the public key; the cloud sends those of U_1 to U_1       rounds 0, 1
    masks      u sends y_u = x_u + Σ_{v ∈ U_1, v > u} PRG(s_{u,v}) − Σ_{v ∈ U_1, v < u} PRG(s_{u,v})  mod R     round 2
    dropouts   the cloud asks U_2 for the seeds s_{u,v} that they share with each v ∈ U_1 \\ U_2                round 4
    sum        Σ_{u ∈ U_2} y_u, less the masks of these seeds, is Σ_{u ∈ U_2} x_u  mod R

Here x_u = round((n_u / n) (w_u − w) 2^30 / C) with n the samples of U_1, clipped to C: the sum cannot overflow, and
rounding changes an entry of the mean by less than |U_1| C / 2^31. Clients report the share of values that were clipped,
`clipped_values`, and `rounding`, the norm of what was rounded as a share of that of w_u − w.

What is left out. There is no second mask b_u and no secret sharing. So a client whose masked update comes after the
others gave away its seeds has no mask left towards the cloud. If one of U_2 does not answer, the round is abandoned.
There are no signatures: a cloud that lies can hand out keys of its own. A cloud that follows the protocol learns the
sum over at least `threshold` clients, the numbers of samples, and who dropped out.

What is there. Keys are Diffie-Hellman's over group 14 of RFC 3526, masks are SHAKE-256. But keys are drawn from the
scenario's seed, so that runs can be repeated: who knows the seed knows every mask. Arithmetic with Python's integers
takes a time that depends on the keys. This measures what masks cost on links. It protects nobody's data.

Departures from FedAvg: every client is asked in every round. Statistics of batch normalisation are summed like weights.
Counters stay. Drawing keys and masks takes no modelled time under `sim`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import edgebed
from edgebed.baselines import fedala, plugin
from edgebed.baselines.compressed import added, vector

Words = NDArray[np.uint32]
SCALE = 2**30  # half of the signed range: the sum of rounded shares of C does not reach the end
KEY = 256  # bytes of a public key


@dataclass(frozen=True, kw_only=True)
class MaskedSum(edgebed.LocalTraining):
    """clip C: the largest value of an update; threshold: the fewest clients of a sum."""

    clip: float = edgebed.number(8.0, low=0, above=True)
    threshold: int = edgebed.whole(2, low=2)


PRIME = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)
"""The prime of group 14 (RFC 3526, section 3)."""
GENERATOR = 2


def key_pair(seed: int) -> tuple[int, bytes]:
    """A secret exponent of 256 bits, and the public key."""
    secret = int.from_bytes(hashlib.shake_256(f"key {seed}".encode()).digest(32))
    return secret, pow(GENERATOR, secret, PRIME).to_bytes(KEY)


def agreed(secret: int, public: bytes, t: int) -> bytes:
    """The seed s_{u,v} of round t, equal at both ends. ValueError if the key is of no use."""
    key = int.from_bytes(public)
    if len(public) != KEY or not 1 < key < PRIME - 1:
        raise ValueError("this is no public key of the group")
    return hashlib.sha256(pow(key, secret, PRIME).to_bytes(KEY) + t.to_bytes(8)).digest()


def mask(seed: bytes, size: int) -> Words:
    """PRG(s): `size` words of 32 bits."""
    return np.frombuffer(hashlib.shake_256(seed).digest(4 * size), "<u4").astype(np.uint32)


def quantised(update: NDArray[Any], share: float, clip: float) -> Words:
    """x_u of an update with the share n_u / n."""
    exact = np.clip(update.astype(np.float64), -clip, clip) * (share * SCALE / clip)
    return np.rint(exact).astype(np.int64).astype(np.uint32)


def left_out(
    update: NDArray[Any],
    x: Words,
    share: float,
    clip: float,
) -> dict[str, float]:
    """The metrics of what clipping and rounding change in an update."""
    clipped = np.clip(update.astype(np.float64), -clip, clip)
    rounded = restored(x, clip) / share - clipped
    size = float(np.linalg.norm(update))
    return {
        "clipped_values": float(np.mean(np.abs(update) > clip)),
        "rounding": float(np.linalg.norm(rounded)) / size if size else 0.0,
    }


def restored(total: Words, clip: float) -> NDArray[Any]:
    """The sum of shares that a sum of x_u modulo 2^32 stands for."""
    return total.astype(np.int32) * (clip / SCALE)


def masked(x: Words, mine: str, seeds: Mapping[str, bytes]) -> Words:
    """x plus the mask of each peer whose name is greater than mine, less that of each whose name is smaller."""
    for peer, seed in seeds.items():
        if peer > mine:
            x = x + mask(seed, x.size)
        else:
            x = x - mask(seed, x.size)
    return x


def unmasked(
    masks: Mapping[str, Words],
    seeds: Mapping[str, Mapping[str, bytes]],
) -> Words:
    """The sum of the masked updates by client, less the masks of the `seeds` that each shares with clients that dropped
    out. Masks between the others cancel."""
    total = np.zeros_like(next(iter(masks.values())))
    for client, y in masks.items():
        total += y - masked(np.zeros_like(y), client, seeds.get(client, {}))
    return total


def floats(state: edgebed.State) -> list[str]:
    return [name for name, values in state.items() if values.dtype.kind == "f"]


def as_tensor(value: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(value, np.uint8)


class Cloud(fedala.Cloud):
    """Its model has the final accuracy on the global test set."""

    async def aggregate(self, w: edgebed.State, t: int) -> edgebed.State:
        """The next model. `w` itself if the sum cannot be unmasked, or has fewer clients than the threshold."""
        keys = {each.sender: each for each in await self.answers("key", self.children, t, _is_key)}
        samples = {client: int(each.fields["samples"]) for client, each in keys.items()}
        n = sum(samples.values())
        public = {client: each.tensors["key"] for client, each in keys.items()}
        if not self.enough(list(keys.values()), t):
            return w
        await self.send(
            list(keys),
            "keys",
            public,
            owned=True,
            round=t,
            samples=n,
        )
        size = vector(w, floats(w)).size
        answers = await self.answers("masked", keys, t, lambda each: _is_masked(each, size))
        if not self.enough(answers, t):
            return w
        masks = {each.sender: each.tensors["update"] for each in answers}
        seeds = await self.recovered(masks.keys(), keys.keys() - masks.keys(), t)
        if seeds is None:
            self.abandon(answers)
            return w
        total = await self.compute(unmasked, masks, seeds, mode="other")
        mean = restored(total, self.params.clip) * (n / sum(samples[client] for client in masks))
        return added(w, mean, floats(w))

    def enough(self, messages: Sequence[edgebed.Message], t: int) -> bool:
        """Whether these reach the threshold. If not, the round is abandoned."""
        if messages and len(messages) < self.params.threshold:
            self.abandon(messages)
        return bool(len(messages) >= self.params.threshold)

    async def recovered(
        self, there: Collection[str], gone: Collection[str], t: int
    ) -> dict[str, dict[str, bytes]] | None:
        """The seeds that each client who is there shares with those who are gone. None if one of them does not tell."""
        if not gone:
            return {}
        self.note("dropped", round=t, nodes=sorted(gone))
        await self.send(sorted(there), "dropped", round=t, nodes=sorted(gone))
        answers = await self.answers("seeds", there, t)
        seeds_of = {each.sender: {peer: bytes(seed) for peer, seed in each.tensors.items()} for each in answers}
        complete = seeds_of.keys() == set(there) and all(each.keys() == set(gone) for each in seeds_of.values())
        return seeds_of if complete else None

    async def answers(
        self, kind: str, peers: Collection[str], t: int, usable: Callable[[edgebed.Message], bool] = bool
    ) -> list[edgebed.Message]:
        """What was gathered and is usable, without late messages of earlier rounds: their masks are others."""
        found = []
        for each in await self.gather(kind, peers, round=t):
            if each.round == t and usable(each):
                found.append(each)
            elif each.round == t:
                self.refuse(each, "does not have the tensors of the protocol")
        return found


def _is_key(message: edgebed.Message) -> bool:
    key = message.tensors.get("key")
    samples = message.fields.get("samples")
    usable = key is not None and key.dtype == np.uint8 and key.shape == (KEY,)
    return usable and isinstance(samples, int) and samples > 0


def _is_masked(message: edgebed.Message, size: int) -> bool:
    y = message.tensors.get("update")
    return y is not None and y.dtype == np.uint32 and y.shape == (size,)


class Client(edgebed.Role):
    """Trains on its own data, and sends the update under masks."""

    async def run(self) -> None:
        round = 0
        trained = np.zeros(0)
        seeds: dict[str, bytes] = {}
        while True:
            message = await self.receive("model", "keys", "dropped", sender=self.parent)
            t = edgebed.round_of(message)
            if message.kind == "model":
                round = t
                seeds = {}
                w = message.tensors
                secret, public = key_pair(self.seed("masks", str(t)))
                await self.answer("key", {"key": as_tensor(public)}, t, samples=self.learner.samples)
                result = await edgebed.train(self, w, t, self.params)
                self.report(round=t, scope="train", **result.metrics)
                await edgebed.evaluate(self, result.weights, t)
                trained = vector(result.weights, floats(w)) - vector(w, floats(w))
            elif message.kind == "keys" and t == round and len(message.tensors) >= self.params.threshold:
                others = {peer: bytes(key) for peer, key in message.tensors.items() if peer != self.name}
                seeds = await self.compute(agreed_with, secret, others, t, mode="other")
                share = self.learner.samples / message.fields["samples"]
                clip = self.params.clip
                sent = {}
                if np.isfinite(trained).all():  # under masks the cloud could not refuse it
                    x = await self.compute(quantised, trained, share, clip, mode="other")
                    lost = await self.compute(left_out, trained, x, share, clip, mode="other")
                    self.report(round=t, scope="train", **lost)
                    sent = {"update": await self.compute(masked, x, self.name, seeds, mode="other")}
                await self.answer("masked", sent, t)
            elif message.kind == "dropped" and t == round:
                gone = set(message.fields["nodes"]) & seeds.keys()
                if len(seeds) + 1 - len(gone) >= self.params.threshold:
                    await self.answer("seeds", {peer: as_tensor(seeds[peer]) for peer in sorted(gone)}, t)

    async def answer(
        self,
        kind: str,
        tensors: Mapping[str, NDArray[Any]],
        t: int,
        **fields: int,
    ) -> None:
        await self.send(
            self.parent,
            kind,
            tensors,
            owned=True,
            round=t,
            **fields,
        )


def agreed_with(
    secret: int,
    keys: Mapping[str, bytes],
    t: int,
) -> dict[str, bytes]:
    """The seed that a client shares with each of the others."""
    return {peer: agreed(secret, key, t) for peer, key in keys.items()}


ROLES = {"cloud": Cloud, "edge": Client, "device": Client}
SUMMARY = "FedAvg; the cloud sees only sums of masked updates"
PLUGIN = plugin("masked-sum", MaskedSum, SUMMARY)
