"""Holds a model to one step: a call of one of the tools with arguments that fit its schema, or an answer.

A grammar (GBNF, llama.cpp's own notation) lets the sampler take only tokens that lead to a step. It is written here
and not by llama.cpp, since its builds differ in their converters: some drop the whole grammar for one keyword that
they don't know, some let a small model fill pages with white space. Of JSON Schema this knows types, properties,
required, enum, const, items, anyOf, oneOf, local $ref and allOf of objects; what else a schema says is left to the
check of the arguments before the call runs. An object whose properties are not told may be any object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgewise.statemachine.ports import ToolSpec

ANSWER = "answer"
"""The name under which the model answers, as if it were a tool too: so the choice is made by one word."""

_MOST_RULES = 2000
_MOST_NUMBERS = 100
_ROOM = {
    "char": r'[^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})',
    "said": r'[^"\\\x00-\x20\x7f]',
    "string": '"\\"" char* "\\""',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,15})',
    "number": 'integer ("." [0-9]{1,16})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "any": "object | array | string | number | boolean | null",
    "object": '"{" (string ": " any (", " string ": " any)*)? "}"',
    "array": '"[" (any (", " any)*)? "]"',
}


class _TooMuch(Exception):
    """The schema is too large, or not one that makes a grammar."""


def step_grammar(tools: Iterable[ToolSpec]) -> str:
    """The grammar of one step with ``tools``: ``{"tool": NAME, "arguments": {...}}``.

    >>> step_grammar([]).splitlines()[0]
    'root ::= "{\\\\"tool\\\\": \\\\"" (answer) "}"'
    """
    rules: dict[str, str] = {}
    steps = []
    for number, tool in enumerate(tools):
        name = f"step{number}"
        writer = _Writer(tool.parameters, f"t{number}-")
        try:
            arguments = writer.value({"type": "object", **tool.parameters})
            rules.update(writer.rules)
        except (_TooMuch, RecursionError):
            arguments = "object"
        rules[name] = _literal(_inside(tool.name) + '", "arguments": ') + f" {arguments}"
        steps.append(name)
    opening, closing = _literal(ANSWER + '", "arguments": {"text": "'), _literal('"}')
    rules[ANSWER] = f"{opening} said char* {closing}"
    brace, end = _literal('{"tool": "'), _literal("}")
    root = f"root ::= {brace} ({' | '.join([*steps, ANSWER])}) {end}"
    return "\n".join([root, *(f"{name} ::= {body}" for name, body in {**rules, **_ROOM}.items())]) + "\n"


def _literal(text: str) -> str:
    """``text`` as a GBNF terminal."""
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return f'"{escaped}"'


def _inside(text: str) -> str:
    """``text`` as JSON writes it between the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class _Writer:
    """Writes the rules of one schema, whose local references are looked up in ``root``."""

    def __init__(self, root: Mapping[str, Any], prefix: str) -> None:
        self.rules: dict[str, str] = {}
        self._root = root
        self._prefix = prefix
        self._references: dict[str, str] = {}

    def _rule(self, body: str) -> str:
        name = f"{self._prefix}{len(self.rules)}"
        self.rules[name] = body
        if len(self.rules) > _MOST_RULES:
            raise _TooMuch
        return name

    def value(self, schema: Any) -> str:
        """A name or group that stands for every value of ``schema``."""
        if not isinstance(schema, Mapping):
            return "any"
        if isinstance(reference := schema.get("$ref"), str):
            return self._referred(reference)
        if "const" in schema:
            return _literal(_compact(schema["const"]))
        if isinstance(chosen := schema.get("enum"), Sequence) and chosen:
            return f"({' | '.join(_literal(_compact(value)) for value in chosen)})"
        for word in ("anyOf", "oneOf"):
            if isinstance(options := schema.get(word), Sequence) and options:
                shared = {key: value for key, value in schema.items() if key != word}
                return f"({' | '.join(self.value(_merged([shared, option])) for option in options)})"
        if isinstance(parts := schema.get("allOf"), Sequence) and parts:
            shared = {key: value for key, value in schema.items() if key != "allOf"}
            return self.value(_merged([shared, *map(self._resolved, parts)]))
        return self._typed(schema)

    def _typed(self, schema: Mapping[str, Any]) -> str:
        kind = schema.get("type")
        if isinstance(kind, Sequence) and not isinstance(kind, str) and kind:
            return f"({' | '.join(self._typed({**schema, 'type': one}) for one in kind)})"
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "string":
            return '"\\"" char+ "\\""' if _count(schema.get("minLength")) else "string"
        if kind in ("integer", "number"):
            return self._number(schema, kind == "integer")
        return kind if kind in ("boolean", "null") else "any"

    def _number(self, schema: Mapping[str, Any], whole: bool) -> str:
        least, most = schema.get("minimum"), schema.get("maximum")
        if whole and isinstance(least, int) and isinstance(most, int) and 0 <= most - least < _MOST_NUMBERS:
            return f"({' | '.join(_literal(str(number)) for number in range(least, most + 1))})"
        above = schema.get("exclusiveMinimum")
        if least is None and isinstance(above, int | float):
            least = above + 1 if whole else above
        digits = "integer"
        if isinstance(least, int | float) and least >= 0:
            digits = "[1-9] [0-9]{0,15}" if whole and least > 0 else '("0" | [1-9] [0-9]{0,15})'
        return digits if whole else f'{digits} ("." [0-9]{{1,16}})?'

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or (not properties and schema.get("additionalProperties", True)):
            more = schema.get("additionalProperties")
            if not isinstance(more, Mapping) or not more:
                return '"{}"' if more is False or properties is not None else "object"
            pair = f'string ": " {self.value(more)}'
            return self._rule(f'"{{" ({pair} (", " {pair})*)? "}}"')
        required = schema.get("required")
        needed = set(required) if isinstance(required, Sequence) else set()
        # What may follow once a property was written, from the last backwards; and what may come first.
        follows, begins = "", ""
        for name in reversed(list(properties)):
            pair = f"{_literal(_compact(name) + ': ')} {self.value(properties[name])}"
            rest = f" {self._rule(follows)}" if follows else ""
            if name in needed:
                begins = pair + rest
                follows = f'", " {pair}{rest}'
            else:
                begins = f"({pair}{rest} | {begins})" if begins else f"({pair}{rest})?"
                follows = f'(", " {pair})?{rest}'
        return self._rule(f'"{{" {begins} "}}"' if begins else '"{}"')

    def _array(self, schema: Mapping[str, Any]) -> str:
        item = self._rule(self.value(schema.get("items")))
        if _count(schema.get("minItems")):
            return self._rule(f'"[" {item} (", " {item})* "]"')
        return self._rule(f'"[" ({item} (", " {item})*)? "]"')

    def _referred(self, reference: str) -> str:
        known = self._references.get(reference)
        if known is None:
            known = self._references[reference] = self._rule("")
            self.rules[known] = self.value(self._find(reference))
        return known

    def _resolved(self, schema: Any) -> Any:
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        return self._find(reference) if isinstance(reference, str) else schema

    def _find(self, reference: str) -> Any:
        at: Any = self._root
        if not reference.startswith("#"):
            raise _TooMuch
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(at, Mapping) or key not in at:
                raise _TooMuch
            at = at[key]
        return at


def _merged(schemas: Iterable[Any]) -> Mapping[str, Any]:
    """One schema for objects that fit all; properties and required ones add up, of all else the last counts."""
    merged: dict[str, Any] = {}
    for schema in schemas:
        if not isinstance(schema, Mapping):
            continue
        properties = {**merged.get("properties", {}), **schema.get("properties", {})}
        required = [*merged.get("required", ()), *schema.get("required", ())]
        merged = {**merged, **schema}
        if properties:
            merged["properties"] = properties
        if required:
            merged["required"] = required
    return merged


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0
