"""What nodes train on: the processor of the host, or an accelerator of it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from orchestrator.record.rows import PROCESSOR as PROCESSOR
from orchestrator.scenario.language.strict import Strict
from orchestrator.scenario.language.words import describe

_DEVICE = r"^(cpu|cuda(:\d{1,2})?)$"


def _device(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(_DEVICE, value):
        raise ValueError(f"write cpu, cuda, or cuda:1 for the second of several, not {describe(value)}")
    return value


Device = Annotated[
    str,
    PlainValidator(_device),
    WithJsonSchema({"type": "string", "pattern": _DEVICE, "examples": [PROCESSOR, "cuda", "cuda:1"]}),
]
"""A part of the host, as torch names it."""


class ComputeSpec(Strict):
    """How this host computes the training of nodes. It does not change the hardware that they emulate."""

    device: Device = Field(
        default=PROCESSOR,
        description="what nodes train on: cpu, or a GPU (cuda, cuda:1); hardware.accelerator replaces it",
    )
    precision: Literal["float32", "bf16", "fp16"] = Field(
        default="float32",
        description="precision of floats in messages; with bf16, local training and evaluation also multiply in it. "
        "Nodes keep and average weights in float32",
    )
    clients_at_once: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="sim only: number of clients that train as one batch; default: 1 on cpu, 64 on a GPU",
    )
