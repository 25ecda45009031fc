"""The tools for one workspace, together."""

from __future__ import annotations

import os
from typing import Any

from edgewise.tools.files.confine import Root
from edgewise.tools.files.listing import list_files
from edgewise.tools.files.reading import read_file
from edgewise.tools.functions import FunctionTool


def workspace(root: str | os.PathLike[str] = ".") -> list[FunctionTool[..., Any]]:
    """The tools to look at the files in the directory ``root``, which no path that a model gives can leave.

    They are ``list_files`` and ``read_file``; each can also be had alone. Raises MisuseError when there is no such
    directory.

    >>> [tool.name for tool in workspace(".")]
    ['list_files', 'read_file']
    """
    space = Root(root)
    return [list_files(space), read_file(space)]
