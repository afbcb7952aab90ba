"""FedAvg with a cloud that learns the sum of its clients' updates, and no single update. K. Bonawitz et al., "Practical
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

What is left out. There is no second mask b_u and no secret sharing. So a client with a masked update that comes after
the others gave away its seeds has no mask left towards the cloud. If one of U_2 does not answer, the round is
abandoned. There are no signatures: a cloud that lies can hand out keys of its own. A cloud that follows the protocol
learns the sum over at least `threshold` clients, the numbers of samples, and who dropped out.

What is kept. Keys are Diffie-Hellman's over group 14 of RFC 3526, masks are SHAKE-256. But keys are drawn from the
scenario's seed, so that runs can be repeated: who knows the seed knows every mask. Arithmetic with Python's integers
takes a time that depends on the keys. This measures what masks cost on links. It protects no data.

Departures from FedAvg: every client takes part in every round. Statistics of batch normalisation are summed like
weights. Counters stay. Drawing keys and masks takes no modelled time under `sim`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
    digest = hashlib.shake_256(f"key {seed}".encode())
    secret = int.from_bytes(digest.digest(32))
    public = pow(GENERATOR, secret, PRIME)
    return secret, public.to_bytes(KEY)


def agreed(secret: int, public: bytes, t: int) -> bytes:
    """The seed s_{u,v} of round t, equal at both ends. ValueError if the key is of no use."""
    key = int.from_bytes(public)
    in_group = 1 < key < PRIME - 1
    if len(public) != KEY or not in_group:
        raise ValueError("this is no public key of the group")
    shared = pow(key, secret, PRIME)
    content = shared.to_bytes(KEY) + t.to_bytes(8)
    return hashlib.sha256(content).digest()


def mask(seed: bytes, size: int) -> Words:
    """PRG(s): `size` words of 32 bits."""
    stream = hashlib.shake_256(seed).digest(4 * size)
    words = np.frombuffer(stream, "<u4")
    return words.astype(np.uint32)


def quantised(update: NDArray[Any], share: float, clip: float) -> Words:
    """x_u of an update with the share n_u / n."""
    exact_update = update.astype(np.float64)
    clipped = np.clip(exact_update, -clip, clip)
    exact = clipped * (share * SCALE / clip)
    rounded = np.rint(exact).astype(np.int64)
    return rounded.astype(np.uint32)


def left_out(
    update: NDArray[Any],
    x: Words,
    share: float,
    clip: float,
) -> dict[str, float]:
    """The metrics of what clipping and rounding change in an update."""
    exact_update = update.astype(np.float64)
    clipped = np.clip(exact_update, -clip, clip)
    error = restored(x, clip) / share - clipped
    size = float(np.linalg.norm(update))
    rounding = 0.0
    if size:
        rounding = float(np.linalg.norm(error)) / size
    larger = np.abs(update) > clip
    clipped_values = float(np.mean(larger))
    return {"clipped_values": clipped_values, "rounding": rounding}


def restored(total: Words, clip: float) -> NDArray[Any]:
    """The sum of shares that a sum of x_u modulo 2^32 stands for."""
    signed = total.astype(np.int32)
    return signed * (clip / SCALE)


def masked(x: Words, client: str, seeds: Mapping[str, bytes]) -> Words:
    """x plus the mask of each peer with a name greater than the client's, less that of each with a smaller name."""
    for peer, seed in seeds.items():
        if peer > client:
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
    first = next(iter(masks.values()))
    total = np.zeros_like(first)
    for client, y in masks.items():
        with_dropped = seeds.get(client, {})
        uncancelled = masked(np.zeros_like(y), client, with_dropped)
        total += y - uncancelled
    return total


def floats(state: edgebed.State) -> list[str]:
    names = []
    for name, values in state.items():
        if values.dtype.kind == "f":
            names.append(name)
    return names


def as_tensor(value: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(value, np.uint8)


def as_bytes(tensors: Mapping[str, NDArray[Any]]) -> dict[str, bytes]:
    return {peer: bytes(value) for peer, value in tensors.items()}


class Cloud(fedala.Cloud):
    """Its model has the final accuracy on the global test set."""

    async def aggregate(self, w: edgebed.State, t: int) -> edgebed.State:
        """The next model. `w` itself if the sum cannot be unmasked, or has fewer clients than the threshold."""
        keys = await self.answers("key", self.children, t, _is_key)
        public = {}
        samples = {}
        for message in keys:
            public[message.sender] = message.tensors["key"]
            samples[message.sender] = int(message.fields["samples"])
        n = sum(samples.values())
        if not self.enough(keys, t):
            return w
        await self.send(
            list(public),
            "keys",
            public,
            owned=True,
            round=t,
            samples=n,
        )
        names = floats(w)
        size = vector(w, names).size
        is_masked = partial(_is_masked, size=size)
        answers = await self.answers("masked", public, t, is_masked)
        if not self.enough(answers, t):
            return w
        masks = {answer.sender: answer.tensors["update"] for answer in answers}
        dropped = public.keys() - masks.keys()
        seeds = await self.recovered(masks.keys(), dropped, t)
        if seeds is None:
            self.abandon(answers)
            return w
        total = await self.compute(unmasked, masks, seeds, mode="other")
        counted = sum(samples[client] for client in masks)
        share_of_counted = restored(total, self.params.clip)
        mean = share_of_counted * (n / counted)
        return added(w, mean, names)

    def enough(self, messages: Sequence[edgebed.Message], t: int) -> bool:
        """Whether these reach the threshold. If not, the round is abandoned."""
        enough = bool(len(messages) >= self.params.threshold)
        if messages and not enough:
            self.abandon(messages)
        return enough

    async def recovered(
        self,
        online: Collection[str],
        dropped: Collection[str],
        t: int,
    ) -> dict[str, dict[str, bytes]] | None:
        """The seeds that each client that is online shares with those that dropped out. None if one does not send
        them."""
        if not dropped:
            return {}
        nodes = sorted(dropped)
        self.note("dropped", round=t, nodes=nodes)
        await self.send(sorted(online), "dropped", round=t, nodes=nodes)
        seeds_of = {}
        messages = await self.answers("seeds", online, t)
        for answer in messages:
            seeds = as_bytes(answer.tensors)
            if seeds.keys() != set(dropped):
                return None
            seeds_of[answer.sender] = seeds
        if seeds_of.keys() != set(online):
            return None
        return seeds_of

    async def answers(
        self,
        kind: str,
        peers: Collection[str],
        t: int,
        usable: Callable[[edgebed.Message], bool] = bool,
    ) -> list[edgebed.Message]:
        """The usable messages that were gathered, without late ones of earlier rounds: these have other masks."""
        answers = []
        messages = await self.gather(kind, peers, round=t)
        for message in messages:
            if message.round != t:
                continue
            if usable(message):
                answers.append(message)
            else:
                self.refuse(message, "does not have the tensors of the protocol")
        return answers


def _is_key(message: edgebed.Message) -> bool:
    key = message.tensors.get("key")
    samples = message.fields.get("samples")
    if key is None:
        return False
    if key.dtype != np.uint8 or key.shape != (KEY,):
        return False
    return isinstance(samples, int) and samples > 0


def _is_masked(message: edgebed.Message, size: int) -> bool:
    y = message.tensors.get("update")
    if y is None:
        return False
    return y.dtype == np.uint32 and y.shape == (size,)


class Client(edgebed.Role):
    """Trains on its own data, and sends the update under masks."""

    async def run(self) -> None:
        self.round = 0
        self.update = np.zeros(0)
        self.seeds: dict[str, bytes] = {}
        while True:
            message = await self.receive("model", "keys", "dropped", sender=self.parent)
            t = edgebed.round_of(message)
            if message.kind == "model":
                await self.train(message.tensors, t)
            elif t != self.round:
                continue
            elif message.kind == "keys":
                if len(message.tensors) >= self.params.threshold:
                    await self.send_masked(message, t)
            else:
                await self.send_seeds(message, t)

    async def train(self, w: edgebed.State, t: int) -> None:
        self.round = t
        self.seeds = {}
        seed = self.seed("masks", str(t))
        self.secret, public = key_pair(seed)
        tensors = {"key": as_tensor(public)}
        await self.answer("key", tensors, t, samples=self.learner.samples)
        result = await edgebed.train(self, w, t, self.params)
        self.report(round=t, scope="train", **result.metrics)
        await edgebed.evaluate(self, result.weights, t)
        names = floats(w)
        before = vector(w, names)
        self.update = vector(result.weights, names) - before

    async def send_masked(self, message: edgebed.Message, t: int) -> None:
        """Answer the other clients' public keys with the masked update."""
        others = as_bytes(message.tensors)
        others.pop(self.name, None)
        self.seeds = await self.compute(
            agreed_with,
            self.secret,
            others,
            t,
            mode="other",
        )
        share = self.learner.samples / message.fields["samples"]
        clip = self.params.clip
        sent = {}
        if np.isfinite(self.update).all():  # under masks the cloud could not refuse it
            x = await self.compute(quantised, self.update, share, clip, mode="other")
            lost = await self.compute(
                left_out,
                self.update,
                x,
                share,
                clip,
                mode="other",
            )
            self.report(round=t, scope="train", **lost)
            y = await self.compute(
                masked,
                x,
                self.name,
                self.seeds,
                mode="other",
            )
            sent = {"update": y}
        await self.answer("masked", sent, t)

    async def send_seeds(self, message: edgebed.Message, t: int) -> None:
        """Answer with the seeds shared with clients that dropped out, if enough clients are left."""
        dropped = message.fields["nodes"]
        shared = {}
        known = self.seeds.keys() & set(dropped)
        for peer in sorted(known):
            shared[peer] = as_tensor(self.seeds[peer])
        clients = len(self.seeds) + 1
        if clients - len(shared) >= self.params.threshold:
            await self.answer("seeds", shared, t)

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
    seeds = {}
    for peer, key in keys.items():
        seeds[peer] = agreed(secret, key, t)
    return seeds


ROLES = {"cloud": Cloud, "edge": Client, "device": Client}
SUMMARY = "FedAvg; the cloud sees only sums of masked updates"
PLUGIN = plugin("masked-sum", MaskedSum, SUMMARY)
