"""Writes the reference pages of this folder from the code that they describe: ``python -m docs.generate``. With
``--check`` it writes nothing and names the pages that differ from the code."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from docs.commands import catalogue_page, commands_page, examples_page
from docs.faults import faults_page
from docs.interface import interface_page
from docs.limits import limits_page
from docs.messages import messages_page
from netem.profile import KEYS
from orchestrator.claims.page import page as scoreboard
from orchestrator.claims.reading import load
from orchestrator.scenario.language.quantities import DURATION_SCHEMA, FRACTION_SCHEMA, RATE_SCHEMA, SIZE_SCHEMA
from orchestrator.scenario.schema import Scenario

FOLDER = Path(__file__).parent
EXAMPLES: dict[str, str] = yaml.safe_load((FOLDER / "examples.yaml").read_text())  # YAML by key of a scenario
QUANTITIES = {"duration": DURATION_SCHEMA, "percentage": FRACTION_SCHEMA, "rate": RATE_SCHEMA, "size": SIZE_SCHEMA}
TYPES = dict(integer="whole number", number="number", string="text", boolean="`true` or `false`", object="mapping")
BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
PLACEHOLDERS = {
    "hardware": "<node>",
    "stack": "<node>",
    "links": "<class>",
    "programs": "<program>",
    "shared": "<medium>",
}
LINK, LINK_KEYS = "links.<class>", {"profile", *KEYS, "schedule"}
HEAD = """\
# Reference: the scenario file

This page lists every key of a scenario. It is generated from the JSON schema that `edgebed schema`
prints. [The scenario file](../guides/scenario.md) is an introduction.

| type | how to write it |
|---|---|
| duration | `20ms`, `1.5s`, `10min`: a number with `ns`, `us`, `ms`, `s`, `min` or `h` |
| percentage | `0.5%`, `30%` |
| rate | `50mbit`, `1gbit`: a number with `bit`, `kbit`, `mbit` or `gbit`, per second |
| size | `64kb`, `4gib`: a number with `b`, `kb`, `mb`, `gb` (powers of 1000), `kib`, `mib` or `gib` (of 1024) |
| mapping or its `profile` alone | `{profile: wifi, loss: 1%}`; `wifi` is short for `{profile: wifi}` |

Only 0 needs no unit. In headings, `faults[].random` is the key `random` of an entry in the list
`faults`. A name in angle brackets, as in `hardware.<node>`, stands for a key that you choose.
"""

Schema = dict[str, Any]
Places = dict[tuple[str, ...], str]  # the path at which a mapping of this identity is explained


def scenario_page() -> str:
    """The reference of all keys of a scenario."""
    schema = Scenario.model_json_schema(by_alias=True)
    top: Schema = resolved(schema["properties"], schema["$defs"])
    links = ", ".join(f"[`{key}`](#{anchor(key)})" for key in top)
    lines, places = [HEAD, *wrapped(f"The top-level keys are {links}.")], Places()
    for key, each in top.items():
        inner = new_mappings(key, each, places)
        lines += [f"\n## `{key}`\n", *wrapped(each["description"]), f"\n```yaml\n{EXAMPLES[key]}```"]
        if key not in inner:
            default = f"; default {shown(each)}" if shown(each) else ""
            lines.append(f"\nType: {kind(each, places)}{default}.")
        for path, forms in inner.items():
            lines += section(path, forms, places, each["description"] if path != key else None)
    return "\n".join(lines) + "\n"


def resolved(node: Any, definitions: Schema) -> Any:
    """A schema with all references replaced."""
    if isinstance(node, list):
        return [resolved(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if reference := node.get("$ref"):
        node = definitions[reference.rpartition("/")[2]] | {key: node[key] for key in node if key != "$ref"}
    return {key: resolved(value, definitions) for key, value in node.items()}


def mappings(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Each mapping with known keys that a value may be or contain, and its path."""
    if "properties" in schema:
        yield path, schema
    for each in schema.get("anyOf", ()):
        yield from mappings(path, each)
    if "items" in schema:
        yield from mappings(f"{path}[]", schema["items"])
    if isinstance(each := schema.get("additionalProperties"), dict):
        yield from mappings(f"{path}.{PLACEHOLDERS.get(path, '<name>')}", each)


def identity(properties: Schema) -> tuple[str, ...]:
    return *properties, properties.get("name", {}).get("const", "")


def new_mappings(path: str, schema: Schema, places: Places) -> dict[str, list[Schema]]:
    """The mappings of a value that are not explained yet, by their paths. They get a place."""
    found: dict[str, list[Schema]] = {}
    for place, form in mappings(path, schema):
        alike = {*KEYS} <= form["properties"].keys() <= LINK_KEYS
        if places.setdefault(identity(form["properties"]), LINK if alike else place) == place:
            found.setdefault(place, []).append(form)
    return found


def section(path: str, forms: list[Schema], places: Places, known: str | None) -> Iterator[str]:
    """The tables of a mapping, or of the alternative mappings at one path, and of all mappings below. ``known``: a
    description that the page has already; None if it also has the heading."""
    if known is not None:
        yield f"\n### `{path}`"
    if "const" in forms[0]["properties"].get("name", {}):
        yield from catalogue(path, forms, places)
        return
    if known is not None and forms[0].get("description", known) != known:
        yield from ("", *wrapped(forms[0]["description"]))
    properties = {key: each for form in forms for key, each in form["properties"].items()}
    if path != LINK and {*KEYS} <= properties.keys():
        properties = {key: each for key, each in properties.items() if key not in LINK_KEYS}
        yield f"\nIt also has the keys of [`{LINK}`](#{anchor(LINK)}), except `schedule`, `up` and `down`."
    if len(forms) > 1:
        yield "\nExactly one of these keys:"
    below = [new_mappings(f"{path}.{key}", each, places) for key, each in properties.items()]
    yield from rows(properties, places, forms[0].get("required", []) if len(forms) == 1 else [])
    for inner, each in zip(below, properties.values(), strict=True):
        for place, found in inner.items():
            yield from section(place, found, places, each["description"])


def catalogue(path: str, forms: list[Schema], places: Places) -> Iterator[str]:
    """A choice by ``name``: the names, the keys that all of them have, and the other keys of each."""
    own = {form["properties"]["name"]["const"]: form["properties"] for form in forms}
    yield from table(
        "name | meaning", ((code(name), form["description"]) for name, form in zip(own, forms, strict=True))
    )
    first, *others = own.values()
    if common := {key: first[key] for key in first if key != "name" and all(key in each for each in others)}:
        yield "\nAll of them have these keys. Other defaults are listed below."
        below = [new_mappings(f"{path}.{key}", each, places) for key, each in common.items()]
        yield from rows(common, places)
        for inner, each in zip(below, common.values(), strict=True):
            for place, found in inner.items():
                yield from section(place, found, places, each["description"])
    listed: dict[str, Schema] = {}
    for name, keys in own.items():
        if other := {key: each for key, each in keys.items() if key != "name" and each != common.get(key)}:
            base = next((each for each in reversed(listed) if listed[each].items() <= other.items()), None)
            listed[name] = other
            yield f"\n### `{path}: {name}`"
            if base is not None:
                other = {key: other[key] for key in other if key not in listed[base]}
                yield f"\nIt {'also ' if other else ''}has the keys of [`{base}`](#{anchor(f'{path}: {base}')})."
            yield from rows(other, places) if other else ()


def rows(properties: Schema, places: Places, required: Iterable[str] = ()) -> Iterator[str]:
    """The table of some keys."""
    defaults = {key: "required" if key in required else shown(each) for key, each in properties.items()}
    cells = ((f"`{key}`", kind(each, places), defaults[key], each["description"]) for key, each in properties.items())
    return table("key | type | default | meaning", cells)


def kind(schema: Schema, places: Places) -> str:
    """A type in words."""
    if "anyOf" in schema:
        first, *others = (each for each in schema["anyOf"] if each.get("type") != "null")
        keys: Schema = next((each["properties"] for each in others if "properties" in each), {})
        if short := [key for key, each in keys.items() if each.get("title", key) == first.get("title", "name")]:
            return f"{kind({'properties': keys}, places)} or its `{short[0]}` alone"
        *words, last = dict.fromkeys(kind(each, places) for each in (first, *others))
        return " or ".join((*words, "a list of these" if last == f"list ({' or '.join(words)})" else last))
    if "properties" in schema:
        return f"[mapping](#{anchor(places[identity(schema['properties'])])})"
    if isinstance(inner := schema.get("additionalProperties"), dict):
        return f"mapping (name: {kind(inner, places)})"
    if "items" in schema:
        return f"list ({kind(schema['items'], places)})"
    if "enum" in schema or "const" in schema:
        return ", ".join(map(code, schema.get("enum", [schema.get("const")])))
    if found := [word for word, each in QUANTITIES.items() if each["pattern"] == schema.get("pattern")]:
        return found[0]
    (word,) = (TYPES[each] for each in TYPES if each in schema["type"])
    bounds = ", ".join(f"{BOUNDS[key]} {schema[key]:,}" for key in BOUNDS if key in schema)
    return f"{word} ({bounds})" if bounds else word


def shown(schema: Schema) -> str:
    """A default as it is written; empty for none, if the description has it, and if it consists of other defaults."""
    value = None if "default:" in schema["description"] else schema.get("default")
    value = value.get("name") if isinstance(value, dict) and "additionalProperties" not in schema else value
    return "" if value in (None, "", {}, []) else code(value)


def code(value: Any) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value).replace(chr(34), '')}`"


def table(head: str, cells: Iterable[Iterable[str]]) -> Iterator[str]:
    yield from (f"\n| {head} |", "|---" * (head.count("|") + 1) + "|")
    yield from (f"| {' | '.join(cell.replace('``', '`') for cell in row)} |" for row in cells)


def wrapped(text: str) -> list[str]:
    """A description as a paragraph of sentences."""
    text = " ".join(text.replace("``", "`").split()).rstrip(".")
    return textwrap.wrap(f"{text[0].upper()}{text[1:]}.", 100, break_on_hyphens=False)


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


PAGES: dict[str, Callable[[], str]] = {
    "reference/scenario.md": scenario_page,
    "reference/commands.md": commands_page,
    "reference/catalogue.md": catalogue_page,
    "reference/api.md": interface_page,
    "reference/messages.md": messages_page,
    "limits-of-frameworks.md": limits_page,
    "frameworks-under-faults.md": faults_page,
    "papers/README.md": lambda: scoreboard(load()),
    "../scenarios/README.md": examples_page,
}


def main(check: bool) -> int:
    failed = False
    for name, page in PAGES.items():
        file = FOLDER / name
        text = page()
        if file.exists() and file.read_text() == text:
            continue
        if check:
            print(f"docs/{name} differs from what it is generated from: run python -m docs.generate")
            failed = True
        else:
            file.write_text(text)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv))
