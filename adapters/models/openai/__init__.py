"""OpenAI's Chat Completions wire, and every server that speaks it."""

from edgewise.adapters.models.openai.model import OpenAIModel

__all__ = ["OpenAIModel"]
