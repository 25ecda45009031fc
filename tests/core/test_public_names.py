"""What ``import edgewise`` gives, and what it does not load."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import edgewise

ROOT = Path(__file__).parents[2]


def _python(code: str, *, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=60, check=False
    )


# ---- names


def test_the_public_names_are_listed_in_order_and_exist() -> None:
    names = edgewise.__all__
    assert sorted(names) == names and len(names) == len(set(names))
    assert all(hasattr(edgewise, name) for name in names)


def test_nothing_public_is_left_off_the_list() -> None:
    found = {
        name
        for name, value in vars(edgewise).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert found == set(edgewise.__all__)


@pytest.mark.parametrize("name", edgewise.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    value = getattr(edgewise, name)
    if typing.get_origin(value) is not None or not callable(value):
        return  # an alias of types: its members are documented
    doc = inspect.getdoc(value)
    assert doc and doc[0].isupper() and "." in doc
    assert value.__module__.startswith("edgewise.")


@pytest.mark.parametrize(
    "name", [name for name in edgewise.__all__ if inspect.isclass(getattr(edgewise, name)) and name != "State"]
)
def test_the_public_methods_of_public_classes_are_documented_or_speak_for_themselves(name: str) -> None:
    cls = getattr(edgewise, name)
    for member, value in vars(cls).items():
        if member.startswith("_") or not inspect.isfunction(value):
            continue
        assert inspect.getdoc(value) or len(inspect.signature(value).parameters) <= 2, f"{name}.{member}"


def test_all_star_gives_the_public_names() -> None:
    namespace: dict[str, object] = {}
    exec("from edgewise import *", namespace)
    assert set(edgewise.__all__) <= set(namespace)


# ---- weight

HEAVY = (
    "pydantic",
    "openai",
    "anthropic",
    "httpx",
    "typer",
    "xllamacpp",
    "huggingface_hub",
    "mcp",
    "cattrs",
    "msgspec",
    "jsonschema_rs",
    "orjson",
    "pytest",
    "hypothesis",
)
LOADED = """
import sys
import trio, transitions, attrs, structlog
parts = set(sys.modules)
import edgewise
print(__import__("json").dumps([sorted(sys.modules), sorted(set(sys.modules) - parts)]))
"""


@pytest.fixture(scope="module")
def loaded() -> tuple[set[str], set[str]]:
    """All modules that are loaded after ``import edgewise``, and those that its four parts had not loaded already."""
    ran = _python(LOADED)
    assert ran.returncode == 0, ran.stderr
    everything, more = json.loads(ran.stdout)
    return set(everything), set(more)


@pytest.mark.parametrize("module", HEAVY)
def test_the_import_loads_nothing_heavy(module: str, loaded: tuple[set[str], set[str]]) -> None:
    assert module not in loaded[0]


def test_the_import_loads_nothing_but_its_parts_and_the_standard_library(loaded: tuple[set[str], set[str]]) -> None:
    tops = {name.partition(".")[0] for name in loaded[1]}
    assert {top for top in tops if top not in sys.stdlib_module_names} == {"edgewise"}


def test_of_edgewise_the_import_loads_the_engine_alone(loaded: tuple[set[str], set[str]]) -> None:
    ours = {".".join(name.split(".")[:2]) for name in loaded[1] if name.startswith("edgewise.")}
    assert ours == {"edgewise.statemachine"}


# ---- one name for each class


@pytest.mark.parametrize("folder", ["statemachine", "adapters", "tools", "diagrams"])
def test_a_folder_refuses_to_be_imported_under_its_bare_name(folder: str) -> None:
    ran = _python(f"import {folder}", cwd=ROOT)
    assert ran.returncode == 1
    assert f"ImportError: import edgewise.{folder}; the bare name would load every class a second time" in ran.stderr
