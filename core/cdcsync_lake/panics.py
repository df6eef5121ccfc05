"""Panics of the stores' clients as errors.

Why it exists: obstore and delta-rs are Rust, and what they do not expect (credentials, or an answer
of the service that gives them, that no request can carry; a file that is not what it should be)
ends in a panic. Python gets it as a `BaseException` of a class that cannot be imported, which
passes all that handles errors and ends the process. Its text may quote the peer, so none of it is
kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_PANIC = "PanicException"


class ClientPanic(Exception):
    """A client panicked, over whatever it was given."""


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raises ClientPanic for a panic of a client."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise ClientPanic("the client panicked") from None


@contextmanager
def requests_alone() -> Iterator[None]:
    """Raises OSError for a panic of a client that only sends requests, and reads none of the
    content: its credentials are all that can be wrong."""
    try:
        with panics_as_errors():
            yield
    except ClientPanic:
        raise OSError(
            "the store's client panicked: no request can carry its credentials, which the Secret or the cloud's "
            "metadata service gave"
        ) from None
