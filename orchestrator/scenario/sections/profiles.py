"""A link's profile as scenarios write it: by name, by value, or by name with changes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from netem.errors import ProfileError
from netem.library import PROFILES
from netem.profile import DISTRIBUTIONS, FRACTIONS, KEYS, LARGEST_MTU, SMALLEST_MTU, LinkProfile
from orchestrator.scenario.catalogue import EDGEBED, REAL, Catalogue, catalogue_in
from orchestrator.scenario.language.quantities import (
    DURATION_SCHEMA,
    FRACTION_SCHEMA,
    RATE_SCHEMA,
    SIZE_SCHEMA,
    mapping_schema,
)
from orchestrator.scenario.language.strict import Strict, unknown

_PROFILE_SCHEMA = {"type": "string", "enum": sorted(PROFILES)}
UNIMPAIRED: dict[str, Any] = {
    "latency": "0s",
    "jitter": "0s",
    "distribution": "normal",
    "loss": "0%",
    "rate": None,
    "buffer": None,
    **dict.fromkeys(FRACTIONS, "0%"),
    "drop_above": None,
}

_FRACTION_OF = {
    "p": {"description": "probability per packet that a burst starts: good to bad state"},
    "r": {"description": "probability per packet that it ends; bursts have 1/r packets on average"},
    "loss_good": {"default": "0%", "description": "share of packets that are lost in the good state"},
    "loss_bad": {"default": "100%", "description": "share of packets that are lost in the bad state"},
}
_FRACTIONS = {key: FRACTION_SCHEMA | schema for key, schema in _FRACTION_OF.items()}
_BURSTS = mapping_schema(_FRACTIONS, "p", "r")
_BURSTS["description"] = "loss in bursts: a link that switches between a good and a bad state"
_GILBERT_ELLIOTT_SCHEMA = mapping_schema({"gilbert-elliott": _BURSTS}, "gilbert-elliott")
_NULL = {"type": "null"}
_PACKET_SCHEMA = {"type": "integer", "minimum": SMALLEST_MTU, "maximum": LARGEST_MTU}


class LinkKeys(Strict):
    """A profile's keys as written. ``profile`` names one to start from; keys next to it change it. The values keep
    their written form: merged into another profile, an absent key and a key with its default value have different
    effects."""

    short: ClassVar[str | None] = "profile"
    can_be_real: ClassVar[bool] = False

    profile: Annotated[str | None, WithJsonSchema(_PROFILE_SCHEMA)] = Field(
        default=None, description="the named profile to start from; the keys next to it change it"
    )
    latency: Annotated[Any, WithJsonSchema(DURATION_SCHEMA)] = Field(
        default=None, description="delay of each packet, one way"
    )
    jitter: Annotated[Any, WithJsonSchema(DURATION_SCHEMA)] = Field(
        default=None, description="variation of the latency: its standard deviation, unless distribution says otherwise"
    )
    distribution: Annotated[Any, WithJsonSchema({"enum": list(DISTRIBUTIONS)})] = Field(
        default=None,
        description="distribution of the latency: normal; uniform (latency ± jitter); pareto or paretonormal, which "
        "have a heavy tail",
    )
    loss: Annotated[Any, WithJsonSchema({"anyOf": [FRACTION_SCHEMA, _GILBERT_ELLIOTT_SCHEMA]})] = Field(
        default=None, description="share of packets that are lost, each on its own; or loss in bursts: gilbert-elliott"
    )
    rate: Annotated[Any, WithJsonSchema(RATE_SCHEMA)] = Field(
        default=None, description="bandwidth, Ethernet headers included; null: unlimited"
    )
    buffer: Annotated[Any, WithJsonSchema({"anyOf": [DURATION_SCHEMA, SIZE_SCHEMA, _NULL]})] = Field(
        default=None,
        description="length of the queue in front of the rate limit, as a time at that rate or as a size; packets that "
        "do not fit are dropped; default: 100ms or a round trip, whichever is longer",
    )
    duplicate: Annotated[Any, WithJsonSchema(FRACTION_SCHEMA)] = Field(
        default=None, description="share of packets that arrive twice"
    )
    corrupt: Annotated[Any, WithJsonSchema(FRACTION_SCHEMA)] = Field(
        default=None, description="share of packets with one flipped bit"
    )
    reorder: Annotated[Any, WithJsonSchema(FRACTION_SCHEMA)] = Field(
        default=None, description="share of packets that overtake earlier ones; needs a latency"
    )
    drop_above: Annotated[Any, WithJsonSchema({"anyOf": [_PACKET_SCHEMA, _NULL]})] = Field(
        default=None,
        description="IP packets of more than so many bytes vanish, without a message to the sender; null: none",
    )

    _catalogue: Catalogue = PrivateAttr(default_factory=lambda: EDGEBED)

    @model_validator(mode="after")
    def _look_up(self, info: ValidationInfo) -> LinkKeys:
        self._catalogue = catalogue_in(info)
        return self

    @field_validator("profile")
    @classmethod
    def _check_name(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value == REAL and not cls.can_be_real:
            raise ValueError("a link is real for the whole run: say so in `links`")
        known = [*catalogue_in(info).profiles]
        if cls.can_be_real:
            known.append(REAL)
        if value is not None and value not in known:
            raise ValueError(unknown("named profile", value, known))
        return value

    @field_validator(*KEYS)
    @classmethod
    def _check_value(cls, value: Any, info: ValidationInfo) -> Any:
        """Check each key by itself: the profile below it is not known here, so nor is whether a buffer has a rate."""
        key = str(info.field_name)
        try:
            LinkProfile(rate=1.0, latency=1.0).merged({key: value})
        except ProfileError as error:
            raise ValueError(str(error).removeprefix(f"{key}: ")) from None
        return value

    @model_serializer(mode="wrap")
    def _only_what_was_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialize only the keys that were given: an absent key must stay absent."""
        data: dict[str, Any] = handler(self)
        for name, key in self.key_names().items():
            if name not in self.model_fields_set:
                data.pop(key, None)
        return data

    def given(self) -> dict[str, Any]:
        """The profile keys that were given, without ``profile``."""
        return {key: getattr(self, key) for key in KEYS if key in self.model_fields_set}

    def changes(self, *, upward: bool = False) -> dict[str, Any]:
        """The keys to merge into a profile: only those given, or all keys if a named profile replaces it. ``upward``:
        for the direction to the cloud, for which a name may have a partner (``lte``, ``lte-up``)."""
        if self.profile is None:
            return self.given()
        name = self.profile
        partner = f"{name}-up"
        profiles = self._catalogue.profiles
        if upward and partner in profiles:
            name = partner
        return UNIMPAIRED | profiles[name].to_mapping() | self.given()
