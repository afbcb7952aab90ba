"""The description of a data set in an archive."""

from __future__ import annotations

import json
from pathlib import Path

from node.catalogue.datasets import DATASETS, Dataset
from node.learning.data.datasets import prepare
from orchestrator.archive.crate import croissant


def test_the_data_set_of_a_plug_in_is_described(tmp_path: Path) -> None:
    mine = Dataset("digits", summary="digits of mine", where="mine.py")
    data = prepare("digits", tmp_path, download=False)
    assert json.loads(croissant(data, {"digits": mine}))["description"] == "digits of mine: mine.py"
    assert json.loads(croissant(data, DATASETS))["description"].endswith("comes with edgebed")
    assert json.loads(croissant(data, {}))["description"] == "data of the archive's author"
