"""``read_file``: lines in parts that say how to go on, pictures, and errors that lead to the right path."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from edgewise.statemachine.messages import Image, Text, ToolCall, ToolResult
from edgewise.statemachine.ports import CallContext
from edgewise.statemachine.results import IMAGE_LIMIT
from edgewise.tools import ToolError, read_file
from edgewise.tools.files import reading

Call = Callable[..., ToolResult]
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def error_of(result: ToolResult) -> str:
    assert result.is_error
    return result.text


def test_a_short_file_is_given_whole_and_clean(root: Path, call: Call) -> None:
    result = call(read_file(root), path="src/index.ts")
    assert not result.is_error
    assert result.text == "let a = 1\nlet b = 2"


def test_a_tool_can_be_called_like_a_function(root: Path) -> None:
    assert read_file(root)("README.md") == "hello"


def test_offset_and_limit_choose_lines_and_the_note_says_how_to_go_on(root: Path, call: Call) -> None:
    (root / "n.txt").write_text("".join(f"line {i}\n" for i in range(1, 11)))
    tool = read_file(root)
    assert call(tool, path="n.txt", offset=3, limit=2).text == (
        "line 3\nline 4\n\n[Lines 3-4 of 10. To go on, read with offset=5.]"
    )
    assert call(tool, path="n.txt", offset="9").text == "line 9\nline 10\n\n[Lines 9-10 of 10: the end of the file.]"
    assert call(tool, path="n.txt", limit=10).text.endswith("line 10")


def test_two_thousand_lines_at_most(root: Path, call: Call) -> None:
    (root / "n.txt").write_text("\n".join(str(i) for i in range(1, 5001)))
    result = call(read_file(root), path="n.txt", limit=100_000)
    assert result.text.startswith("1\n2\n")
    assert result.text.endswith("\n2000\n\n[Lines 1-2000 of 5000. To go on, read with offset=2001.]")


def test_fifty_kilobytes_at_most_and_all_parts_make_the_file(root: Path, call: Call) -> None:
    lines = [f"{i} " + "é" * 300 for i in range(1, 400)]
    (root / "n.txt").write_text("\n".join(lines), encoding="utf-8")
    got: list[str] = []
    while len(got) < len(lines):
        text = call(read_file(root), path="n.txt", offset=len(got) + 1).text
        assert len(text.encode()) <= 50_000
        assert "left out" not in text, "the result must not be cut once more"
        got += text.rpartition("\n\n[")[0].split("\n")
    assert got == lines


def test_a_line_longer_than_that_is_shown_by_its_beginning(root: Path, call: Call) -> None:
    (root / "n.txt").write_text("é" * 200_000 + "\nnext\n", encoding="utf-8")
    text = call(read_file(root), path="n.txt").text
    assert len(text.encode()) <= 50_000
    assert text.startswith("é" * 20_000)
    assert text.endswith(
        "[Line 1 is longer than 50 KB; only its beginning is shown. Lines 1-1 of 2. To go on, read with offset=2.]"
    )
    assert call(read_file(root), path="n.txt", offset=2).text.startswith("next\n")


def test_the_lines_of_a_huge_file_are_not_counted(root: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_COUNTED", 10)
    (root / "n.txt").write_text("\n".join(str(i) for i in range(1, 50)))
    text = call(read_file(root), path="n.txt", offset=2, limit=3).text
    assert text == "2\n3\n4\n\n[Lines 2-4. To go on, read with offset=5.]"
    assert call(read_file(root), path="n.txt", offset=48).text == "48\n49\n\n[Lines 48-49 of 49: the end of the file.]"


def test_an_offset_past_the_end_says_the_length(root: Path, call: Call) -> None:
    assert error_of(call(read_file(root), path="src/index.ts", offset=3)) == (
        "src/index.ts has 2 lines; offset 3 is past its end."
    )
    assert (
        error_of(call(read_file(root), path="README.md", offset=9)) == "README.md has 1 line; offset 9 is past its end."
    )


def test_an_offset_below_one_is_refused_by_the_schema(root: Path, call: Call) -> None:
    assert error_of(call(read_file(root), path="README.md", offset=0)) == (
        "Invalid arguments for read_file: offset: expected at least 1, got 0"
    )


def test_an_empty_file_says_so(root: Path, call: Call) -> None:
    (root / "empty.txt").touch()
    assert call(read_file(root), path="empty.txt").text == "[empty.txt is empty.]"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\r\n", "a\nb"),
        (b"a\rb", "a\nb"),
        (b"\xef\xbb\xbfa", "a"),
        ("é\nb".encode("utf-16"), "é\nb"),
        (b"caf\xe9", "caf\ufffd\n\n[Bytes that are no UTF-8 are shown as \ufffd.]"),
    ],
)
def test_line_ends_and_encodings_are_read(root: Path, call: Call, data: bytes, text: str) -> None:
    (root / "n.txt").write_bytes(data)
    assert call(read_file(root), path="n.txt").text == text


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.pdf", b"%PDF-1.7", "application/pdf"),
        ("a.bin", b"ab\0cd", "application/octet-stream"),
        ("a.zip", b"PK\x03\x04....", "application/zip"),
        ("a", b"\0\1\2", "unknown type"),
    ],
)
def test_a_binary_file_is_refused_with_its_type(root: Path, call: Call, name: str, data: bytes, kind: str) -> None:
    (root / name).write_bytes(data)
    said = error_of(call(read_file(root), path=name))
    assert said == f"{name} is a binary file ({kind}, {len(data)} bytes); only texts and pictures can be read."


def test_a_picture_comes_as_a_picture_whatever_its_name(root: Path, call: Call) -> None:
    (root / "a.txt").write_bytes(PNG)
    words, picture = call(read_file(root), path="a.txt").content
    assert words == Text("a.txt (image/png, 28 bytes)")
    assert picture == Image(base64.b64encode(PNG).decode(), "image/png")


def test_a_picture_too_large_is_refused_with_its_size(root: Path, call: Call) -> None:
    with (root / "a.png").open("wb") as file:
        file.write(PNG)
        file.truncate(IMAGE_LIMIT + 1)
    assert error_of(call(read_file(root), path="a.png")) == (
        "a.png is a picture of 3.8 MB, and only 3.8 MB can be shown."
    )


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("src/maths.ts", "src/math.ts"),
        ("math.ts", "src/math.ts"),
        ("sorc/math.ts", "src/math.ts"),
        ("lib/index.ts", "src/index.ts"),
        ("src/INDEX.TS", "src/index.ts"),
        ("src\\index.ts", "src/index.ts"),
        ("readme", "README.md"),
        ("src/src/math.ts", "src/math.ts"),
    ],
)
def test_a_missing_file_answers_with_the_nearest_names(root: Path, call: Call, path: str, nearest: str) -> None:
    said = error_of(call(read_file(root), path=path))
    assert said.startswith(f"File not found: {path}. Did you mean {nearest}")


def test_a_misspelt_directory_is_mended_before_the_file_name(root: Path, call: Call) -> None:
    (root / "index.js").touch()
    assert "Did you mean src/index.ts" in error_of(call(read_file(root), path="scr/index.ts"))


def test_several_near_names_are_all_named(root: Path, call: Call) -> None:
    for name in ("data1.csv", "data2.csv"):
        (root / name).touch()
    assert error_of(call(read_file(root), path="data.csv")) in (
        "File not found: data.csv. Did you mean data1.csv or data2.csv?",
        "File not found: data.csv. Did you mean data2.csv or data1.csv?",
    )


def test_a_missing_file_unlike_any_points_to_the_list(root: Path, call: Call) -> None:
    said = error_of(call(read_file(root), path="zzzzzz"))
    assert said == "File not found: zzzzzz. Use list_files to see what is there."


def test_a_directory_is_refused_with_the_tool_to_use(root: Path, call: Call) -> None:
    assert error_of(call(read_file(root), path="src")) == (
        'src is a directory, not a file. Use list_files with path "src" to see what is in it.'
    )


def test_outside_is_refused_and_names_nothing_of_it(root: Path, call: Call) -> None:
    (root / "out").symlink_to(root.parent)
    for path in ("../secret.txt", "../secre.txt", "out/secret.txt", "/etc/passwd"):
        said = error_of(call(read_file(root), path=path))
        assert "outside the workspace" in said
        assert "Did you mean" not in said


def test_a_cancelled_call_stops_early(root: Path) -> None:
    (root / "n.txt").write_text("\n" * 50_000)
    context = CallContext(ToolCall("1", "read_file"))
    context.cancel()
    tool = read_file(root)
    with pytest.raises(ToolError, match="Cancelled"):
        tool.run({"path": "n.txt", "offset": 49_000}, context)
