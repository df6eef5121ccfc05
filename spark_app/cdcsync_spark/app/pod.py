"""A driver in a pod: `python -m cdcsync_spark.app.pod FOLDER` runs what the mounted configuration
in FOLDER says.

The same applications as `python -m cdcsync_spark` runs; only where the configuration comes from,
the plan, and where reports go is different. The exit is also left as the pod's termination message,
which stands even when no report could be written.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from cdcsync_core.runs.report import ReportParts
from cdcsync_core.runs.run import ExitCode, RunConfig, RunKind
from cdcsync_kube.access import in_pod
from cdcsync_kube.client import Api
from cdcsync_spark.app.program import run
from cdcsync_spark.app.stop_signal import StopSignal
from cdcsync_spark.run.pod_report import PodReporter
from cdcsync_spark.snapshot.plan_mirror import PlanMirror

#: as `cdcsync_operator.cluster.objects.run_objects.REPORT_TABLES`; a test holds them equal
REPORT_TABLES = 500
_TERMINATION_LOG = Path("/dev/termination-log")


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m cdcsync_spark.app.pod FOLDER\n")
        return ExitCode.USAGE
    config = _here(read_config(Path(arguments[0])))
    signals, stopping = StopSignal(), threading.Event()
    signals.call(stopping.set)
    api, namespace = in_pod(), os.environ["POD_NAMESPACE"]
    names = [str(t.table.id) for t in config.tables]
    plan = _begin_plan(api, namespace, config)
    reporter = PodReports(PodReporter(api, namespace, config.id, names, REPORT_TABLES), plan)
    return run(config, reporter, stopping)


def read_config(folder: Path) -> RunConfig:
    """From the compressed pieces `run.json.gz.N`."""
    pieces = sorted(folder.glob("run.json.gz.*"))
    return RunConfig.from_json(gzip.decompress(b"".join(p.read_bytes() for p in pieces)).decode())


def _here(config: RunConfig) -> RunConfig:
    """Makes the run's folders, and adds this pod's address and name where it has executors."""
    Path(config.plan_dir).mkdir(parents=True, exist_ok=True)
    Path(config.scratch_dir).mkdir(parents=True, exist_ok=True)
    if not config.spark:
        return config
    own_fields = {
        "spark.driver.host": os.environ["POD_IP"],
        "spark.kubernetes.driver.pod.name": os.environ["POD_NAME"],
    }
    return replace(config, spark=config.spark | own_fields)


def _begin_plan(api: Api, namespace: str, config: RunConfig) -> PlanMirror | None:
    if config.kind is not RunKind.SNAPSHOT:
        return None
    plan = PlanMirror(api, namespace, config.id, Path(config.plan_dir))
    plan.start()
    return plan


class PodReports:
    """A reporter that ends a run whose plan will not come, and leaves the exit as the pod's
    termination message, too."""

    def __init__(
        self, reporter: PodReporter, plan: PlanMirror | None, termination_log: Path = _TERMINATION_LOG
    ) -> None:
        self._reporter, self._plan, self._termination_log = reporter, plan, termination_log

    def report(self, **parts: Unpack[ReportParts]) -> None:
        if "exit" in parts:
            with suppress(OSError):
                self._termination_log.write_text(json.dumps(parts["exit"])[:4096])
        elif self._plan is not None:
            self._plan.check()
        self._reporter.report(**parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
