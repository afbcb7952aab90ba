"""The data of a scenario: the data set, and its partition over the clients."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from orchestrator.scenario.choices import DatasetNames, PartitionField, PartitionSpec
from orchestrator.scenario.language.files import named_text
from orchestrator.scenario.language.quantities import Fraction
from orchestrator.scenario.language.strict import Strict
from orchestrator.scenario.population.client_lists import ClientLists


class ColumnsSpec(Strict):
    """The columns of hf:PATH or csv:PATH that make the data set; only ``target``, written ``columns: price``."""

    short: ClassVar[str | None] = "target"

    target: str | None = Field(default=None, description="what the model predicts; default: the class labels")
    inputs: list[str] = Field(default=[], description="what the model sees; default: pictures, lists or all others")
    subject: str | None = Field(default=None, description="the person of each sample, for by-subject")
    task: Literal["classification", "regression"] | None = Field(
        default=None, description="default: regression if the target has a decimal point"
    )
    test: Literal["test", "validation", "valid", "val", "dev"] | None = Field(
        default=None, description="which part of the files is the test part; default: the first of these that exists"
    )
    split: Literal["random", "in-order", "by-subject"] = Field(
        default="random",
        description="test part of one table: a fifth of the rows at random, the last fifth, or a fifth of the people",
    )


class DataSpec(Strict):
    """The data set, and its partition over the clients: the devices or, without devices, the edges."""

    dataset: DatasetNames = Field(
        default=["digits"],
        description="a data set, or a list from which the first that this host has is used; also npz:PATH, "
        "images:PATH, leaf:PATH, hf:PATH, csv:PATH or text:PATH",
    )
    path: str | None = Field(
        default=None, description="file or folder to look in first, relative to the scenario's file"
    )
    columns: ColumnsSpec | None = Field(default=None, description="the columns of hf:PATH or csv:PATH")
    partition: PartitionField = Field(
        default=PartitionSpec("iid", {}), description="how the training samples are divided among the clients"
    )
    samples_per_client: int | None = Field(
        default=None, ge=1, description="training samples that each client keeps; default: all of its part"
    )
    evaluate_samples: int | None = Field(
        default=None,
        ge=1,
        description="number of test samples that models are evaluated on, a fixed random subset; default: all",
    )
    metrics: list[Literal["macro_f1", "balanced_accuracy", "recall"]] = Field(
        default=[],
        description="further metrics of a classification; recall is that of each class: recall_0, recall_1 and so on. "
        "Those with bounds in expect or stop are reported in any case",
    )
    test: Literal["proportional", "balanced"] = Field(
        default="proportional",
        description="labels in the test set of a client or edge: proportional to its training data, or balanced",
    )
    personalisation: Fraction | None = Field(
        default=None,
        lt=1,
        description="share of each edge's own test set that it uses for personalisation instead of evaluation; "
        "default: 15% for algorithms that personalise, else 0%",
    )

    _lists: ClientLists | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> DataSpec:
        if self.partition.name != "file":
            return self
        name = self.partition.params.get("path")
        if not name:
            raise ValueError("partition: file: name a file: {file: clients.json}")
        try:
            text = named_text(name, info.context)
            self._lists = ClientLists.read(text, name)
        except ValueError as error:
            raise ValueError(f"partition: file: {error}") from None
        return self

    @property
    def lists(self) -> ClientLists | None:
        """The samples of each client, if the partition is a file's."""
        return self._lists

    @property
    def partition_params(self) -> dict[str, Any]:
        """The parameters that are set for the partition, with ``samples_per_client``."""
        params = dict(self.partition.params)
        if self.samples_per_client is not None:
            params["samples_per_client"] = self.samples_per_client
        return params
