"""The examples in docstrings are run.

The modules are found through the installed package, so that each is imported under its one true name, whatever the
folder that its file lies in; ``--doctest-modules`` on the folders would import them under bare ones.
"""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import edgewise

NAMES = ["edgewise", *(m.name for m in pkgutil.walk_packages(edgewise.__path__, "edgewise.", onerror=lambda _: None))]
MODULES = [name for name in NAMES if not name.endswith("__main__")]


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if name.startswith("edgewise.adapters."):
            pytest.skip(f"an extra is not installed: {error.name}")
        raise


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of(name: str) -> None:
    module = _imported(name)
    assert module.__name__ == name
    failed, _ = doctest.testmod(module, verbose=False)
    assert failed == 0


def test_the_engine_has_examples() -> None:
    finder = doctest.DocTestFinder()
    engine = [name for name in MODULES if name.startswith("edgewise.statemachine.")]
    assert len(engine) > 20
    with_examples = [name for name in engine if any(t.examples for t in finder.find(importlib.import_module(name)))]
    assert len(with_examples) >= 8
