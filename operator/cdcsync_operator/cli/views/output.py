"""What commands print: data on stdout, everything else on stderr, each for people or as JSON for
programs.

Why it exists: a command prints a thing once; whether it becomes a coloured table or a JSON object
is decided here. Errors always state what was found, what was needed and what to do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from cdcsync_core.errors import CdcError, message_parts
from cdcsync_core.quoting import visible


def shown(text: str) -> str:
    """Text of others in rich's markup: nothing in it is a tag, and nothing in it is acted on by a
    terminal."""
    return escape(visible(text))


def _json(value: Any) -> str:
    """The same data, with what a terminal would act on written as JSON escapes."""
    text = json.dumps(value, ensure_ascii=False)
    return text if visible(text) == text else "".join(c if visible(c) == c else json.dumps(c)[1:-1] for c in text)


class Output:
    """`as_json`: the JSON twin. `console` is stdout, `notes` stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())
        self.notes = Console(file=sys.stderr, highlight=False, soft_wrap=True)

    def data(self, value: Any, render: Callable[[Console], None]) -> None:
        """The command's result: `value` as one JSON object, or drawn by `render`."""
        if self.as_json:
            self.line(value)
        else:
            render(self.console)

    def line(self, value: Any) -> None:
        """One JSON object a line, at once, so that a program can follow."""
        sys.stdout.write(_json(value) + "\n")
        sys.stdout.flush()

    def note(self, text: str, kind: str = "note") -> None:
        """A message for people who watch."""
        if self.as_json:
            sys.stderr.write(_json({kind: text}) + "\n")
        else:
            style = {"warning": "yellow"}.get(kind, "dim")
            self.notes.print(f"[{style}]{kind}:[/] {shown(text)}")

    def warn(self, text: str) -> None:
        self.note(text, "warning")

    def error(self, error: CdcError) -> None:
        if error.composed:
            self.failure(error.reason.value, error.message)
            return
        found = f"{error.table}: {error.found}" if error.table else error.found
        self._part(error.reason.value, {"found": found, "needed": error.needed, "remedy": error.remedy})

    def failure(self, reason: str, message: str) -> None:
        """A reason and its message: one failure a line, each `found[; needed: ...][; remedy:
        ...]`."""
        for part in message.split("\n"):
            self._part(reason, message_parts(part))

    def _part(self, reason: str, parts: Mapping[str, str]) -> None:
        pieces = {k: v for k, v in parts.items() if v}
        if self.as_json:
            sys.stderr.write(_json({"error": {"reason": reason, **pieces}}) + "\n")
            return
        self.notes.print(f"[bold red]error:[/] {shown(reason)}")
        for name, text in pieces.items():
            self.notes.print(f"  [bold]{name + ':':8}[/] {shown(text)}")
