"""What a check of `spec.start` is asked, and what it answers: one form for the process that
searches the binlog and the command that shows it.

The command starts `python -m cdcsync_spark.app.start_check`, whose standard input is a
`StartQuestion` and whose standard output is a `StartAnswer`, each one JSON object.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from cdcsync_core.errors import CdcError, from_json


@dataclass(frozen=True)
class StartQuestion:
    """Holds no secret: `secrets_dir` has `<secret name>/<key>` files."""

    resource: dict[str, Any]
    secrets_dir: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> StartQuestion:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class StartAnswer:
    """`place` is where the content would begin, or `error` why it cannot."""

    place: str = ""
    error: CdcError | None = None

    def to_json(self) -> str:
        error = None if self.error is None else self.error.to_json()
        return json.dumps({"place": self.place, "error": error}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> StartAnswer:
        """Raises ValueError, KeyError or TypeError for what is no answer."""
        data = json.loads(text)
        return cls(data["place"], None if data["error"] is None else from_json(data["error"]))
