"""The check of a sink in a process of its own: whatever a store answers, the operator keeps its
time and its memory.

Why it exists: the operator checks the stores of many tenants, and the client of a store bounds a
request, not a listing of pages without end, nor what it keeps of an answer. Why it is right: the
process bounds the memory that it may have before it connects; its parent ends it when its time is
over or the question is given up. It connects through a proxy that holds the operator's policy of
networks against every address (`checked_proxy`). It is given where the lake is and which folder has
the credentials, never a credential; what it reports is bounded, and what it does not report is an
error that is tried again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
import threading

from cdcsync_core.errors import CdcError, Reason, fail, from_json
from cdcsync_lake.check import SinkCheck, check_lake
from cdcsync_lake.checked_proxy import CheckedProxy
from cdcsync_lake.location import Location
from cdcsync_mysql.sessions.question import Question

#: a check of a store that answers takes a second
_SECONDS = 60.0
#: of the heap and the stacks; a check of a store that answers takes a third of it
_MEMORY = 80 * 2**20
_ANSWER_BYTES = 2**18
#: of each thread of the proxy, because stacks count as memory
_STACK = 256 * 2**10
_TICK = 0.1
#: one thread for the client's work, one heap for all threads: each would count its address space
_FRUGAL = {"TOKIO_WORKER_THREADS": "1", "MALLOC_ARENA_MAX": "1"}


def check_apart(location: Location, question: Question, seconds: float = _SECONDS) -> SinkCheck:
    """As `check_lake`, within bounds; the process ends with the question."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | _FRUGAL,
    ) as process:
        try:
            with question.within(seconds):
                answer = _answer(process, location, question)
        finally:
            process.kill()
    if answer is None:
        return _unknown(location, "did not end in time")
    try:
        errors = tuple(from_json(text) for text in json.loads(answer))
    except (ValueError, TypeError, KeyError):
        return _unknown(location, f"ended without an answer (exit {process.returncode})")
    return SinkCheck(location.uri, errors)


def _answer(process: subprocess.Popen[bytes], location: Location, question: Question) -> bytes | None:
    """None where its time is over."""
    assert process.stdin
    try:
        process.stdin.write(
            json.dumps({"location": dataclasses.asdict(location), "refused": question.refused_networks}).encode()
        )
        process.stdin.close()
    except BrokenPipeError:
        return b""
    process.stdin = None
    while not question.stopped:
        try:
            return process.communicate(timeout=_TICK)[0]
        except subprocess.TimeoutExpired:
            continue
    return None


def _unknown(location: Location, found: str) -> SinkCheck:
    error = fail(
        Reason.SINK_UNREACHABLE,
        f"the check of {location.uri} {found}",
        needed="a store that answers within the operator's bounds of time and memory",
        remedy="check options.endpoint of spec.sink, and that the store is up",
    )
    return SinkCheck(location.uri, (error,))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(_STACK)
    asked = json.load(sys.stdin)
    with CheckedProxy(lambda: tuple(asked["refused"])) as proxy:
        errors: tuple[CdcError, ...] = check_lake(Location(**asked["location"]), proxy=proxy.url).errors
    refusal = proxy.take_refusal()
    text = json.dumps([error.to_json() for error in ((refusal,) if refusal else errors)])
    sys.stdout.write(text if len(text) <= _ANSWER_BYTES else "")


if __name__ == "__main__":
    main()
