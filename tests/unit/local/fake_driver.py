"""A driver without Spark: keeps the driver's contract (RunConfig in, reports and an exit code out)
on files.

It adds to the real driver's tests and never replaces them. The folder of $FAKE_DRIVER_FOLDER holds
`targets.json` (what "the targets" have: the truth), `log-end` (an offset), and orders: a file
`KIND.order` with one word is taken away and followed by the next run of that kind: `crash` (SIGKILL
itself after the first report), `mute` (exit 0 without a word), `permanent` (exit 3), `stubborn`
(ignores SIGTERM), `fail-table` (its first table fails for good).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from cdcsync_core.runs.run import LOG_END, PlanShard, RunConfig, RunKind

FOLDER = Path(os.environ["FAKE_DRIVER_FOLDER"])
WHOLE = [{"start": None, "end": None}]
draining = threading.Event()


def place(offset: int) -> dict[str, Any]:
    return {"file": "binlog.000001", "offset": offset, "gtidSet": ""}


def log_end() -> int:
    return int((FOLDER / "log-end").read_text())


def targets() -> dict[str, Any]:
    path = FOLDER / "targets.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def commit(name: str, entry: dict[str, Any]) -> None:
    data = targets() | {name: entry}
    temporary = FOLDER / f".targets.{os.getpid()}"
    temporary.write_text(json.dumps(data))
    temporary.replace(FOLDER / "targets.json")


class FakeDriver:
    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.pipe = os.fdopen(config.report_fd, "w")
        path = FOLDER / f"{config.kind.value}.order"
        self.order = path.read_text().strip() if path.exists() else ""
        path.unlink(missing_ok=True)

    def say(self, **parts: Any) -> None:
        self.pipe.write(json.dumps({"run": self.config.id, **parts}) + "\n")
        self.pipe.flush()

    def end(self, code: int, reason: str = "", message: str = "") -> int:
        self.say(exit={"code": code, "reason": reason, "message": message, "remedy": ""})
        return code

    def run(self) -> int:
        self.say(epoch=self.config.epoch)
        if self.order == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.order == "mute":
            return 0
        if self.order == "permanent":
            return self.end(3, "PositionLost", "found the binlog purged; needed it; remedy: resnapshot")
        if self.order == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return self.snapshot() if self.config.kind is RunKind.SNAPSHOT else self.stream()

    def snapshot(self) -> int:
        for index, assignment in enumerate(self.config.tables):
            name = str(assignment.table.id)
            if self.order == "fail-table" and index == 0:
                failed = {"name": name, "phase": "Failed", "reason": "TypeUnsupported", "message": f"{name}: bad cell"}
                self.say(tables=[failed])
                continue
            known = targets().get(name)
            if known is None or known["nonce"] < assignment.nonce:
                content = {"nonce": assignment.nonce, "generation": assignment.generation}
                self.say(tables=[{"name": name, "phase": "Snapshotting"} | content])
                splits = self.read_plan(index)
                if draining.is_set():
                    return self.end(0)
                known = content | {"splits": splits, "position": log_end(), "high": log_end() + 10}
                commit(name, known)
            entry = {"finished": WHOLE, "low": place(known["position"]), "high": place(known["high"])}
            splits = {"splitsTotal": known["splits"], "splitsFinished": known["splits"]}
            content = {"nonce": known["nonce"], "generation": known["generation"]}
            more = {"position": place(known["position"])} | content | splits
            self.say(tables=[{"name": name, "phase": "CatchingUp"} | entry | more])
        return self.end(0)

    def read_plan(self, index: int) -> int:
        splits, number = 0, 0
        while not draining.is_set():
            path = Path(self.config.plan_dir) / PlanShard.filename(index, number)
            if not path.exists():
                time.sleep(0.01)
                continue
            shard = PlanShard.from_json(path.read_text())
            splits, number = splits + len(shard.splits), number + 1
            if shard.last:
                break
        return splits

    def stream(self) -> int:
        stop_at = self.config.stop_at
        goal = log_end() if stop_at == LOG_END else int(stop_at.rpartition(":")[2] or 0)
        while True:
            at = log_end()
            for assignment in self.config.tables:
                name = str(assignment.table.id)
                known = targets()[name]
                if known["nonce"] == assignment.nonce:
                    commit(name, known | {"position": at})
                phase = "Streaming" if at >= known["high"] else "CatchingUp"
                content = {"nonce": assignment.nonce, "generation": assignment.generation}
                self.say(tables=[{"name": name, "phase": phase, "position": place(at)} | content])
            self.say(position=place(at), lag_seconds=0.1)
            reached = at >= max(goal, *(targets()[str(a.table.id)]["high"] for a in self.config.tables))
            if (draining.is_set() and self.order != "stubborn") or (stop_at and reached):
                return self.end(0)
            time.sleep(0.05)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: draining.set())
    try:
        sys.exit(FakeDriver(RunConfig.from_json(Path(sys.argv[1]).read_text())).run())
    except BrokenPipeError:
        os._exit(1)
