"""Names of scenarios and sweeps. The names of run directories begin with them."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from orchestrator.scenario.language.words import shortened

LONGEST = 40
_PATTERN = r"^[a-z0-9][a-z0-9-]{0,39}$"


def name_from(text: str, otherwise: str) -> str:
    """Convert a text to a valid name: ``My_Study`` gives ``my-study``; ``otherwise`` if no character is valid."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:LONGEST].rstrip("-") or otherwise


def _check(name: str) -> str:
    if not re.fullmatch(_PATTERN.removesuffix("$"), name):
        raise ValueError(
            f"'{shortened(name)}' cannot be a name: write at most {LONGEST} lower-case letters, digits and hyphens, "
            f"a hyphen not first, like {name_from(name, 'my-study')}"
        )
    return name


Name = Annotated[str, AfterValidator(_check), WithJsonSchema({"type": "string", "pattern": _PATTERN})]
