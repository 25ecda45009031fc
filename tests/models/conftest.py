"""What tests with the real model share: its weights, and a real server that serves it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from openai_compatible_server import ServerUnderTest


@pytest.fixture(scope="session")
def local_weights() -> Path:
    """The file of the default model, pulled when it is missing."""
    from edgewise.adapters.models.local import pull

    return pull().path


@pytest.fixture(scope="session")
def one_thread() -> Iterator[None]:
    """The embedded model computes in one thread: two starve on a busy machine."""
    os.environ["EDGEWISE_LOCAL_THREADS"] = "1"
    yield
    del os.environ["EDGEWISE_LOCAL_THREADS"]


@pytest.fixture(scope="session")
def openai_server(local_weights: Path) -> Iterator[ServerUnderTest]:
    """A real OpenAI-compatible server with the default model, for the whole session."""
    name = "openai_compatible_server"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.openai_server(local_weights) as server:
        yield cast("ServerUnderTest", server)
