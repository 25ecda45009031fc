"""The answers that hooks give: on a turn (go on, finish, limit) and on a call (allow, deny, ask)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import attrs


@attrs.frozen
class Continue:
    """Go on, if anything is left to do."""

    kind: ClassVar[str] = "continue"


@attrs.frozen
class Finish:
    """The run is done, whatever is left."""

    kind: ClassVar[str] = "finish"
    reason: str = ""


@attrs.frozen
class Limit:
    """A limit is reached. With ``wrap_up`` the model gets one closing word, without tools."""

    kind: ClassVar[str] = "limit"
    reason: str
    wrap_up: bool = False


Verdict: TypeAlias = Continue | Finish | Limit


@attrs.frozen
class Allow:
    """The call may run, with ``arguments`` instead of the model's when given (they are validated again)."""

    arguments: Mapping[str, Any] | None = None


@attrs.frozen
class Deny:
    """The call may not run; the model reads ``reason``. With ``stop`` the run ends, ``aborted``, with that reason."""

    reason: str
    stop: bool = False


@attrs.frozen
class Ask:
    """A person decides: the call is held until ``run.approve`` or ``run.refuse``."""

    reason: str = ""


Permission: TypeAlias = Allow | Deny | Ask
