"""The error that a tool raises when it knows what the model should hear."""

from __future__ import annotations

from edgewise.statemachine.errors import EdgewiseError


class ToolError(EdgewiseError):
    """A tool can't do what was asked. The message is written for the model, which sees it as it is.

    Say what was wrong, where, and what would be right: "File not found: src/maths.ts. Did you mean src/math.ts?"
    Any other exception reaches the model too, with the name of its class in front.
    """

    for_model = True
