"""The base of the scenario's models: strict types, short forms, and error messages for users."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from orchestrator.errors import Problem, ScenarioError
from orchestrator.scenario.language.words import KeyPath, describe, dotted, shortened


class Strict(BaseModel):
    """A mapping of the scenario: no unknown keys, no silent conversions. If ``short`` names a key, a plain text may
    replace the mapping: ``model: cnn`` is ``model: {name: cnn}``."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        serialize_by_alias=True,
        protected_namespaces=(),
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
        properties = schema["properties"]
        written = cls.model_construct().model_dump(mode="json", warnings=False)
        for key in properties.keys() & written.keys():
            properties[key]["default"] = written[key]  # 8s instead of 8.0
        if cls.short is None:
            return schema
        short_form = properties[cls.short] | {"type": "string"}
        return {"anyOf": [short_form, schema]}

    @classmethod
    def key_types(cls) -> dict[str, Any]:
        """The type of each key of this mapping."""
        names = cls.key_names()
        return {names[name]: field.annotation for name, field in cls.model_fields.items()}

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
        return f"; did you mean '{same}'?"
    similar = difflib.get_close_matches(name, known, n=1)
    if similar:
        return f"; did you mean '{similar[0]}'?"
    return ""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown name: its kind, the most similar known name, and all known names."""
    known = list(known)
    return f"'{shortened(name)}' is no {what}{nearest(name, known)} (known: {', '.join(known)})"


def not_one_of(value: Any, allowed: Iterable[str]) -> str:
    """The message for a value that is none of those that are allowed."""
    known = list(allowed)
    return f"{_quoted(value)} is not one of: {', '.join(known)}{nearest(str(value), known)}"


class Located(Protocol):
    """A document that has the places of its values (`orchestrator.scenario.language.document.Document`)."""

    @property
    def places(self) -> Mapping[KeyPath, str]: ...

    def place(self, path: KeyPath) -> str: ...


def validated(
    model: type[M],
    document: Located,
    data: Mapping[str, Any],
    context: Mapping[str, Any] = {},
) -> M:
    """The model of a document with this data. ScenarioError lists every problem with its place."""
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        raise ScenarioError(problems(error, model, document)) from None


def problems(error: ValidationError, model: type[Strict], document: Located) -> list[Problem]:
    """The errors that pydantic found, each with its place in the document, in the order of the file."""
    located = []
    for path, message in reworded(error, model):
        located.append(Problem(document.place(path), dotted(path), message))
    order = {place: position for position, place in enumerate(document.places.values())}
    return sorted(located, key=lambda problem: order.get(problem.where, -1))


def reworded(error: ValidationError, model: type[Strict]) -> list[tuple[KeyPath, str]]:
    """The paths and messages of the errors that pydantic found."""
    messages = []
    for detail in error.errors(include_url=False):
        messages += _reword(detail, model)
    return messages


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
            parent = _at(model, path[:-1]) or model
            known = list(parent.key_types())
            return path, f"unknown key{nearest(str(path[-1]), known)} (allowed here: {', '.join(known)})"
        case "literal_error":
            allowed = re.findall(r"'([^']*)'", context["expected"])
            return path, not_one_of(value, allowed)
        case kind if kind in _LIMITS:
            key, words = _LIMITS[kind]
            limit = context[key]
            if isinstance(value, str) and value.rstrip().endswith("%"):
                written = f"{limit:.0%}"
            else:
                written = f"{limit:.15g}"
            return path, f"must be {words} {written}, not {value}"
        case "too_short":
            return path, "give at least one, or leave it out"
        case "string_type" if isinstance(value, bool):  # no, off
            return path, f"write a text, not {describe(value)}; put it in quotes"
        case kind if kind in _WANTED:
            return path, f"write {_WANTED[kind]}, not {describe(value)}"
        case _:
            return path, detail["msg"]


_LIMITS = {  # the key of the limit in pydantic's context, and words
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "below"),
}


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
    if isinstance(value, str):
        return f"'{shortened(value)}'"
    return describe(value)


def _descend(path: KeyPath, value: Any, message: str) -> tuple[KeyPath, str]:
    """Move the key that starts a message (``latency: no unit``) into the path, so that the message gets its line."""
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
    kind = _at(model, path)
    if kind is None:
        return None
    return kind.short


def _at(kind: Any, path: KeyPath) -> type[Strict] | None:
    """The model at a path below a model; None if there is none."""
    for part in path:
        kind = _bare(kind)
        if isinstance(kind, type) and issubclass(kind, Strict):
            kind = kind.key_types().get(str(part))
        else:
            arguments = get_args(kind) or [None]
            kind = arguments[-1]
    model = _bare(kind)
    if isinstance(model, type) and issubclass(model, Strict):
        return model
    return None


def _bare(kind: Any) -> Any:
    """A type without Annotated and without "or None"."""
    arguments = get_args(kind)
    if get_origin(kind) is Annotated:
        return _bare(arguments[0])
    if NoneType not in arguments:
        return kind
    inner = [argument for argument in arguments if argument is not NoneType]
    return _bare(inner[0])
