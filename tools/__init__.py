"""What an agent can do: the ``@tool`` decorator and the built-in tools."""

if __name__ != "edgewise.tools":
    raise ImportError("import edgewise.tools; the bare name would load every class a second time")

from edgewise.tools.errors import ToolError
from edgewise.tools.files.listing import list_files
from edgewise.tools.files.reading import read_file
from edgewise.tools.files.toolset import workspace
from edgewise.tools.functions import FunctionTool, tool

__all__ = ["FunctionTool", "ToolError", "list_files", "read_file", "tool", "workspace"]
