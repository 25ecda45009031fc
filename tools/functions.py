"""The ``@tool`` decorator: a plain function becomes something that an agent can do.

::

    @tool
    async def word_count(path: str) -> int:
        \"\"\"Count the words of a text file.\"\"\"
        return len((await trio.Path(path).read_text()).split())

The function stays callable as it was. What the model may send is read off its signature, hints and docstring
(:mod:`edgewise.tools.signatures`), checked and put right (:mod:`edgewise.tools.checking`), and given by name.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, overload

from edgewise.statemachine.errors import MisuseError
from edgewise.statemachine.ports import CallContext, Replay
from edgewise.tools.checking import Checker, takes_datetimes
from edgewise.tools.docstrings import read_docstring
from edgewise.tools.signatures import Shape, shape_for_schema, shape_of

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class FunctionTool(Generic[P, R]):
    """A function as a tool; made by :func:`tool`. Calling it calls the function."""

    name: str
    description: str
    parameters: dict[str, Any]
    timeout: float | None
    exclusive: bool
    replay: Replay
    blocking: bool

    def __init__(
        self,
        function: Callable[P, R],
        invoke: Callable[..., Any],
        shape: Shape,
        *,
        name: str,
        description: str,
        timeout: float | None,
        exclusive: bool,
        replay: Replay,
        blocking: bool,
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self.name = name
        self.description = description
        self.parameters = shape.parameters
        self.timeout = timeout
        self.exclusive = exclusive
        self.replay = replay
        self.blocking = blocking
        self._function = function
        self._invoke = invoke
        self._shape = shape
        checked = {**shape.parameters, "additionalProperties": False} if shape.closed else shape.parameters
        formats = {"date-time": takes_datetimes} if shape.convert else None
        self._checker = Checker(checked, shape.convert, formats)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}({', '.join(self.parameters.get('properties', ()))})>"

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments, coerced where that is sensible (``"5"`` to 5). Raises InvalidArguments with every fault."""
        return self._checker.check(arguments)

    def run(self, arguments: dict[str, Any], context: CallContext) -> Any:
        """Call the function with checked arguments: its value, or an awaitable of it when not ``blocking``."""
        shape = self._shape
        if shape.convert is not None:
            arguments = shape.convert(arguments)
        if shape.whole is not None:
            arguments = {shape.whole: arguments}
        if shape.context is not None:
            return self._invoke(**arguments, **{shape.context: context})
        return self._invoke(**arguments)


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    exclusive: bool = False,
    replay: Replay = "never",
    blocking: bool | None = None,
) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    exclusive: bool = False,
    replay: Replay = "never",
    blocking: bool | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    exclusive: bool = False,
    replay: Replay = "never",
    blocking: bool | None = None,
) -> Any:
    """Make a tool of a function, as ``@tool``, ``@tool(...)`` or ``tool(function, ...)``.

    :param name: what the model calls it; the function's name unless given.
    :param description: what the model is told; unless given, the docstring up to its sections. Parameters are
        described by ``Annotated[str, "..."]``, or in the docstring (Google, NumPy or Sphinx style).
    :param parameters: a JSON Schema of an object, instead of the hints. The function then takes plain values, by name
        or all in one dict.
    :param timeout: seconds that a call may take; the agent's default unless given.
    :param exclusive: a call runs alone, after those declared before it and before those declared after it.
    :param replay: ``"safe"`` when a call that a crash interrupted may be run again.
    :param blocking: whether to run it in a worker thread; so for plain functions unless said otherwise. Give False for
        one that returns at once.

    A parameter hinted as :class:`~edgewise.statemachine.ports.CallContext` gets the call's context; the model doesn't
    see it. Raises MisuseError when the function can't be a tool, and says why.

    >>> @tool
    ... def add(a: int, b: int = 1) -> int:
    ...     \"\"\"Add two numbers.\"\"\"
    ...     return a + b
    >>> add.check({"a": "2"})
    {'a': 2}
    >>> add(2, 3)
    5
    """
    options: dict[str, Any] = {
        "name": name,
        "description": description,
        "parameters": parameters,
        "timeout": timeout,
        "exclusive": exclusive,
        "replay": replay,
        "blocking": blocking,
    }
    if function is None:
        return lambda function: _make(function, sys._getframe(1).f_locals, **options)
    return _make(function, sys._getframe(1).f_locals, **options)


def _make(
    function: Callable[..., Any],
    names: Mapping[str, Any],
    *,
    name: str | None,
    description: str | None,
    parameters: Mapping[str, Any] | None,
    timeout: float | None,
    exclusive: bool,
    replay: Replay,
    blocking: bool | None,
) -> FunctionTool[..., Any]:
    if not callable(function):
        raise MisuseError(f"@tool takes a function, not {function!r}; options go by name, as in @tool(timeout=5)")
    if isinstance(function, FunctionTool):
        raise MisuseError(f"{function.name} is a tool already")
    called = name if name is not None else getattr(function, "__name__", "")
    if not _NAME.fullmatch(called):
        raise MisuseError(
            f"{called or function!r} is no name for a tool (1 to 64 letters, digits, _ and -); "
            "give one with @tool(name=...)"
        )
    if timeout is not None and not (isinstance(timeout, (int, float)) and 0 < timeout < math.inf):
        raise MisuseError(
            f"{called}: timeout must be seconds above 0, or None for the agent's default, not {timeout!r}"
        )
    if replay not in ("safe", "never"):
        raise MisuseError(f"{called}: replay must be 'safe' or 'never', not {replay!r}")
    plain = inspect.unwrap(function)
    if any(inspect.isgeneratorfunction(it) or inspect.isasyncgenfunction(it) for it in (function, plain)):
        raise MisuseError(f"{called}: a tool returns once; to report progress take a CallContext and call its update()")
    text, said = read_docstring(inspect.getdoc(_behind_partials(function)))
    if parameters is not None:
        shape = shape_for_schema(function, called, parameters, names)
    else:
        shape = shape_of(function, called, said, names)
    waits = _is_async(function) or _is_async(plain)
    if waits and blocking:
        raise MisuseError(f"{called}: an async function is awaited, not run in a thread; leave blocking out")
    return FunctionTool(
        function,
        _at_once(function) if blocking is False and not waits else function,
        shape,
        name=called,
        description=description if description is not None else text,
        timeout=timeout,
        exclusive=exclusive,
        replay=replay,
        blocking=not waits if blocking is None else blocking,
    )


def _behind_partials(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _is_async(function: Callable[..., Any]) -> bool:
    call = getattr(type(function), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _at_once(function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(**arguments: Any) -> Any:
        return function(**arguments)

    return call
