"""The tools for files inside a workspace: see :func:`edgewise.tools.files.toolset.workspace`."""
