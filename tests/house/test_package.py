"""What is installed: the wheel's contents, its few dependencies, and the README's example as a stranger runs it."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of what git tracks, so that nothing that lies around gets in."""
    source = tmp_path_factory.mktemp("source")
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, tracked):
        if not (path := ROOT / name).exists() and not path.is_symlink():
            continue
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(source)], check=True
    )
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_one_namespace_with_all_of_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"edgewise", f"edgewise-{_version()}.dist-info"}
    for folder in ("statemachine", "adapters", "tools", "diagrams"):
        here = {str(p.relative_to(ROOT)) for p in (ROOT / folder).rglob("*.py")}
        there = {
            n.removeprefix("edgewise/") for n in names if n.startswith(f"edgewise/{folder}/") and n.endswith(".py")
        }
        assert there == here
    assert "edgewise/py.typed" in names
    assert "edgewise/adapters/cli/sample/README.md" in names


def _version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


@pytest.mark.slow
def test_the_wheel_works_where_nothing_else_of_ours_is(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(installed), str(wheel)],
        check=True,
    )
    program = (
        "import edgewise, edgewise.tools, edgewise.diagrams\n"
        "from edgewise.adapters.models.scripted import ScriptedModel\n"
        f"assert edgewise.__file__.startswith({str(installed)!r}), edgewise.__file__\n"
        "print(edgewise.Agent(ScriptedModel(['works'])).run_sync('hi').text)\n"
    )
    path = f"import sys; sys.path.insert(0, {str(installed)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", path + program], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout == "works\n"


def test_the_version_is_said_once_and_the_same() -> None:
    import edgewise

    assert edgewise.__version__ == _version()
    assert f"## {_version()}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_drawn_pages_are_current() -> None:
    from edgewise.diagrams import machine_page

    assert (ROOT / "diagrams" / "machine.md").read_text() == machine_page()


def test_every_example_in_the_readme_is_python_and_names_what_exists() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        tree = compile(block, "README.md", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("edgewise"):
                found = importlib.import_module(node.module)
                assert all(hasattr(found, alias.name) for alias in node.names), block


@pytest.mark.model
def test_the_readmes_example_runs_as_it_stands(tmp_path: Path) -> None:
    block = re.search(r"## Ten lines\n\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    (tmp_path / "notes.txt").write_text("one two three\n")
    (tmp_path / "README.md").write_text("# A workspace\n")
    program = tmp_path.parent / "readme_example.py"
    program.write_text(block[1])
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done ")
    assert "notes.txt" in done.stdout
