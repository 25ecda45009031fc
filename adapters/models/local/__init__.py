"""A language model in this process: no key, no network, no server.

``local()`` gives one as a Model; ``pull`` fetches its file, which the first reply does too when it is missing.
"""

from edgewise.adapters.models.local.model import LocalModel, local
from edgewise.adapters.models.local.pull import Pulled, pull
from edgewise.adapters.models.local.transfer import Progress, PullError, PullStopped
from edgewise.adapters.models.local.weights import DEFAULT, Weights, is_pulled, known_models

__all__ = [
    "DEFAULT",
    "LocalModel",
    "Progress",
    "PullError",
    "PullStopped",
    "Pulled",
    "Weights",
    "is_pulled",
    "known_models",
    "local",
    "pull",
]
