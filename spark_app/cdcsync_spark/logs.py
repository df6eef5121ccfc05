"""The loggers of the Spark application: structlog's.

Where it finds rich, structlog shows a traceback with the values of all local variables, which may
be passwords or rows. Here it shows the lines alone.
"""

from __future__ import annotations

import sys

import structlog

get_logger = structlog.get_logger

if not structlog.is_configured():  # by a program that reads our sources
    *_before, _ = structlog.get_config()["processors"]
    _lines = structlog.dev.ConsoleRenderer(
        colors=sys.stdout.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(processors=[*_before, _lines])
