"""``read_file``: the lines of a text, or a picture."""

from __future__ import annotations

import base64
import mimetypes
import os
from collections.abc import Iterator
from typing import Annotated, Any, TextIO

from edgewise.statemachine.arguments import mended
from edgewise.statemachine.messages import Image, Text
from edgewise.statemachine.ports import CallContext
from edgewise.statemachine.rendering import media_type_of
from edgewise.statemachine.results import IMAGE_LIMIT, IMAGE_TYPES
from edgewise.tools.errors import ToolError
from edgewise.tools.files.confine import NotThere, Opened, Root
from edgewise.tools.files.naming import shown_path, shown_size
from edgewise.tools.files.nearest import with_suggestions
from edgewise.tools.functions import FunctionTool, tool

MOST_LINES = 2_000
MOST_BYTES = 49_500
"""50 KB with the closing note, so that the text fits into a result."""

_HEAD = 8_192
_COUNTED = 16_000_000
"""Bytes of a file whose lines are counted to the end; of longer ones only the lines up to those shown are."""


def read_file(root: str | os.PathLike[str] | Root = ".") -> FunctionTool[..., Any]:
    """The tool that reads the files in the directory ``root``: texts by lines, pictures as a whole."""
    from msgspec import Meta

    space = root if isinstance(root, Root) else Root(root)

    @tool(replay="safe")
    def read_file(
        path: Annotated[str, "The file, relative to the workspace."],
        offset: Annotated[int, Meta(ge=1, description="The first line to read, counted from 1.")] = 1,
        limit: Annotated[int, Meta(ge=1, description="How many lines to read, at most 2000.")] = MOST_LINES,
        context: CallContext | None = None,
    ) -> str | list[Text | Image]:
        """Read a text file or picture of the workspace. Long files come in parts; the last line says how to go on."""
        try:
            with space.open(path) as opened:
                return _content(opened, offset, min(limit, MOST_LINES), context)
        except NotThere as missing:
            raise with_suggestions(space, missing) from None

    return read_file


def _content(opened: Opened, offset: int, limit: int, context: CallContext | None) -> str | list[Text | Image]:
    name = shown_path(opened.path)
    if opened.is_directory:
        raise ToolError(
            f'{name} is a directory, not a file. Use list_files with path "{opened.path}" to see what is in it.'
        )
    size = opened.info.st_size
    with open(opened.descriptor, "rb", closefd=False) as file:
        head = file.read(_HEAD)
        media_type = media_type_of(head)
        if media_type in IMAGE_TYPES:
            data = head + file.read(IMAGE_LIMIT + 1 - len(head))
            if len(data) > IMAGE_LIMIT:
                raise ToolError(
                    f"{name} is a picture of {shown_size(size)}, and only {shown_size(IMAGE_LIMIT)} can be shown."
                )
            words = Text(f"{name} ({media_type}, {shown_size(len(data))})")
            return [words, Image(base64.b64encode(data).decode("ascii"), media_type)]
        wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
        if media_type is not None or (b"\0" in head and not wide):
            kind = media_type or mimetypes.guess_type(opened.path)[0] or "unknown type"
            raise ToolError(
                f"{name} is a binary file ({kind}, {shown_size(size)}); only texts and pictures can be read."
            )
    os.lseek(opened.descriptor, 0, os.SEEK_SET)
    encoding, errors = ("utf-16", "replace") if wide else ("utf-8-sig", "surrogateescape")
    with open(opened.descriptor, encoding=encoding, errors=errors, closefd=False) as text:
        return _lines_from(text, name, offset, limit, context, count=size <= _COUNTED)


def _lines_from(text: TextIO, name: str, offset: int, limit: int, context: CallContext | None, count: bool) -> str:
    shown: list[str] = []
    notes: list[str] = []
    number, room, full = 0, MOST_BYTES, False
    for number, (line, cut) in enumerate(_lines(text), 1):
        if number % 10_000 == 0 and context is not None and context.cancelled:
            raise ToolError("Cancelled.")
        if number < offset or full:
            continue
        tidy = mended(line)
        size = len(tidy.encode()) + 1
        if size > room or cut:
            if shown:
                full = True
                if not count:
                    break
                continue
            tidy = tidy.encode()[:room].decode(errors="ignore")
            notes.append(f"Line {number} is longer than 50 KB; only its beginning is shown.")
            size = room
        if tidy != line and not notes:
            notes.append("Bytes that are no UTF-8 are shown as �.")
        shown.append(tidy)
        room -= size
        if len(shown) >= limit or room <= 0:
            full = True
            if not count:
                break
    if not number:
        return f"[{name} is empty.]"
    if not shown:
        raise ToolError(f"{name} has {number:,} {'line' if number == 1 else 'lines'}; offset {offset} is past its end.")
    last = offset + len(shown) - 1
    if not count and full:
        notes.append(f"Lines {offset}-{last}. To go on, read with offset={last + 1}.")
    elif last < number:
        notes.append(f"Lines {offset}-{last} of {number}. To go on, read with offset={last + 1}.")
    elif offset > 1:
        notes.append(f"Lines {offset}-{last} of {number}: the end of the file.")
    body = "\n".join(shown)
    return f"{body}\n\n[{' '.join(notes)}]" if notes else body


def _lines(text: TextIO) -> Iterator[tuple[str, bool]]:
    """Each line without its end, and whether it was too long to keep whole."""
    while piece := text.readline(MOST_BYTES):
        line, cut = piece, False
        while not piece.endswith("\n") and (piece := text.readline(MOST_BYTES)):
            cut = cut or piece != "\n"
        yield line.removesuffix("\n"), cut
