"""What the status shows of data that stops on its way: before the source's server, in the source's
dump, before the store.

No connection is refused and no process ends: packets do not come through (see `support.relay`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdcsync_core.timestamps import unix_time
from contract.stores import ACCESS_KEY, REGION, SECRET_KEY, s3_server
from support.fixtures import FreshDatabase
from support.relay import Relay, relay_to
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture
def relay(mariadb1011: Server) -> Iterator[Relay]:
    with relay_to(mariadb1011.host, mariadb1011.port) as found:
        yield found


@pytest.fixture
def database(mariadb1011: Server, fresh_database: FreshDatabase) -> str:
    name = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", db=name)
    return name


def ready(status: dict[str, Any]) -> tuple[str, str]:
    found = {c["type"]: c for c in status.get("conditions", [])}
    return (found["Ready"]["status"], found["Ready"]["reason"]) if found else ("", "")


def message(status: dict[str, Any], kind: str) -> str:
    return str(next(c for c in status["conditions"] if c["type"] == kind)["message"])


def is_ready(status: dict[str, Any]) -> bool:
    return ready(status) == ("True", "Streaming")


def known_at(status: dict[str, Any]) -> float:
    """Up to when what was committed on the source is applied, as the status has it."""
    found = unix_time(status["position"]["timestamp"])
    assert found is not None
    return found


def test_a_source_whose_packets_are_dropped_is_silent(
    mariadb1011: Server, database: str, relay: Relay, tmp_path: Path
) -> None:
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path, spec={"source": {"port": relay.port}}) as sync:
        sync.start()
        quiet = sync.wait_for(lambda s: is_ready(s) and s["lagSeconds"] == 0)
        assert quiet["tables"]["streaming"] == 1
        relay.stop()
        stopped_at = time.time()
        mariadb1011.run("INSERT INTO t VALUES (3)", db=database)
        silent = sync.wait_for(lambda s: ready(s) == ("False", "SourceSilent"))
        assert silent["lagSeconds"] > 2, "longer than two heartbeats"
        assert known_at(silent) < stopped_at + 1, "what came after is not known"
        as_of = silent["position"]["timestamp"][:19]
        assert as_of in message(silent, "Consistent"), "nothing is claimed of what was not observed"
        assert as_of in message(silent, "Ready")
        relay.forward()
        sync.wait_for(lambda s: is_ready(s) and known_at(s) > stopped_at)
        sync.wait_until(lambda: sync.target(f"{database}.t").num_rows == 3, "the row is there")


@pytest.mark.long
def test_a_driver_that_has_received_nothing_is_not_ready_and_as_far_behind_as_its_position(
    mariadb1011: Server, database: str, relay: Relay, tmp_path: Path
) -> None:
    """`make test` has the rule without processes: unit/controller/test_truthful_conditions.py."""
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path, spec={"source": {"port": relay.port}}) as sync:
        sync.start()
        sync.wait_for(is_ready)
        sync.terminate()
        known = known_at(sync.status())
        relay.hold_dumps = True
        again_at = time.time()
        sync.start()
        seen = []
        held = sync.wait_for(lambda s: seen.append(ready(s)) or ready(s) == ("False", "SourceSilent"))  # type: ignore[func-returns-value]
        assert ("True", "Streaming") not in seen, "before the first event or heartbeat"
        assert held["lagSeconds"] >= again_at - known, "counted from the position, not from the driver's start"
        assert known_at(held) == known
        relay.hold_dumps = False
        sync.wait_for(is_ready)


@pytest.mark.long
def test_a_store_that_hangs_is_slow(mariadb1011: Server, database: str, tmp_path: Path) -> None:
    with s3_server(tmp_path) as store, relay_to("127.0.0.1", store.port) as relay:
        store.make_bucket("lake")
        lake = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        about = {"name": "lake", "labels": {"cdcsync.io/source": "true"}}
        secret = tmp_path / "lake.yaml"
        secret.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": lake}))
        options = {"endpoint": f"http://127.0.0.1:{relay.port}", "region": REGION}
        delta = {"path": "s3://lake/cdc", "credentialsSecretRef": {"name": "lake"}, "options": options}
        spec = {"sink": {"delta": delta}}
        with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync", spec=spec, options=("-f", str(secret))) as sync:
            sync.start()
            sync.wait_for(lambda s: is_ready(s) and s["lagSeconds"] == 0)
            relay.stop()
            mariadb1011.run("INSERT INTO t VALUES (3)", db=database)
            inserted_at = time.time()
            slow = sync.wait_for(lambda s: ready(s) == ("False", "SinkSlow"))
            assert slow["lagSeconds"] > 60
            assert known_at(slow) < inserted_at + 1, "heartbeats do not make up for what is not committed"
            relay.forward()
            sync.wait_for(lambda s: is_ready(s) and known_at(s) > inserted_at)
