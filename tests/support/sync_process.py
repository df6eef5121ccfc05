"""The product as its user runs it: a manifest, `cdcsync run` as a process of its own, everything
that it starts, and ways to end any of it.

    sync = Sync(server, ["shop.*"], tmp_path)
    sync.start(until="forever", gate=Gate("wave-staged"))
    sync.wait_fired()                      # the armed process has killed itself
    sync.kill("controller")
    sync.run_to_completion()               # the same command again, until it is caught up
    rows = sync.target("shop.orders")

Why every process is found: all of them carry a variable of this `Sync` in their environment, so a
driver whose controller was killed is found although it has another parent by then, and nothing else
is ever signalled.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import psutil
import pyarrow as pa
import yaml
from deltalake import DeltaTable

from support.lake import rows_of
from support.servers import Server

Part = Literal["controller", "driver", "jvm", "worker", "daemon", "reader", "forks", "calls"]
Until = Literal["snapshot", "caught-up", "forever"]
Action = Literal["kill", "stop"]

_MARK = "CDCSYNC_TEST_PROCESS"
_GATE = "CDCSYNC_GATE"
_POLL_SECONDS = 0.1
#: generous, because the machine may be busy with something else
_PATIENCE = 400.0
#: so many failures in a row are no crash of ours
_HOPELESS = 8
ACCOUNT, PASSWORD = "cdc", "only for tests"

#: what the documentation asks a user to grant
GRANTS = {
    "mariadb": ("SELECT", "REPLICATION SLAVE", "BINLOG MONITOR", "REPLICATION MASTER ADMIN", "SLAVE MONITOR"),
    "mysql": ("SELECT", "REPLICATION SLAVE", "REPLICATION CLIENT", "BACKUP_ADMIN", "XA_RECOVER_ADMIN"),
}


@dataclass(frozen=True)
class Gate:
    """The `count`-th time that a process passes the gate `name`, it kills or stops itself; once in
    the whole tree."""

    name: str
    count: int = 1
    action: Action = "kill"


@dataclass
class Sync:
    """One sync of `server`; `tables` are the patterns, `spec` replaces parts of the manifest's spec
    (nested dictionaries are merged). `within` is a command that runs the program as its last words
    do (`unshare --mount`, say), `options` are more of `cdcsync run`. `secrets` are the manifest's
    beside the source's, by their names; `annotations` are those of the source's.

    All files lie in `folder`: the manifest, the state folder, the lake, the output.
    """

    server: Server
    tables: Sequence[str]
    folder: Path
    name: str = "test"
    spec: Mapping[str, Any] = field(default_factory=dict)
    account: tuple[str, str] | None = None
    within: Sequence[str] = ()
    options: Sequence[str] = ()
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._mark = uuid.uuid4().hex
        self._starts = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._fired: Path | None = None
        if self.account is None:
            self.server.create_user(ACCOUNT, PASSWORD, GRANTS[self.server.flavor])
        self.write_manifest()

    # -- the manifest

    @property
    def manifest(self) -> Path:
        return self.folder / "manifest.yaml"

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def write_manifest(self, **spec: Any) -> None:
        """Writes it atomically; `spec` is merged into the spec for good, so that a running
        controller sees the change."""
        self.spec = _merged(self.spec, spec)
        user, password = self.account or (ACCOUNT, PASSWORD)
        secrets = {"source": {"username": user, "password": password}, **self.secrets}
        documents = [
            *(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": name, "labels": {"cdcsync.io/source": "true"}}
                    | ({"annotations": dict(self.annotations)} if name == "source" else {}),
                    "stringData": dict(data),
                }
                for name, data in secrets.items()
            ),
            {
                "apiVersion": "cdcsync.io/v1alpha1",
                "kind": "CdcSync",
                "metadata": {"name": self.name},
                "spec": _merged(self._default_spec(), self.spec),
            },
        ]
        new = self.manifest.with_suffix(".new")
        new.write_text(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True), encoding="utf-8")
        new.replace(self.manifest)

    def _default_spec(self) -> dict[str, Any]:
        return {
            "source": {
                "host": self.server.host,
                "port": self.server.port,
                "credentialsSecretRef": {"name": "source"},
                "heartbeatInterval": "1s",
            },
            "tables": {"include": list(self.tables)},
            "snapshot": {"chunkSize": 5000, "parallelism": 2},
            "stream": {"interval": "500ms"},
            "sink": self._default_sink(),
            "driver": {"memory": "1Gi"},
            "autoRestart": {"backoff": {"initial": "200ms", "max": "1s"}},
        }

    def _default_sink(self) -> dict[str, Any]:
        if self.spec.get("sink", {}).keys() & {"iceberg", "mysql", "postgresql"}:
            return {}
        if "kafka" in self.spec.get("sink", {}):
            return {"type": "kafka", "kafka": {"staging": {"path": str(self.lake)}}}
        return {"type": "delta", "delta": {"path": str(self.lake)}}

    # -- running

    def command(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs another command of the product to its end: `sync.command("verify", "-o",
        "json")`."""
        return subprocess.run(
            [*_PROGRAM, arguments[0], "-f", str(self.manifest), "--state-dir", str(self.state_dir), *arguments[1:]],
            env=self._environment(None),
            capture_output=True,
            text=True,
            check=False,
            **{"timeout": 120, **options},
        )

    def start(self, until: Until = "forever", gate: Gate | None = None) -> None:
        """Starts `cdcsync run`; what an earlier controller left may still be alive."""
        assert self._process is None or self._process.poll() is not None, "the controller runs already"
        number = next(self._starts)
        self._fired = self.folder / f"fired-{number}" if gate else None
        with self.output(number).open("wb") as output:
            self._process = subprocess.Popen(
                self.run_command(until),
                env=self._environment(gate),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run_command(self, until: str) -> list[str]:
        """`cdcsync run`, for who starts it otherwise."""
        where = ["-f", str(self.manifest), "--state-dir", str(self.state_dir)]
        return [*self.within, *_PROGRAM, "run", *where, "--until", until, *self.options]

    def _environment(self, gate: Gate | None) -> dict[str, str]:
        armed = {_GATE: f"{gate.name}:{gate.count}:{gate.action}:{self._fired}"} if gate else {}
        return {**os.environ, _MARK: self._mark, **armed}

    @property
    def controller(self) -> psutil.Process:
        (found,) = self.processes("controller")
        return found

    def output(self, number: int) -> Path:
        """Where the `number`-th start wrote its output."""
        return self.folder / f"output-{number}.txt"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout: float = _PATIENCE) -> int:
        """The exit code of the controller; fails with its output when it does not end in time."""
        assert self._process is not None
        self.wait_until(lambda: not self.running, "the controller ends", timeout)
        return self._process.wait()

    def run_to_completion(self, until: Until = "caught-up", timeout: float = _PATIENCE) -> None:
        """The same command again, to its end, which must be a good one."""
        self.start(until)
        code = self.wait(timeout)
        assert code == 0, f"exit code {code}\n{self.logs()}"

    def terminate(self, timeout: float = _PATIENCE) -> int:
        """Asks the controller to end in order, as Ctrl-C does; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    # -- the processes

    def processes(self, part: Part | None = None) -> list[psutil.Process]:
        """What is alive of this sync, or of one part of it."""
        found = [p for p in psutil.process_iter() if self._is_ours(p)]
        return [p for p in found if part is None or _part_of(p) == part]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == self._mark
        except (psutil.Error, OSError):
            return False

    def kill(self, part: Part) -> bool:
        """SIGKILL to all processes of this part; False where there was none."""
        return self.signal(part, signal.SIGKILL)

    def signal(self, part: Part, number: signal.Signals) -> bool:
        sent = False
        for process in self.processes(part):
            try:
                process.send_signal(number)
                sent = True
            except psutil.NoSuchProcess:
                continue
        if part == "controller" and number == signal.SIGKILL and self._process is not None:
            self._process.wait()
        return sent

    def kill_all(self) -> None:
        """The power goes off: everything at once, again until nothing is left."""
        while processes := self.processes():
            for process in processes:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(processes, timeout=5)
        if self._process is not None:
            self._process.wait()

    def __enter__(self) -> Sync:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill_all()

    # -- waiting

    @property
    def fired(self) -> bool:
        """Whether the armed gate has fired."""
        return self._fired is not None and self._fired.exists()

    def wait_fired(self, timeout: float = _PATIENCE) -> None:
        self.wait_until(lambda: self.fired, "the gate fires", timeout)

    def wait_phase(self, *phases: str, timeout: float = _PATIENCE) -> dict[str, Any]:
        """The status, once its phase is one of these."""
        self.wait_until(lambda: self.status().get("phase") in phases, f"phase {' or '.join(phases)}", timeout)
        return self.status()

    def wait_for(self, wanted: Callable[[dict[str, Any]], object], timeout: float = _PATIENCE) -> dict[str, Any]:
        """The status, once `wanted` is true for it."""
        self.wait_until(lambda: wanted(self.status()), "the status wanted", timeout)
        return self.status()

    def wait_part(self, part: Part, timeout: float = _PATIENCE) -> None:
        self.wait_until(lambda: self.processes(part), f"a {part}", timeout)

    def wait_until_gone(self, part: Part, timeout: float = _PATIENCE) -> None:
        """Until no process of this part is left; its controller may be gone already."""
        psutil.wait_procs(self.processes(part), timeout=timeout)
        assert not self.processes(part), f"a {part} is still there\n{self.logs()}"

    def wait_until(self, happened: Callable[[], object], what: str, timeout: float = _PATIENCE) -> None:
        """Fails with the logs when it does not happen in time, or when the controller ends
        before."""
        deadline = time.monotonic() + timeout
        while not happened():
            ended = self._process is not None and self._process.poll() is not None
            if ended and not happened():
                raise AssertionError(f"waited for: {what}; the controller ended\n{self.logs()}")
            if self._failures() >= _HOPELESS:
                raise AssertionError(f"waited for: {what}; one failure after the other\n{self.logs()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {timeout} s for: {what}\n{self.logs()}")
            time.sleep(_POLL_SECONDS)

    def _failures(self) -> int:
        return int(self.status().get("restarts", {}).get("consecutive", 0))

    # -- what it left

    @property
    def state_file(self) -> Path:
        return self.state_dir / f"default.{self.name}.yaml"

    def status(self) -> dict[str, Any]:
        """The status as the state file, which is JSON, has it; empty before the first."""
        if not self.state_file.exists():
            return {}
        status: dict[str, Any] = json.loads(self.state_file.read_text(encoding="utf-8"))["status"]
        return status

    def path(self, table: str) -> Path:
        """The target's folder of `database.table` (names of letters, digits, - and _ only)."""
        return self.lake.joinpath(*table.split("."))

    def delta(self, table: str, version: int | None = None) -> DeltaTable:
        return DeltaTable(str(self.path(table)), version=version)

    def has_version(self, table: str) -> bool:
        """Answers whether Delta's log has a file; its folder is there before."""
        return any((self.path(table) / "_delta_log").glob("*.json"))

    def target(self, table: str) -> pa.Table:
        """The rows of the target of `database.table`."""
        return rows_of(self.delta(table))

    def logs(self, tail: int = 4000) -> str:
        """The end of what each process wrote, newest last, and the conditions of the status: for a
        failure's message."""
        files = sorted([*self.folder.glob("output-*.txt"), *self._driver_logs()], key=lambda p: p.stat().st_mtime)
        parts = [f"--- {f.name}\n{f.read_text(encoding='utf-8', errors='replace')[-tail:]}" for f in files[-4:]]
        status = self.status()
        shown = {k: status.get(k) for k in ("phase", "conditions", "runs", "restarts", "tables")}
        return "\n".join([*parts, f"--- status\n{yaml.safe_dump(shown)}"])

    def _driver_logs(self) -> list[Path]:
        return list(self.state_dir.glob("*/logs/*.log"))


_PROGRAM = (str(Path(sys.executable).with_name("cdcsync")),)
_DAEMON = "cdcsync_spark.engine.worker_preload"
#: how the program of Python's fork server begins, which is that of its forks, too
_FORK_SERVER = "from multiprocessing.forkserver import main"


def _forked(words: Sequence[str]) -> bool:
    return any(word.startswith(_FORK_SERVER) for word in words)


def _part_of(process: psutil.Process) -> Part | None:
    try:
        name, words = process.name(), process.cmdline()
        if name == "java":
            return "jvm"
        if _forked(words):
            parent = process.parent()
            return "calls" if parent and _forked(parent.cmdline()) else "forks"
        if "cdcsync_spark" in words:
            return "driver"
        if any(word.endswith("/cdcsync") for word in words[:2]):
            return "controller"
        if "pyspark.sql.streaming.python_streaming_source_runner" in words:
            return "reader"
        if _DAEMON in words:
            parent = process.parent()
            return "worker" if parent and _DAEMON in parent.cmdline() else "daemon"
    except psutil.Error:
        return None
    return None


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
