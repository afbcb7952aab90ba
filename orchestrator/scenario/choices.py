"""A scenario's choices from the node's catalogue: algorithm, model, data sets and partition, with their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, ClassVar

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from node.algorithms.registry import ALGORITHMS
from node.catalogue.datasets import DATASET_PATHS, DATASETS, is_dataset
from node.catalogue.models import MODEL_GROUPS, MODELS
from node.catalogue.partitions import PARTITIONS
from node.parameters import AnyOf, Between, OneOf, Parameters, read_parameters
from orchestrator.scenario.catalogue import Catalogue, catalogue_in
from orchestrator.scenario.language.quantities import FRACTION_SCHEMA, mapping_schema
from orchestrator.scenario.language.strict import Strict, unknown
from orchestrator.scenario.language.words import describe

MAX_ROUNDS = 1_000_000


def check_parameters(
    kind: type[Parameters],
    values: Mapping[str, Any],
    other_keys: Sequence[str] = (),
) -> None:
    """Check the parameters. Raises ValueError with one line for each parameter that is unknown or out of range, or that
    conflicts with another. ``other_keys``: the keys next to the parameters."""
    mistakes = []
    for key, value in values.items():
        try:
            read_parameters(kind, {key: value}, other_keys)
        except ValueError as error:
            mistakes.append(str(error))
    if mistakes:
        raise ValueError("\n".join(mistakes))
    read_parameters(kind, values)


def parameter_schemas(kind: type[Parameters]) -> dict[str, JsonSchemaValue]:
    """The JSON Schema of each parameter, from the values that the catalogue allows and from its meaning."""
    schemas = {}
    meanings = kind.meanings()
    for entry in fields(kind):
        allowed = entry.metadata["allowed"]
        schema = _allowed_schema(allowed)
        if isinstance(allowed, Between) and allowed.high == 1:  # then a percentage is allowed, too
            percentage = FRACTION_SCHEMA | {"type": "string"}
            schema = {"anyOf": [schema, percentage]}
        if entry.name in meanings:
            schema["description"] = meanings[entry.name]
        if entry.default is not MISSING:
            schema["default"] = entry.default
        schemas[entry.name] = schema
    return schemas


def _allowed_schema(allowed: Between | OneOf) -> JsonSchemaValue:
    if isinstance(allowed, AnyOf) and not allowed.words:
        return {"type": "string" if allowed.kind is str else "object"}
    if isinstance(allowed, OneOf):
        words: JsonSchemaValue = {"enum": list(allowed.words)}
        if not allowed.number:
            return words
        number = _allowed_schema(allowed.number)
        return {"anyOf": [words, number]}
    kind = "integer" if allowed.kind is int else "number"
    minimum = "exclusiveMinimum" if allowed.above else "minimum"
    maximum = "exclusiveMaximum" if allowed.below else "maximum"
    schema: JsonSchemaValue = {"type": [kind, "null"] if allowed.none else kind}
    schema[minimum] = allowed.low
    if allowed.high != float("inf"):
        schema[maximum] = allowed.high
    return schema


class Named(Strict):
    """A catalogue entry by name, with its parameters next to the name: ``{name: hierfavg, kappa2: 3}``. ``entries``:
    those of edgebed, which the schema has."""

    model_config = ConfigDict(extra="allow")
    short: ClassVar[str | None] = "name"
    what: ClassVar[str]
    entries: ClassVar[Mapping[str, Any]]

    name: str = Field(description="its name")

    @classmethod
    def known(cls, catalogue: Catalogue) -> Mapping[str, Any]:
        """What the name may be, with the entries of plug-ins if they may add some."""
        return cls.entries

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str, info: ValidationInfo) -> str:
        entries = cls.known(catalogue_in(info))
        if value not in entries:
            raise ValueError(unknown(cls.what, value, entries))
        return value

    @model_validator(mode="after")
    def _check_parameters(self, info: ValidationInfo) -> Named:
        other_keys = [name for name in type(self).model_fields if name != "params"]
        entries = self.known(catalogue_in(info))
        kind = entries[self.name].params
        check_parameters(kind, self.params, other_keys)
        return self

    @property
    def params(self) -> dict[str, Any]:
        """The given parameters; omitted ones keep the catalogue's defaults."""
        return dict(self.model_extra or {})

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        own = dict(schema["properties"])
        described = own.pop("name")["description"]
        forms = []
        for name, entry in cls.entries.items():
            keys = {"name": {"const": name, "description": described}}
            keys |= own
            keys |= parameter_schemas(entry.params)
            form = mapping_schema(keys, "name")
            forms.append(form | {"description": entry.summary})
        return {"anyOf": [{"enum": list(cls.entries)}, *forms]}


class AlgorithmSpec(Named):
    """The algorithm, its rounds and its own parameters."""

    what: ClassVar[str] = "algorithm"
    entries: ClassVar[Mapping[str, Any]] = ALGORITHMS

    rounds: int | None = Field(
        default=None, ge=1, le=MAX_ROUNDS, description="maximum number of rounds; default: stop.rounds, else 10"
    )

    @classmethod
    def known(cls, catalogue: Catalogue) -> Mapping[str, Any]:
        return catalogue.algorithms


class LoraSpec(Strict):
    """Low-rank adapters of a frozen model. Only they are trained and sent."""

    rank: int = Field(default=8, ge=1, description="r, rank of an adapter")
    alpha: float = Field(default=16, gt=0, description="α; the output of an adapter is scaled by α / r")
    targets: list[str] = Field(
        min_length=1, description="linear layers that get an adapter, by their names or ends of their names"
    )
    ranks: dict[str, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict, description="ranks of clients by their hardware class; default: rank"
    )


class ModelSpec(Named):
    """The model and its own parameters, or a group of models for clients that differ."""

    what: ClassVar[str] = "model"
    entries: ClassVar[Mapping[str, Any]] = {**MODELS, **MODEL_GROUPS}

    lora: LoraSpec | None = Field(default=None, description="train and send low-rank adapters instead of the model")

    @classmethod
    def known(cls, catalogue: Catalogue) -> Mapping[str, Any]:
        return {**catalogue.models, **MODEL_GROUPS}

    def adapters(
        self,
        rank: int | None = None,
        ranks: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """The further parameter of a model with adapters, with this ``rank``. ``ranks``: its clients'."""
        if self.lora is None:
            return {}
        lora = self.lora.model_dump(exclude={"ranks"})
        if rank is not None:
            lora["rank"] = rank
        if ranks:
            lora["ranks"] = dict(ranks)
        return {"lora": lora}


@dataclass(frozen=True)
class PartitionSpec:
    """How the training data is divided; written ``iid``, ``{dirichlet: 0.1}`` or ``{dirichlet: {alpha: 0.1, ...}}``."""

    name: str
    params: Mapping[str, Any]


def _read_partition(value: Any, info: ValidationInfo) -> PartitionSpec:
    if isinstance(value, PartitionSpec):
        return value
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"write one partition, like iid or {{dirichlet: 0.1}}, not {describe(value)}")
    [(name, params)] = value.items()
    partitions = catalogue_in(info).partitions
    if name not in partitions:
        raise ValueError(unknown("partition", name, partitions))
    scheme = partitions[name]
    if not isinstance(params, dict):
        if scheme.short is None:
            raise ValueError(f"{name}: takes a mapping of parameters, not {describe(params)}")
        params = {scheme.short: params}
    try:
        check_parameters(scheme.params, params)
    except ValueError as error:
        mistakes = [f"{name}: {line}" for line in str(error).splitlines()]
        raise ValueError("\n".join(mistakes)) from None
    return PartitionSpec(name, params)


def _partition_schema() -> JsonSchemaValue:
    forms = []
    for name, scheme in PARTITIONS.items():
        schemas = parameter_schemas(scheme.params)
        inner = mapping_schema(schemas)
        if scheme.short is not None:
            inner = {"anyOf": [schemas[scheme.short], inner]}
        described = inner | {"description": scheme.summary}
        forms.append(mapping_schema({name: described}, name))
    return {"anyOf": [{"enum": list(PARTITIONS)}, *forms]}


def _write_partition(partition: PartitionSpec) -> Any:
    if not partition.params:
        return partition.name
    return {partition.name: dict(partition.params)}


PartitionField = Annotated[
    PartitionSpec,
    PlainValidator(_read_partition),
    PlainSerializer(_write_partition),
    WithJsonSchema(_partition_schema()),
]


def _read_datasets(value: Any, info: ValidationInfo) -> list[str]:
    names = [value] if isinstance(value, str) else value
    is_list = isinstance(names, list) and names
    if not is_list or not all(isinstance(name, str) for name in names):
        raise ValueError(f"write the name of a data set, or a list of names, not {describe(value)}")
    datasets = catalogue_in(info).datasets
    for name in names:
        if not is_dataset(name, datasets):
            raise ValueError(f"{unknown('data set', name, datasets)}; or {'; or '.join(DATASET_PATHS.values())}")
    return names


def _dataset_schema() -> JsonSchemaValue:
    forms: list[JsonSchemaValue] = [{"enum": list(DATASETS)}]
    for form, text in DATASET_PATHS.items():
        forms.append({"type": "string", "pattern": f"^{form}.+", "description": text})
    return {"anyOf": forms}


def _write_datasets(names: list[str]) -> Any:
    if len(names) == 1:
        return names[0]
    return names


_DATASET = _dataset_schema()
DatasetNames = Annotated[
    list[str],
    BeforeValidator(_read_datasets),
    PlainSerializer(_write_datasets),
    WithJsonSchema({"anyOf": [_DATASET, {"type": "array", "items": _DATASET, "minItems": 1}]}),
]
