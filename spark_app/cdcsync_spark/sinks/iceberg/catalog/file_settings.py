"""The settings of a table's files, as the answers of a REST catalog have them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def file_settings(body: Mapping[str, Any], location: str) -> dict[str, str]:
    """The settings of the files at `location`: credentials for the longest prefix of it go before
    those for all."""
    given = [each for each in body.get("storage-credentials") or () if isinstance(each, dict)]
    fitting = [each for each in given if location.startswith(str(each.get("prefix") or ""))]
    best = max(fitting, key=lambda each: len(str(each.get("prefix") or "")), default={})
    return _texts(body.get("config")) | _texts(best.get("config"))


def _texts(config: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in config.items()} if isinstance(config, dict) else {}
