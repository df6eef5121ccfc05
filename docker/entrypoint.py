"""What a container of the driver's image runs, by its arguments.

    driver FOLDER   a run of cdcsync, whose configuration is in the folder
    executor        an executor of Spark, as its driver describes it in the environment
    COMMAND ...     that command

Why it is no shell script: a shell runs what variables of the environment name (`BASH_ENV`,
`BASH_FUNC_...`). Python is started isolated (`-I`), so it reads none. Source: Spark 4.1,
`kubernetes/dockerfiles/spark/entrypoint.sh`.
"""

from __future__ import annotations

import base64
import os
import re
import sys
from pathlib import Path

_ARCHIVES = Path("/opt/cdcsync/share/cdcsync")
#: the secret by which an executor knows its driver. Spark's own reading of the file needs
#: spark.master, which an executor learns from its driver; a driver takes the bytes in base64
_SECRET = Path("/etc/cdcsync/auth/secret")
_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["driver"]:
        os.execv(sys.executable, [sys.executable, "-I", "-m", "cdcsync_spark.app.pod", *arguments[1:]])  # noqa: S606
    if arguments[:1] == ["executor"]:
        if _SECRET.is_file():
            os.environ["_SPARK_AUTH_SECRET"] = base64.b64encode(_SECRET.read_bytes()).decode()
        os.execvp("java", ["java", *_executor(os.environ)])  # noqa: S606
    if not arguments:
        sys.exit("entrypoint: no arguments; needed: driver FOLDER, executor, or a command")
    os.execvp(arguments[0], arguments)  # noqa: S606


def _executor(given: os._Environ[str]) -> list[str]:
    """The arguments of an executor's JVM."""
    numbered = {int(match[1]): value for name, value in given.items() if (match := _OPTION.fullmatch(name))}
    memory = given["SPARK_EXECUTOR_MEMORY"]
    return [
        # the first compiler only, as in drivers, unless the user says otherwise
        "-XX:TieredStopAtLevel=1",
        *(numbered[number] for number in sorted(numbered)),
        *_archive(),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        *("-cp", f"{given['SPARK_HOME']}/conf:{given['SPARK_HOME']}/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", given["SPARK_DRIVER_URL"]),
        *("--executor-id", given["SPARK_EXECUTOR_ID"]),
        *("--cores", given["SPARK_EXECUTOR_CORES"]),
        *("--app-id", given["SPARK_APPLICATION_ID"]),
        *("--hostname", given["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", given["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", given["SPARK_EXECUTOR_POD_NAME"]),
    ]


def _archive() -> list[str]:
    """The class archive of drivers; it is taken where the class path is the same, else left."""
    for path in sorted(_ARCHIVES.glob("*.jsa"))[:1]:
        return [f"-XX:SharedArchiveFile={path}", "-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"]
    return []


if __name__ == "__main__":
    main(sys.argv[1:])
