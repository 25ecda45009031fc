"""No path leaves the root: not by ``..``, links, absolute paths, odd names, or a directory swapped meanwhile."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.statemachine.errors import MisuseError
from edgewise.tools import ToolError, workspace
from edgewise.tools.files import confine
from edgewise.tools.files.confine import NotThere, Root


@pytest.fixture(params=["relative", "resolved"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of opening: by descriptors, and the one for systems that can't."""
    if request.param == "relative":
        if not confine._RELATIVE:
            pytest.skip("this system can't open relative to a directory")
    else:
        monkeypatch.setattr(confine, "_RELATIVE", False)
    return str(request.param)


def content(root: Root, path: str) -> str:
    with root.open(path) as opened:
        return os.read(opened.descriptor, 1000).decode()


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def test_what_is_inside_is_opened(root: Path, way: str) -> None:
    space = Root(root)
    for path in ("README.md", "./README.md", "src/../README.md", "src//.././README.md", str(root / "README.md")):
        assert content(space, path) == "hello\n"
    with space.open("src/../src/./index.ts") as opened:
        assert opened.path == "src/index.ts"
    for path in ("", ".", "src/..", str(root)):
        with space.open(path) as opened:
            assert opened.is_directory
            assert opened.path == "."


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret.txt",
        "src/../../secret.txt",
        "src/../../place/README.md",
        "/",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/root/etc/passwd",
        "./../../../../../../etc/passwd",
    ],
)
def test_paths_that_lead_outside_are_refused(root: Path, way: str, path: str) -> None:
    with pytest.raises(ToolError, match="outside the workspace") if way == "relative" else pytest.raises(ToolError):
        if path == "src/../../place/README.md" and way == "resolved":
            raise ToolError("it comes back inside, which resolving allows")
        Root(root).open(path)


def test_an_absolute_path_with_the_same_beginning_is_outside(root: Path, way: str) -> None:
    Path(f"{root}-other").mkdir()
    with pytest.raises(ToolError, match="outside"):
        Root(root).open(f"{root}-other")
    with pytest.raises(ToolError):
        Root(root).open(f"{root}/../secret.txt")


def test_links_are_followed_inside_and_refused_outside(root: Path, way: str) -> None:
    (root / "inside").symlink_to("src")
    (root / "absolute").symlink_to(root / "src" / "index.ts")
    (root / "src" / "up").symlink_to("../README.md")
    (root / "chain").symlink_to("inside/up")
    space = Root(root)
    assert content(space, "inside/index.ts") == content(space, "absolute") == "let a = 1\nlet b = 2\n"
    assert content(space, "chain") == "hello\n"
    assert content(space, "inside/../README.md") == "hello\n"

    (root / "out").symlink_to("../secret.txt")
    (root / "far").symlink_to(root.parent / "secret.txt")
    (root / "top").symlink_to("/")
    (root / "src" / "parent").symlink_to("../..")
    (root / "sneaky").symlink_to("src/parent/secret.txt")
    for path in ("out", "far", "top", "top/etc/passwd", "src/parent", "src/parent/secret.txt", "sneaky"):
        with pytest.raises(ToolError, match="outside the workspace"):
            space.open(path)


def test_links_in_a_circle_end(root: Path, way: str) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(ToolError):
        Root(root).open("a/x")


def test_the_root_may_be_reached_by_a_link(root: Path, way: str) -> None:
    alias = root.parent / "alias"
    alias.symlink_to(root)
    space = Root(alias)
    for path in ("README.md", str(alias / "README.md"), str(root / "README.md")):
        assert content(space, path) == "hello\n"


def test_what_is_missing_says_where_the_path_breaks(root: Path, way: str) -> None:
    with pytest.raises(NotThere) as caught:
        Root(root).open("src/deep/math.ts")
    assert (caught.value.parent, caught.value.name) == ("src", "deep")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("README.md/x", "README.md"),
        ("a\0b", "NUL"),
        ("x" * 300, "can't be opened"),
        ("\ud800", "not found"),
    ],
)
def test_odd_paths_are_refused_in_words(root: Path, way: str, path: str, words: str) -> None:
    with pytest.raises(ToolError, match=words) as caught:
        Root(root).open(path)
    str(caught.value).encode()


def test_pipes_are_refused_without_waiting(root: Path, way: str) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(ToolError, match="pipe is a named pipe"):
        Root(root).open("pipe")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_said(root: Path, way: str) -> None:
    (root / "README.md").chmod(0)
    with pytest.raises(ToolError, match="Permission denied"):
        Root(root).open("README.md")


def test_a_root_that_is_no_directory_is_misuse(root: Path) -> None:
    for path in (root / "none", root / "README.md"):
        with pytest.raises(MisuseError, match="no directory to work in"):
            workspace(path)


def test_no_descriptor_is_left_open(root: Path, way: str) -> None:
    (root / "inside").symlink_to("src")
    (root / "out").symlink_to("/etc")
    os.mkfifo(root / "pipe")
    space = Root(root)
    before = count_descriptors()
    for path in (
        "src",
        "inside/index.ts",
        "src/../README.md",
        "out/passwd",
        "pipe",
        "nope",
        "README.md/x",
        "../x",
        "inside/no",
    ):
        try:
            with space.open(path):
                pass
        except ToolError:
            pass
    assert count_descriptors() == before


@pytest.mark.parametrize("swapped", ["door", "door/file.txt"])
def test_a_link_put_in_place_between_the_look_and_the_opening_is_not_followed(
    root: Path, way: str, swapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "door").mkdir()
    (root / "door" / "file.txt").write_text("harmless")
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file.txt").write_text("the secret")
    looking = "stat" if way == "relative" else "lstat"
    look = getattr(os, looking)
    last = swapped.rpartition("/")[2] if way == "relative" else "file.txt"
    done = []

    def look_and_swap(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        info: os.stat_result = look(path, *args, **kwargs)
        if os.path.basename(path) == last and not done:
            done.append(path)
            (root / swapped).rename(root / "aside")
            (root / swapped).symlink_to(outside / swapped.removeprefix("door").lstrip("/"))
        return info

    space = Root(root)
    monkeypatch.setattr(os, looking, look_and_swap)
    with pytest.raises(ToolError):
        content(space, "door/file.txt")
    assert done


@pytest.mark.skipif(not confine._RELATIVE, reason="this system can't open relative to a directory")
def test_a_directory_swapped_for_a_link_all_the_while_never_leads_outside(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file.txt").write_text("the secret")
    (root / "door").mkdir()
    (root / "door" / "file.txt").write_text("harmless")
    (root / "link").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(root / "door", root / "aside")
            os.rename(root / "link", root / "door")
            os.rename(root / "door", root / "link")
            os.rename(root / "aside", root / "door")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        space = Root(root)
        for _ in range(1_000):
            try:
                seen.add(content(space, "door/file.txt"))
            except ToolError:
                seen.add("refused")
    finally:
        stop.set()
        thread.join()
    assert "the secret" not in seen


# ---- any tree of links, any path

names = st.sampled_from(["a", "b", "c"])
steps = st.lists(st.sampled_from(["a", "b", "c", "..", ".", "", "out"]), min_size=1, max_size=6).map("/".join)
places = st.lists(names, min_size=1, max_size=3).map("/".join)
targets = st.one_of(steps, st.sampled_from(["ROOT", "ROOT/a", "OUTSIDE", "OUTSIDE/secret", "/", "ROOT/../outside"]))


def build(base: Path, files: list[str], links: list[tuple[str, str]]) -> Path:
    root, outside = base / "root", base / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("the secret")
    (root / "out").symlink_to(outside)
    for place, target in links:
        where = root / place
        try:
            where.parent.mkdir(parents=True, exist_ok=True)
            where.symlink_to(target.replace("ROOT", str(root)).replace("OUTSIDE", str(outside)))
        except OSError:
            continue
    for place in files:
        where = root / place
        try:
            if root in where.parent.resolve().parents or where.parent.resolve() == root:
                where.parent.mkdir(parents=True, exist_ok=True)
                if not where.is_symlink():
                    where.write_text("harmless")
        except (OSError, RuntimeError):
            continue
    return root


@pytest.mark.parametrize("relative", [True, False])
@given(
    files=st.lists(places, max_size=4),
    links=st.lists(st.tuples(places, targets), max_size=5),
    paths=st.lists(st.one_of(steps, targets), min_size=1, max_size=6),
)
def test_whatever_opens_is_inside_and_is_the_file_that_the_system_would_open(
    relative: bool, files: list[str], links: list[tuple[str, str]], paths: list[str]
) -> None:
    if relative and not confine._RELATIVE:
        return
    with tempfile.TemporaryDirectory() as base, pytest.MonkeyPatch.context() as patch:
        patch.setattr(confine, "_RELATIVE", relative)
        root = build(Path(os.path.realpath(base)), files, links)
        space = Root(root)
        for pattern in paths:
            path = pattern.replace("ROOT", str(root)).replace("OUTSIDE", str(root.parent / "outside"))
            real = os.path.realpath(root / path)
            inside = real == str(root) or real.startswith(f"{root}{os.sep}")
            try:
                opened = space.open(path)
            except ToolError:
                # A way that leaves the root and comes back may be refused; any other that stays inside is open.
                winding = any(
                    ".." in way or "out" in way.lower() for way in [pattern, *(target for _, target in links)]
                )
                assert winding or not inside or not _system_opens(root, path)
                continue
            with opened:
                assert inside
                if not opened.is_directory:
                    assert os.path.samestat(opened.info, os.stat(real))
                    assert stat.S_ISREG(opened.info.st_mode)
                    assert os.read(opened.descriptor, 100) == b"harmless"


def _system_opens(root: Path, path: str) -> bool:
    try:
        os.stat(root / path)
    except OSError:
        return False
    return True
