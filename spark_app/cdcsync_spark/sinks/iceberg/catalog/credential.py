"""A credential of a catalog's Secret, as a run has it: the content of a file."""

from __future__ import annotations

from pathlib import Path

from cdcsync_core.errors import RUN_AGAIN, Reason, fail


def secret(file: Path) -> str:
    """A line end that an editor added is no part of it."""
    try:
        text = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        text = ""
    if not text or not text.isprintable():
        raise fail(
            Reason.SPEC_INVALID,
            f"no readable credential in {file.parent.name}/{file.name}",
            needed="the Secret of spec.sink.iceberg.catalog.credentialsSecretRef, with its keys",
            remedy=f"correct the Secret, {RUN_AGAIN}",
        )
    return text
