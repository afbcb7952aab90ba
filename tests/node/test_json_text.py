from __future__ import annotations

import json
import math

import pytest

from node.catalogue.json_text import parse_json, strict_json


def test_what_json_has_no_number_for_is_null() -> None:
    value = {"a": [1.5, math.nan, (math.inf,)], "b": {"c": -math.inf, "d": "NaN"}}
    assert json.loads(strict_json(value)) == {"a": [1.5, None, [None]], "b": {"c": None, "d": "NaN"}}
    assert strict_json({"a": 1}, indent=1) == '{\n "a": 1\n}'


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="it "):
        parse_json(text)
