"""Finds a model by a name such as ``openai:gpt-5-mini``, importing only the adapter that it needs."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

import attrs

from edgewise.statemachine.errors import MisuseError
from edgewise.statemachine.ports import Model


@attrs.frozen
class _Provider:
    """Where an adapter is, what it stands on, and how a name of its kind looks."""

    module: str
    factory: str
    """Called with what comes after the colon (nothing: an empty text) and the options."""
    requires: str
    """The package whose absence means that the extra is not installed; the extra is called like the provider."""
    example: str
    nameless: bool = False
    """Whether the provider alone, without a name, means a model."""


_PROVIDERS: Mapping[str, _Provider] = {
    "local": _Provider(
        "edgewise.adapters.models.local", "local", "xllamacpp", "local, or local:NAME_or_PATH", nameless=True
    ),
    "openai": _Provider("edgewise.adapters.models.openai", "OpenAIModel", "openai", "openai:gpt-5-mini"),
}


def model(spec: str | Model, **options: Any) -> Model:
    """Give the model that ``spec`` names: ``local``, ``local:NAME_or_PATH``, ``openai:NAME``, or a model itself.

    The path of a ``.gguf`` file may stand alone.

    ``options`` go to the adapter, as in ``model("openai:qwen2.5", base_url="http://127.0.0.1:11434/v1")``.
    Raises MisuseError when there is no such provider, when its extra is not installed, or when the options don't fit.

    >>> model("opena:gpt-5-mini")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    MisuseError: no provider is called 'opena'. Did you mean openai? There are: local, openai
    """
    if not isinstance(spec, str):
        return _itself(spec, options)
    name, _, of_provider = (f"local:{spec}" if _is_weights(spec) else spec).partition(":")
    provider = _PROVIDERS.get(name)
    if provider is None:
        raise MisuseError(_unknown(name, ":" in spec))
    if not of_provider and not provider.nameless:
        raise MisuseError(f"{spec!r} says no model's name; it should look like {provider.example!r}")
    if importlib.util.find_spec(provider.requires) is None:
        raise MisuseError(
            f'{spec!r} needs the package {provider.requires}, which is not installed: pip install "edgewise[{name}]"'
        )
    factory = getattr(importlib.import_module(provider.module), provider.factory)
    try:
        return cast(Model, factory(of_provider, **options))
    except TypeError as error:
        raise MisuseError(f"the options {sorted(options)} don't fit {spec!r}: {error}") from error


def _is_weights(spec: str) -> bool:
    return spec.endswith(".gguf") and spec.partition(":")[0] not in _PROVIDERS


def _itself(given: Model, options: Mapping[str, Any]) -> Model:
    if isinstance(given, type) or not callable(getattr(given, "reply", None)):
        raise MisuseError(f"a model is a name such as 'openai:gpt-5-mini', or an object with reply(), not {given!r}")
    if options:
        raise MisuseError(f"options ({', '.join(options)}) go with a model's name; {given!r} is made already")
    return given


def _unknown(name: str, named: bool) -> str:
    known = ", ".join(_PROVIDERS)
    near = get_close_matches(name.lower(), _PROVIDERS, n=2, cutoff=0.5)
    if name == "scripted":
        hint = " A scripted model has no name: pass a ScriptedModel (of edgewise.adapters.models.scripted) itself."
    elif near:
        hint = f" Did you mean {' or '.join(near)}?"
    elif not named:
        hint = f" A model's name comes after its provider, as in 'openai:{name or 'gpt-5-mini'}'."
    else:
        hint = ""
    return f"no provider is called {name!r}.{hint} There are: {known}"
