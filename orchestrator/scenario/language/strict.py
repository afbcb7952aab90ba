"""The base of the scenario's models: strict types, short forms, and error messages for users."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from orchestrator.errors import Problem, ScenarioError
from orchestrator.scenario.language.document import Document
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.language.words import describe, dotted, shortened


class Strict(BaseModel):
    """A mapping of the scenario: no unknown keys, no silent conversions. If ``short`` names a key, a plain text may
    replace the mapping: ``model: cnn`` is ``model: {name: cnn}``."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, serialize_by_alias=True, protected_namespaces=()
    )
    short: ClassVar[str | None] = None

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, value: Any) -> Any:
        if cls.short is not None and isinstance(value, str):
            return {cls.short: value}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        written = cls.model_construct().model_dump(mode="json", warnings=False)
        for key in schema["properties"].keys() & written.keys():
            schema["properties"][key]["default"] = written[key]  # 8s instead of 8.0
        if cls.short is None:
            return schema
        return {"anyOf": [schema["properties"][cls.short] | {"type": "string"}, schema]}

    @classmethod
    def key_types(cls) -> dict[str, Any]:
        """The type of each key of this mapping."""
        return {cls.key_names()[name]: field.annotation for name, field in cls.model_fields.items()}

    @classmethod
    def key_names(cls) -> dict[str, str]:
        """The key of each attribute: the same word, unless the key is a Python keyword (``for_``, ``for``)."""
        return {name: field.alias or name for name, field in cls.model_fields.items()}


M = TypeVar("M", bound=Strict)
OTHER_NAMES = {"wlan": "wifi", "4g": "lte"}  # names that others use for what has a name here


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` if a known name is similar or means the same, else an empty text."""
    known = list(known)
    same = OTHER_NAMES.get(name)
    if same in known:
        near = [same]
    else:
        near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown name: its kind, the most similar known name, and all known names."""
    known = list(known)
    return f"'{shortened(name)}' is no {what}{nearest(name, known)} (known: {', '.join(known)})"


def validated(
    model: type[M],
    document: Document,
    data: Mapping[str, Any],
    context: Mapping[str, Any] = {},
) -> M:
    """The model of a document with this data. ScenarioError lists every problem with its place."""
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        raise ScenarioError(problems(error, model, document)) from None


def problems(error: ValidationError, model: type[Strict], document: Document) -> list[Problem]:
    """The errors that pydantic found, each with its place in the document, in the order of the file."""
    found = [Problem(document.place(path), dotted(path), message) for path, message in reworded(error, model)]
    order = {place: position for position, place in enumerate(document.places.values())}
    return sorted(found, key=lambda problem: order.get(problem.where, -1))


def reworded(error: ValidationError, model: type[Strict]) -> list[tuple[KeyPath, str]]:
    """The paths and messages of the errors that pydantic found."""
    return [each for detail in error.errors(include_url=False) for each in _reword(detail, model)]


def _reword(detail: ErrorDetails, model: type[Strict]) -> list[tuple[KeyPath, str]]:
    """The paths and messages of one pydantic error; a ValueError of the models may hold several, one per line."""
    if detail["type"] != "value_error":
        return [_in_our_words(detail, model)]
    lines = str(detail["ctx"]["error"]).splitlines()
    return [_descend(detail["loc"], detail["input"], line) for line in lines]


def _in_our_words(detail: ErrorDetails, model: type[Strict]) -> tuple[KeyPath, str]:
    path: KeyPath = detail["loc"]
    value = detail["input"]
    context = detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return path[:-1], f"'{path[-1]}' is missing"
        case "extra_forbidden":
            known = list((_at(model, path[:-1]) or model).key_types())
            return path, f"unknown key{nearest(str(path[-1]), known)} (allowed here: {', '.join(known)})"
        case "literal_error":
            allowed = re.findall(r"'([^']*)'", context["expected"])
            return path, f"{_quoted(value)} is not one of: {', '.join(allowed)}{nearest(str(value), allowed)}"
        case "greater_than_equal" | "greater_than" | "less_than_equal" | "less_than" as kind:
            word = {
                "greater_than_equal": "at least",
                "greater_than": "above",
                "less_than_equal": "at most",
                "less_than": "below",
            }[kind]
            limit = next(number for key, number in context.items() if key in ("ge", "gt", "le", "lt"))
            if isinstance(value, str) and value.rstrip().endswith("%"):
                written = f"{limit:.0%}"
            else:
                written = f"{limit:.15g}"
            return path, f"must be {word} {written}, not {value}"
        case "too_short":
            return path, "give at least one, or leave it out"
        case "string_type" if isinstance(value, bool):  # no, off
            return path, f"write a text, not {describe(value)}; put it in quotes"
        case kind if kind in _WANTED:
            return path, f"write {_WANTED[kind]}, not {describe(value)}"
        case _:
            return path, detail["msg"]


_WANTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
}


def _quoted(value: Any) -> str:
    return f"'{shortened(value)}'" if isinstance(value, str) else describe(value)


def _descend(path: KeyPath, value: Any, message: str) -> tuple[KeyPath, str]:
    """Move the key that begins a message (``latency: no unit``) into the path, so that the message gets its line."""
    while isinstance(value, Mapping):
        key, colon, rest = message.partition(": ")
        stranger = re.search(r"unknown (?:parameter|key) '([^']+)'", message)
        if colon and key in value:
            path = (*path, key)
            value = value[key]
            message = rest
        elif stranger and stranger[1] in value:
            return (*path, stranger[1]), message
        else:
            break
    return path, message


def short_key(model: type[Strict], path: KeyPath) -> str | None:
    """The key that a plain text at a path below ``model`` abbreviates; None if it abbreviates none."""
    found = _at(model, path)
    return found.short if found is not None else None


def _at(kind: Any, path: KeyPath) -> type[Strict] | None:
    """The model at a path below a model; None if there is none."""
    for part in path:
        kind = _bare(kind)
        if isinstance(kind, type) and issubclass(kind, Strict):
            kind = kind.key_types().get(str(part))
        else:
            kind = (get_args(kind) or [None])[-1]
    found = _bare(kind)
    if isinstance(found, type) and issubclass(found, Strict):
        return found
    return None


def _bare(kind: Any) -> Any:
    """A type without Annotated and without "or None"."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    inner = [argument for argument in get_args(kind) if argument is not NoneType]
    if NoneType in get_args(kind):
        return _bare(inner[0])
    return kind
