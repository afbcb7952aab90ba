"""Tables of the catalogue."""

from __future__ import annotations

from typing import Any

import pytest

from node.catalogue.partitions import PARTITIONS
from node.catalogue.tables import by_name


def test_entries_have_names_of_their_own() -> None:
    iid = PARTITIONS["iid"]
    shards = PARTITIONS["shards"]
    assert list(by_name(shards, iid)) == ["shards", "iid"]
    with pytest.raises(ValueError, match="'iid'"):
        by_name(iid, shards, iid)


def test_a_table_is_not_written_to() -> None:
    table: Any = by_name(PARTITIONS["iid"])
    with pytest.raises(TypeError):
        table["mine"] = PARTITIONS["iid"]
