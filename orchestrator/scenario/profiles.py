"""A link's profile as scenarios write it: by name, by value, or by name with changes."""

from __future__ import annotations

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
from netem.profile import DISTRIBUTIONS, FRACTIONS, KEYS, LinkProfile
from orchestrator.scenario.quantities import DURATION_SCHEMA, FRACTION_SCHEMA, RATE_SCHEMA, SIZE_SCHEMA
from orchestrator.scenario.strict import Strict, unknown

REAL = "real"
"""Takes the place of a profile's name: the network between the hosts is the link, and edgebed does not shape it."""

UNIMPAIRED: dict[str, Any] = {
    "latency": "0s",
    "jitter": "0s",
    "distribution": "normal",
    "loss": "0%",
    "rate": None,
    "buffer": None,
    **dict.fromkeys(FRACTIONS, "0%"),
}

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

    The values keep their written form: merged into another profile, an absent key and a key with its default value
    have different effects.
    """

    short: ClassVar[str | None] = "profile"
    can_be_real: ClassVar[bool] = False

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
        if value == REAL and not cls.can_be_real:
            raise ValueError("a link is real for the whole run: say so in `links`")
        known = [*PROFILES, *[REAL] * cls.can_be_real]
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
        absent = {key for name, key in self.key_names().items() if name not in self.model_fields_set}
        return {key: value for key, value in handler(self).items() if key not in absent}

    def given(self) -> dict[str, Any]:
        """The profile keys that were given, without ``profile``."""
        return {key: getattr(self, key) for key in KEYS if key in self.model_fields_set}

    def changes(self, *, upward: bool = False) -> dict[str, Any]:
        """The keys to merge into a profile: only those given, or all keys if a named profile replaces it.

        ``upward``: for the direction to the cloud, for which a name may have a partner (``lte``, ``lte-up``).
        """
        if self.profile is None:
            return self.given()
        partner = f"{self.profile}-up"
        named = PROFILES[partner if upward and partner in PROFILES else self.profile]
        return UNIMPAIRED | named.to_mapping() | self.given()
