"""Syncs into Kafka whose names no other test has, and commands on them."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from typing import Any

from support.kafka import KafkaBroker
from support.sync_process import Sync


def kafka_spec(kafka: KafkaBroker, **more: Any) -> dict[str, Any]:
    """The spec of a sync whose topics are named after it, because databases of two servers may have
    one name."""
    sink = {"bootstrapServers": kafka.bootstrap, **more}
    return {"sink": {"kafka": sink}, "snapshot": {"chunkSize": 500, "parallelism": 2}}


def new_name() -> str:
    """The name of a sync that no other test has."""
    return f"s{uuid.uuid4().hex[:12]}"


def records(kafka: KafkaBroker, topic: str) -> list[tuple[Any, Any]]:
    """Keys and values; None is a tombstone."""
    return [(json.loads(r.key or b""), None if r.value is None else json.loads(r.value)) for r in kafka.read(topic)]


def command(sync: Sync, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "cdcsync_operator", arguments[0], "-f", str(sync.manifest), *arguments[1:]]
    return subprocess.run(words, capture_output=True, text=True, check=False)
