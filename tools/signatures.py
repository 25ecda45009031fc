"""Reads a function: which arguments a model may give it, how it is called with them, and why it can't be a tool.

What its hints mean in JSON is the business of :mod:`edgewise.tools.schemas`.
"""

from __future__ import annotations

import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, get_origin

import attrs

from edgewise.statemachine.errors import MisuseError
from edgewise.statemachine.ports import CallContext
from edgewise.tools.checking import refuse_bad_schema
from edgewise.tools.schemas import (
    add_default,
    alternatives,
    assembled,
    bare,
    converter_for,
    described,
    is_plain,
    schemas_of,
)


@attrs.frozen(eq=False)
class Shape:
    """How a function is called with arguments out of JSON."""

    parameters: dict[str, Any]
    """The JSON Schema of its arguments."""
    context: str | None = None
    """The parameter that takes the CallContext."""
    whole: str | None = None
    """The parameter that takes all arguments as one dict."""
    convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Makes Python values of checked arguments; None when they are already what the hints ask for."""
    closed: bool = False
    """Whether arguments that the schema doesn't name are to be refused, although it doesn't say so."""


@attrs.frozen(eq=False)
class _Parameter:
    name: str
    kind: Any
    default: Any
    hint: Any


def shape_of(function: Callable[..., Any], tool: str, said: Mapping[str, str], names: Mapping[str, Any]) -> Shape:
    """The shape of ``function`` by its hints. ``said`` are descriptions by parameter, ``names`` what hints may mean."""
    context, parameters = _read_signature(function, tool, names)
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise MisuseError(
                f"{tool}: *{parameter.name} has no names to give in JSON; take a list: {parameter.name}: list"
            )
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise MisuseError(
                f"{tool}: **{parameter.name} doesn't say which arguments there are; name each, "
                "or give @tool(parameters={...})"
            )
    hints = {
        parameter.name: described(parameter.hint, parameter.default, said.get(parameter.name))
        for parameter in parameters
    }
    schemas, definitions = schemas_of(hints, tool)
    properties: dict[str, Any] = {}
    for parameter, schema in zip(parameters, schemas, strict=True):
        properties[parameter.name] = schema
        if parameter.default is not inspect.Parameter.empty and parameter.default is not None:
            add_default(schema, parameter.default)
    required = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    whole: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        whole["required"] = required
    whole["additionalProperties"] = False
    convert = None if all(is_plain(hint) for hint in hints.values()) else converter_for(hints)
    return Shape(assembled(whole, definitions), context, None, convert)


def shape_for_schema(
    function: Callable[..., Any], tool: str, schema: Mapping[str, Any], names: Mapping[str, Any]
) -> Shape:
    """The shape of ``function`` with a schema given by hand: plain values, by name or all in one dict."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise MisuseError(
            f'{tool}: parameters must be a JSON Schema of an object: {{"type": "object", "properties": ...}}'
        )
    try:
        plain: dict[str, Any] = json.loads(json.dumps(schema))
    except (TypeError, ValueError) as error:
        raise MisuseError(f"{tool}: parameters is not JSON: {error}") from None
    refuse_bad_schema(plain, tool)
    context, parameters = _read_signature(function, tool, names)
    properties = plain.get("properties", {})
    if len(parameters) == 1 and _takes_all(parameters[0], properties):
        return Shape(plain, context, parameters[0].name)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return Shape(plain, context)
    taken = {parameter.name for parameter in parameters}
    for name in properties:
        if name not in taken:
            raise MisuseError(
                f"{tool}: the schema has {name!r}, but the function takes {', '.join(sorted(taken)) or 'nothing'}; "
                "add the parameter, or take **arguments or one dict"
            )
    for parameter in parameters:
        if parameter.default is inspect.Parameter.empty and parameter.name not in plain.get("required", ()):
            raise MisuseError(
                f"{tool}: the function needs {parameter.name!r}, but the schema doesn't require it; "
                "give the parameter a default, or list it under required"
            )
    if not any(keyword in plain for keyword in _OPEN):
        return Shape(plain, context, closed=True)
    return Shape(plain, context)


_OPEN = ("additionalProperties", "unevaluatedProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf", "if")
"""Keywords through which a schema may know of properties that ``properties`` doesn't list."""


def _takes_all(parameter: _Parameter, properties: Mapping[str, Any]) -> bool:
    if parameter.name in properties or parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return False
    kind = get_origin(bare(parameter.hint)) or bare(parameter.hint)
    return kind is Any or (isinstance(kind, type) and issubclass(dict, kind))


# ---- reading the signature


def _read_signature(
    function: Callable[..., Any], tool: str, names: Mapping[str, Any]
) -> tuple[str | None, list[_Parameter]]:
    """The name of the parameter for the CallContext, and the others."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise MisuseError(f"{tool}: its signature can't be read ({error}); wrap it in a function of your own") from None
    context: str | None = None
    found: list[_Parameter] = []
    for parameter in signature.parameters.values():
        name = parameter.name
        if name in ("self", "cls") and not found and parameter.annotation is inspect.Parameter.empty:
            raise MisuseError(
                f"{tool}: a method has no object yet inside its class; make the tool of the bound one: tool(it.{tool})"
            )
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise MisuseError(
                f"{tool}: {name!r} is positional-only, but arguments come by name; take away the / after it"
            )
        hint = _hint(function, parameter, tool, names)
        if not _is_context(hint):
            found.append(_Parameter(name, parameter.kind, parameter.default, hint))
        elif context is None:
            context = name
        else:
            raise MisuseError(f"{tool}: {context!r} and {name!r} both take the CallContext; keep one")
    return context, found


def _hint(function: Callable[..., Any], parameter: inspect.Parameter, tool: str, names: Mapping[str, Any]) -> Any:
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    scope = getattr(_plain_function(function), "__globals__", {})
    try:
        try:
            hints = typing.get_type_hints(holder, scope, include_extras=True)
        except NameError:
            # A class that was made where the tool is made, inside a function: its names are no globals.
            hints = typing.get_type_hints(holder, scope, dict(names), include_extras=True)
    except Exception as error:
        raise MisuseError(
            f"{tool}: the hint of {parameter.name!r}, {parameter.annotation!r}, can't be read at run time "
            f"({type(error).__name__}: {error}); is it imported under TYPE_CHECKING only?"
        ) from None
    return hints[parameter.name]


def _plain_function(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    function = getattr(function, "__func__", function)
    return function if hasattr(function, "__globals__") else getattr(type(function), "__call__", function)  # noqa: B004


def _is_context(hint: Any) -> bool:
    return any(isinstance(part, type) and issubclass(part, CallContext) for part in alternatives(hint))
