"""Checks arguments against a tool's schema: a microsecond when they are right, every fault when they are not."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from edgewise.statemachine.errors import InvalidArguments, MisuseError
from edgewise.tools.coercion import coerce, has_whole_float
from edgewise.tools.faults import describe

_MOST_FAULTS = 100


class Checker:
    """Validates and coerces arguments for ``schema``. The validator is compiled at first use."""

    def __init__(
        self,
        schema: Mapping[str, Any],
        convert: Callable[[dict[str, Any]], object] | None = None,
        formats: Mapping[str, Callable[[str], bool]] | None = None,
    ) -> None:
        self._schema = schema
        self._convert = convert
        self._formats = dict(formats or {})
        self._validator: Any = None
        self._integers = False

    def _make_validator(self) -> Any:
        self._integers = '"integer"' in json.dumps(self._schema)
        self._validator = _validator_for(self._schema, self._formats)
        return self._validator

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """``arguments``, coerced where that is sensible. Raises InvalidArguments with every fault."""
        validator = self._validator or self._make_validator()
        try:
            if not validator.is_valid(arguments) or (self._integers and has_whole_float(arguments.values())):
                arguments = self._patiently(validator, arguments)
        except ValueError as error:
            raise InvalidArguments([f"the arguments hold something that is not JSON: {error}"]) from None
        if self._convert is not None:
            # What the schema can't say (a date that isn't one, a dataclass that refuses its values) is found here,
            # before the call is approved or begun.
            try:
                self._convert(arguments)
            except Exception as error:
                raise InvalidArguments([_conversion_fault(error)]) from error
        return arguments

    def _patiently(self, validator: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        coerced: dict[str, Any] = coerce(arguments, self._schema, self._schema)
        if validator.is_valid(coerced):
            return coerced
        errors = itertools.islice(validator.iter_errors(coerced), _MOST_FAULTS)
        raise InvalidArguments(describe(errors, self._schema))


def refuse_bad_schema(schema: Mapping[str, Any], tool: str) -> None:
    """Raise MisuseError, naming ``tool`` and the place, when ``schema`` is no valid JSON Schema."""
    import jsonschema_rs

    try:
        _validator_for(schema, {})
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        at = "/".join(map(str, getattr(error, "instance_path", ())))
        message = getattr(error, "message", None) or str(error)
        raise MisuseError(f"{tool}: parameters is not a valid JSON Schema{at and f' at {at}'}: {message}") from None


def _validator_for(schema: Mapping[str, Any], formats: Mapping[str, Callable[[str], bool]]) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        dict(schema), validate_formats=True, formats=dict(formats), retriever=_never_fetched
    )


def _never_fetched(uri: str) -> NoReturn:
    raise LookupError("schemas are never fetched; put what is referred to under $defs")


def _conversion_fault(error: Exception) -> str:
    found = re.fullmatch(r"(?s)(.*) - at `\$\.?(.*)`", str(error))
    if found:
        return f"{found[2] or 'the arguments'}: {found[1]}"
    return f"{type(error).__name__}: {error}"


def takes_datetimes(text: str) -> bool:
    """Whether ``text`` is a date and time as msgspec reads it: RFC 3339, with or without an offset."""
    import datetime

    import msgspec

    try:
        msgspec.convert(text, datetime.datetime)
    except msgspec.ValidationError:
        return False
    return True
