"""What a docstring says of its function and of each parameter: Google, NumPy and Sphinx styles.

The libraries that do this (docstring-parser, griffe) would each add a package to the core for these few lines. What is
read here is only what a model is told: the text before the first section, and ``name: text`` entries. Whoever needs
more writes ``Annotated[str, "what it is"]``, which wins over the docstring.
"""

from __future__ import annotations

import inspect
import re
import textwrap

_PARAMETERS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters"}
_OTHERS = {
    "returns",
    "return",
    "yields",
    "yield",
    "raises",
    "example",
    "examples",
    "attributes",
    "see also",
    "references",
}
_GOOGLE = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\(.*?\))?\s*:\s*(?P<text>.*)")
_NUMPY = re.compile(r"\*{0,2}(?P<name>\w+(?:\s*,\s*\w+)*)\s*(?::.*)?(?P<text>)")
_SPHINX = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(?P<name>\w+):\s*(?P<text>.*)"
)
_SPHINX_OTHER = re.compile(r":(?:type|returns?|rtype|raises?|except|exception|var|ivar|cvar|meta)\b[^:]*:.*")


def read_docstring(docstring: str | None) -> tuple[str, dict[str, str]]:
    """The description and, by name, what is said of the parameters.

    >>> read_docstring('''Count words.
    ...
    ...     Args:
    ...         path: The file
    ...             to count.
    ... ''')
    ('Count words.', {'path': 'The file to count.'})
    """
    description: list[str] = []
    parameters: dict[str, str] = {}
    for style, body in _sections(inspect.cleandoc(docstring or "").splitlines()):
        if style is None:
            description = body
        elif style is not _OTHER:
            parameters.update(_entries(style, textwrap.dedent("\n".join(body)).splitlines()))
    return "\n".join(description).strip(), parameters


_OTHER = re.compile("")


def _sections(lines: list[str]) -> list[tuple[re.Pattern[str] | None, list[str]]]:
    """The text in sections, each with the style of its entries; the first, without one, is the description."""
    sections: list[tuple[re.Pattern[str] | None, list[str]]] = [(None, [])]
    for i, line in enumerate(lines):
        underlined = i + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[i + 1].strip()) is not None
        heading = line.strip().removesuffix(":").lower() if underlined or re.fullmatch(r"\S[^:]*:", line) else ""
        if heading in _PARAMETERS:
            sections.append((_NUMPY if underlined else _GOOGLE, []))
        elif heading in _OTHERS or _SPHINX_OTHER.fullmatch(line):
            sections.append((_OTHER, []))
        elif _SPHINX.fullmatch(line):
            sections.append((_SPHINX, [line]))
        else:
            sections[-1][1].append(line)
    return sections


def _entries(style: re.Pattern[str], lines: list[str]) -> dict[str, str]:
    """Each name with its text; lines that stand further in go on with the entry above."""
    found: dict[str, list[str]] = {}
    entry: list[str] = []
    for line in lines:
        match = None if line.startswith((" ", "---")) else style.fullmatch(line)
        if match is None:
            entry.append(line)
        else:
            entry = [match["text"]]
            found.update(dict.fromkeys(re.split(r"\s*,\s*", match["name"]), entry))
    texts = {name: " ".join(" ".join(words).split()) for name, words in found.items()}
    return {name: text for name, text in texts.items() if text}
