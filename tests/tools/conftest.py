"""A small workspace beside a secret that nothing may reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgewise.statemachine.messages import ToolCall, ToolResult
from edgewise.statemachine.ports import CallContext
from edgewise.statemachine.results import failed_result, make_result
from edgewise.tools import FunctionTool

SECRET = "the secret"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text(SECRET)
    root = tmp_path / "place"
    (root / "src").mkdir(parents=True)
    (root / "README.md").write_text("hello\n")
    (root / "src" / "index.ts").write_text("let a = 1\nlet b = 2\n")
    (root / "src" / "math.ts").write_text("export {}\n")
    return root


@pytest.fixture
def call() -> Callable[..., ToolResult]:
    """Runs a tool as the engine does, from arguments to result."""

    def call(tool: FunctionTool[..., Any], **arguments: Any) -> ToolResult:
        wish = ToolCall.of(tool.name, **arguments)
        try:
            result = make_result(wish, tool.run(tool.check(arguments), CallContext(wish)))
        except Exception as error:
            result = failed_result(wish, error)
        assert SECRET not in result.text
        result.text.encode()
        return result

    return call
