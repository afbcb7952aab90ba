"""Links in a scenario: profiles by name or by value, and what one says over another.

    device-edge: wifi                                        a named profile, both ways
    device-edge: lte                                         lte towards the device, lte-up from it
    edge-cloud: {latency: 40ms, loss: 0.5%, rate: 50mbit}    a profile by value
    edge-cloud: {profile: wan-eu, rate: 50mbit}              a named one, changed
    device-edge: {rate: 50mbit, up: {rate: 5mbit}}           otherwise upwards
    device-1-2 -> edge-1: {loss: 3%}                         one direction of one link, over its class
    edge-0 <-> cloud: {latency: 200ms}                       both directions of one link

A class of links starts from nothing, what is said of two nodes starts from their class, unless it names a profile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Annotated, Any, ClassVar

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_serializer,
)

from netem.errors import ProfileError
from netem.library import PROFILES
from netem.profile import DISTRIBUTIONS, LinkProfile
from orchestrator.scenario.document import Path
from orchestrator.scenario.quantities import DURATION_SCHEMA, FRACTION_SCHEMA, RATE_SCHEMA, SIZE_SCHEMA
from orchestrator.scenario.strict import Strict, nearest, unknown
from orchestrator.scenario.topology import LINK_CLASSES, Pair, unknown_node

PROFILE_KEYS = ("latency", "jitter", "distribution", "loss", "rate", "buffer", "duplicate", "corrupt", "reorder")
UNIMPAIRED: dict[str, Any] = {
    "latency": "0s", "jitter": "0s", "distribution": "normal", "loss": "0%", "rate": None, "buffer": None,
    "duplicate": "0%", "corrupt": "0%", "reorder": "0%",
}  # fmt: skip
DEFAULT_PROFILE = "lan"

_GILBERT_ELLIOTT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["gilbert-elliott"],
    "properties": {
        "gilbert-elliott": {
            "type": "object",
            "additionalProperties": False,
            "required": ["p", "r"],
            "properties": {key: FRACTION_SCHEMA for key in ("p", "r", "loss_good", "loss_bad")},
        }
    },
}
_NULL = {"type": "null"}


class LinkKeys(Strict):
    """A profile's keys as written. ``profile`` names one to start from; keys beside it change it.

    The values stay in the written form, because over another profile a key that is absent and a key with its default
    are different things.
    """

    short: ClassVar[str | None] = "profile"

    profile: Annotated[str | None, WithJsonSchema({"type": "string", "enum": sorted(PROFILES)})] = None
    latency: Annotated[Any, WithJsonSchema(DURATION_SCHEMA)] = Field(default=None, description="one way")
    jitter: Annotated[Any, WithJsonSchema(DURATION_SCHEMA)] = None
    distribution: Annotated[Any, WithJsonSchema({"enum": list(DISTRIBUTIONS)})] = None
    loss: Annotated[Any, WithJsonSchema({"anyOf": [FRACTION_SCHEMA, _GILBERT_ELLIOTT_SCHEMA]})] = None
    rate: Annotated[Any, WithJsonSchema(RATE_SCHEMA)] = None
    buffer: Annotated[Any, WithJsonSchema({"anyOf": [DURATION_SCHEMA, SIZE_SCHEMA, _NULL]})] = None
    duplicate: Annotated[Any, WithJsonSchema(FRACTION_SCHEMA)] = None
    corrupt: Annotated[Any, WithJsonSchema(FRACTION_SCHEMA)] = None
    reorder: Annotated[Any, WithJsonSchema(FRACTION_SCHEMA)] = None

    @field_validator("profile")
    @classmethod
    def _check_name(cls, value: str | None) -> str | None:
        if value is not None and value not in PROFILES:
            raise ValueError(unknown("named profile", value, PROFILES))
        return value

    @field_validator(*PROFILE_KEYS)
    @classmethod
    def _check_value(cls, value: Any, info: ValidationInfo) -> Any:
        """Each key by itself; over what it will be laid, and so whether a buffer finds a rate, is not known here."""
        key = str(info.field_name)
        try:
            LinkProfile(rate=1.0, latency=1.0).merged({key: value})
        except ProfileError as error:
            raise ValueError(str(error).removeprefix(f"{key}: ")) from None
        return value

    @model_serializer(mode="wrap")
    def _only_what_was_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Written back as it was written: an absent key must stay absent."""
        absent = {key for name, key in self.key_names().items() if name not in self.model_fields_set}
        return {key: value for key, value in handler(self).items() if key not in absent}

    def given(self) -> dict[str, Any]:
        """The profile's own keys that were written, without ``profile``."""
        return {key: getattr(self, key) for key in PROFILE_KEYS if key in self.model_fields_set}

    def changes(self, *, upward: bool = False) -> dict[str, Any]:
        """What to merge into a profile: only the keys given, or every key where a named profile replaces it.

        ``upward``: for the direction to the cloud, where a name may have a partner for it (``lte``, ``lte-up``).
        """
        if self.profile is None:
            return self.given()
        partner = f"{self.profile}-up"
        named = PROFILES[partner if upward and partner in PROFILES else self.profile]
        return UNIMPAIRED | named.to_mapping() | self.given()


class LinkSpec(LinkKeys):
    """A link of two directions: the keys hold for both, ``up`` (towards the cloud) and ``down`` change one of them."""

    up: LinkKeys | None = None
    down: LinkKeys | None = None

    def directions(self, *, level: bool) -> tuple[LinkProfile, LinkProfile]:
        """The profiles up and down of a class of links; ``level``: of links where neither way is up.

        Raises ProfileError where the keys do not go together.
        """
        up, down = self.changes(upward=not level), self.changes()
        up |= self.up.changes() if self.up is not None else {}
        down |= self.down.changes() if self.down is not None else {}
        return LinkProfile.from_mapping(up), LinkProfile.from_mapping(down)


Direction = tuple[str, str]
Finding = tuple[Path, str]
_PAIR = re.compile(r"(\S+) (<?->) (\S+)")


def resolve(links: Mapping[str, LinkSpec], pairs: Sequence[Pair]) -> tuple[dict[Direction, LinkProfile], list[Finding]]:
    """The profile of every direction between these pairs, and what is wrong with ``links``.

    The classes come first, then what is said of two nodes, in the order of the file.
    """
    profiles: dict[Direction, LinkProfile] = {}
    findings: list[Finding] = []
    for link_class in dict.fromkeys(pair.link_class for pair in pairs):
        spec = links.get(link_class) or LinkSpec(profile=DEFAULT_PROFILE)
        try:
            up, down = spec.directions(level=link_class == "edge-edge")
        except ProfileError as error:
            findings.append((("links", link_class), str(error)))
            continue
        for pair in pairs:
            if pair.link_class == link_class:
                profiles[pair.lower, pair.upper], profiles[pair.upper, pair.lower] = up, down
    used = {pair.link_class for pair in pairs}
    upward = {(pair.lower, pair.upper) for pair in pairs if pair.link_class != "edge-edge"}
    for key, spec in links.items():
        if key in used and not (key == "edge-edge" and (spec.up or spec.down)):
            continue
        try:
            profiles |= _for_two_nodes(key, spec, profiles, used, upward)
        except ValueError as error:
            findings.append((("links", key), str(error)))
    return profiles, findings


def _for_two_nodes(
    key: str, spec: LinkSpec, profiles: Mapping[Direction, LinkProfile], used: Set[str], upward: Set[Direction]
) -> dict[Direction, LinkProfile]:
    """What ``a -> b`` or ``a <-> b`` changes. Raises ValueError for any other key."""
    if key == "edge-edge" and key in used:
        raise ValueError("up and down have no meaning between edges; write 'edge-0 -> edge-1' for one direction")
    if key in LINK_CLASSES:
        raise ValueError(f"the topology has no such links; it has {', '.join(sorted(used))}")
    match = _PAIR.fullmatch(key)
    if match is None:
        allowed = ", ".join(LINK_CLASSES)
        raise ValueError(f"unknown key{nearest(key, LINK_CLASSES)} (allowed here: {allowed}, 'a -> b', 'a <-> b')")
    if spec.up or spec.down:
        raise ValueError(f"up and down go with a class of links; write '{match[1]} -> {match[3]}' for one direction")
    directions = [(match[1], match[3])] + ([(match[3], match[1])] if match[2] == "<->" else [])
    if directions[0] not in profiles:
        names = {name for direction in profiles for name in direction}
        for name in directions[0]:
            if name not in names:
                raise ValueError(unknown_node(name, names))
        raise ValueError(f"{match[1]} and {match[3]} have no link")
    both = len(directions) == 2  # of one direction, the name says which profile
    return {
        direction: profiles[direction].merged(spec.changes(upward=both and direction in upward))
        for direction in directions
    }
