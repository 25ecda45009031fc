"""Reads a step while it streams in: which tool, its arguments piece by piece, or the answer's words."""

from __future__ import annotations

import json
import re
from typing import Any

from edgewise.adapters.models.local.grammar import ANSWER

_HEAD = re.compile(r'\{"tool": "((?:[^"\\]|\\.)*)", "arguments": ')
_TEXT = '{"text": "'
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}


class StepReader:
    """Takes a step's JSON text as it comes; the grammar has seen to its form.

    >>> reader = StepReader()
    >>> reader.feed('{"tool": "read_file", "argum'), reader.feed('ents": {"path": "a')
    ('', '{"path": "a')
    >>> reader.name, reader.feed('.txt"}}')
    ('read_file', '.txt"}')
    """

    __slots__ = ("_at", "_text", "name")

    def __init__(self) -> None:
        self.name = ""
        """The tool, once it is known."""
        self._text = ""
        self._at = 0

    @property
    def answers(self) -> bool:
        return self.name == ANSWER

    def feed(self, piece: str) -> str:
        """What ``piece`` adds: to the arguments' JSON text of a call, or to the words of an answer."""
        self._text += piece
        if not self.name:
            head = _HEAD.match(self._text)
            if head is None:
                return ""
            self.name = json.loads(f'"{head[1]}"')
            self._at = head.end()
        return self._words() if self.answers else self._arguments()

    def _arguments(self) -> str:
        end = len(self._text)
        while end > self._at and self._text[end - 1] == "}":
            end -= 1  # the step's own closing brace is the last of them, whenever that will be
        end += max(0, len(self._text) - end - 1)
        new, self._at = self._text[self._at : end], end
        return new

    def _words(self) -> str:
        text = self._text
        at = self._at
        if text.startswith(_TEXT, at):
            at += len(_TEXT)
        elif _TEXT.startswith(text[at:]):
            return ""
        new: list[str] = []
        while at < len(text) and text[at] != '"':
            if text[at] != "\\":
                new.append(text[at])
                at += 1
                continue
            escape = _ESCAPE.match(text, at)
            if escape is None:
                break  # the rest of it is still to come
            end = escape.end()
            char = _SHORT[escape[2]] if escape[2] else chr(int(escape[1], 16))
            if "\ud800" <= char <= "\udbff":
                low = _ESCAPE.match(text, end)
                if low is None and (end == len(text) or (text[end] == "\\" and len(text) - end < 6)):
                    break
                if low is not None and low[1] and "\udc00" <= chr(int(low[1], 16)) <= "\udfff":
                    char = json.loads(f'"{text[at : low.end()]}"')
                    end = low.end()
            new.append("\ufffd" if "\ud800" <= char <= "\udfff" else char)
            at = end
        self._at = at
        return "".join(new)

    def arguments(self) -> dict[str, Any] | None:
        """The arguments of a finished call; None while the step is not whole."""
        try:
            step = json.loads(self._text)
        except ValueError:
            return None
        arguments = step.get("arguments") if isinstance(step, dict) else None
        return arguments if isinstance(arguments, dict) else None
