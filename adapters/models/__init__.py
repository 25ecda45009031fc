"""Models: ``model("provider:name")`` finds one; each adapter is a module of its own, imported when asked for."""

from edgewise.adapters.models.registry import model

__all__ = ["model"]
