"""Pictures of the machine, made from its table alone.

``python -m edgewise.diagrams`` writes them; with ``--check`` it says which are stale.
"""

if __name__ != "edgewise.diagrams":
    raise ImportError("import edgewise.diagrams; the bare name would load every class a second time")

from edgewise.diagrams.markdown import machine_page, mermaid, row_table

__all__ = ["machine_page", "mermaid", "row_table"]
