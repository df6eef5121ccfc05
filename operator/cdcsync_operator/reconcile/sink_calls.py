"""The check of the sink as controllers and commands ask for it.

Why it is right: only who has the driver's own credentials can check for the driver. On this machine
that is everyone. On a cluster it is the operator where the manifest names a Secret for the sink; a
cloud's identity, and a folder that the podTemplates mount, are the pods' own, so nothing is claimed
of them: the driver finds out. Brokers of topics name the addresses that their clients connect to,
so on a cluster only drivers ask them: the author of a manifest must not choose whom the operator
speaks with. On this machine they are asked in a process of its own, because their client belongs to
the Spark side.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.source_table import TableId
from cdcsync_core.spec import CdcSync
from cdcsync_core.topic_check import TopicChecks, TopicQuestion
from cdcsync_lake.check import SinkCheck, check_lake
from cdcsync_lake.location import Location

_NO_SECRET = "no credentialsSecretRef in spec.sink: the driver uses an identity of its own"
_NO_KEYS = "no access key in the Secret of the sink: the driver uses an identity of its own"
#: without these a client would take the operator's own identity, which is not for the authors of
#: manifests
_KEYS = frozenset(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
_NO_STORE = "a folder of the driver's pods"
_TOPICS = (sys.executable, "-m", "cdcsync_spark.app.topic_check")
#: a check of brokers that answer takes two
_TOPICS_SECONDS = 90.0
_TAIL = 500


def check_sink(resource: CdcSync, secrets: Path, tables: Sequence[TableId] = ()) -> SinkCheck:
    """With this process's own rights and the Secret's credentials; also the topics of `tables`."""
    sink = resource.spec.sink.kind
    location = sink.location()
    try:
        found = check_lake(Location.of(location, secrets))
    except CdcError as error:
        found = SinkCheck(location.path, (error,))
    return replace(found, topics=_check_topics(resource, secrets, tables)) if sink.topics else found


def _check_topics(resource: CdcSync, secrets: Path, tables: Sequence[TableId]) -> TopicChecks:
    question = TopicQuestion(resource.to_dict(), str(secrets), tuple(tables))
    try:
        answer = subprocess.run(
            _TOPICS, input=question.to_json(), capture_output=True, text=True, timeout=_TOPICS_SECONDS, check=False
        )
        return TopicChecks.from_json(answer.stdout)
    except subprocess.TimeoutExpired:
        ended = f"did not end within {_TOPICS_SECONDS:.0f} s"
    except (ValueError, KeyError, TypeError):
        ended = f"ended without an answer: {quoted(answer.stderr[-_TAIL:])}"
    error = fail(
        Reason.SINK_UNREACHABLE,
        f"the check of the brokers {ended}",
        needed="brokers that answer",
        remedy="check spec.sink.kafka.bootstrapServers, and that the brokers are up",
    )
    return TopicChecks(errors=(error,))


def check_sink_from_cluster(
    resource: CdcSync, secrets: Path, check: Callable[[Location], SinkCheck] = check_lake
) -> SinkCheck:
    """By `check`; unchecked where only the driver's pods reach it."""
    sink = resource.spec.sink.kind.location()
    try:
        location = Location.of(sink, secrets)
    except CdcError as error:
        return SinkCheck(sink.path, (error,))
    if location.local:
        return SinkCheck(location.uri, unchecked=_NO_STORE)
    if not sink.secret:
        return SinkCheck(location.uri, unchecked=_NO_SECRET)
    try:
        has_keys = location.credentials().keys() >= _KEYS
    except CdcError as error:
        return SinkCheck(location.uri, (error,))
    return check(location) if has_keys else SinkCheck(location.uri, unchecked=_NO_KEYS)
