"""What a container of the driver's image runs: by its arguments, and by no variable that names
code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ENTRYPOINT = Path(__file__).resolve().parents[3] / "docker" / "entrypoint.py"
EXECUTOR = {
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_HOME": "/opt/spark",
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "shop-exec-3",
    "SPARK_JAVA_OPT_10": "-Dten=a b",
    "SPARK_JAVA_OPT_2": "-Dtwo=$(id)",
    "SPARK_JAVA_OPTS": "-Dnone",
}


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the entrypoint with a `java` that prints its arguments, one a line."""
    java = folder / "java"
    java.write_text("#!/bin/dash\nprintf '%s\\n' \"$@\"\n")
    java.chmod(0o755)
    command = [sys.executable, "-I", str(ENTRYPOINT), *arguments]
    given = {"PATH": f"{folder}:{os.environ['PATH']}"} | environment
    return subprocess.run(command, env=given, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def test_an_executor_is_started_as_its_driver_describes_it(tmp_path: Path) -> None:
    assert run(tmp_path, "executor", **EXECUTOR).stdout.splitlines() == [
        "-XX:TieredStopAtLevel=1", "-Dtwo=$(id)", "-Dten=a b", "-Xms512m", "-Xmx512m", "-cp", "/opt/spark/conf:/opt/spark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend", "--driver-url", "spark://driver:7078",
        "--executor-id", "3", "--cores", "2", "--app-id", "spark-1", "--hostname", "10.0.0.3", "--resourceProfileId", "0",
        "--podName", "shop-exec-3",
    ]  # fmt: skip


def test_no_variable_makes_it_run_other_code(tmp_path: Path) -> None:
    """The variables are those of a shell and of Python; what the dynamic linker and the JVM read,
    the operator's policy keeps out of a pod."""
    (tmp_path / "code.sh").write_text("touch was-run\n")
    (tmp_path / "json.py").write_text("open('was-run', 'w')\n")
    (tmp_path / "sitecustomize.py").write_text("open('was-run', 'w')\n")
    hostile = {
        "BASH_ENV": "code.sh",
        "ENV": "code.sh",
        "BASH_FUNC_set%%": "() { touch was-run; }",
        "SHELLOPTS": "xtrace",
        "PS4": "$(touch was-run)",
        "PYTHONPATH": str(tmp_path),
        "PYTHONSTARTUP": "code.sh",
        "PYTHONHOME": str(tmp_path),
    }
    assert "--podName" in run(tmp_path, "executor", **EXECUTOR, **hostile).stdout
    assert not (tmp_path / "was-run").exists()


def test_no_image_starts_by_a_shell() -> None:
    """Tini passes the variables on; the driver's Python takes none of them."""
    lines = (ENTRYPOINT.parents[1] / "Dockerfile").read_text().splitlines()
    operator, driver = (json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines if line.startswith("ENTRYPOINT"))
    (command,) = (json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD"))
    assert operator + command == ["/usr/bin/tini", "--", "python", "-m", "cdcsync_operator.cluster.handlers"]
    assert driver == ["/usr/bin/tini", "--", "/opt/cdcsync/bin/python", "-I", "/opt/cdcsync/entrypoint.py"]


def test_another_command_is_run_as_it_is(tmp_path: Path) -> None:
    assert run(tmp_path, "echo", "a  b").stdout == "a  b\n"


def test_no_arguments_are_an_error(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert found.returncode == 1
    assert "needed: driver FOLDER, executor, or a command" in found.stderr
