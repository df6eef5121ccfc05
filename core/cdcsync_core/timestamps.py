"""Time as the status has it: RFC 3339 text, from and to seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime


def utc(seconds: float) -> str:
    """RFC 3339, to the second."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def unix_time(text: str | None) -> float | None:
    """Unix seconds of RFC 3339 text; None where it is missing or empty."""
    return datetime.fromisoformat(text).timestamp() if text else None
