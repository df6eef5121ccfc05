"""The home that Spark is started from: PySpark's jars but those that only cost, Delta's, and a
program of its own in the place of `spark-submit`.

PySpark starts its JVM by `bin/spark-submit`, which asks another JVM, Spark's launcher, for the
command. It is the same each time but for the heap and the options of the JVM; so the launcher is
asked when the home is made, and the program here starts the JVM itself. Where anything else is set
that the launcher knows, the program runs PySpark's own. Source: Spark 4.1, `bin/spark-class`,
`AbstractCommandBuilder`, `SparkSubmitCommandBuilder`.

The class path is written out, jar by jar in order of their names, in a file that `java` reads. What
`jars/*` stands for has the order of the file system, which is another one where an image is
unpacked, and a class archive is good for one order.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

import pyspark

from cdcsync_spark.session import delta_jars
from cdcsync_spark.session.start import CLASS_PATH, java

#: how the names of jars begin that nothing here uses, nor a jar that stays. A look-up of services
#: (data sources, extensions) opens every jar, and its list of files stays in the JVM's heap. That
#: for machine learning costs most: a provider of extensions makes every session register its
#: functions by Scala's reflection, a fifth of what the JVM of a short run costs.
_LEFT_OUT = (
    # machine learning and graphs
    *("spark-mllib", "spark-graphx", "breeze", "spire", "cats-kernel", "algebra", "JTransforms", "JLargeArrays"),
    *("arpack", "lapack", "blas"),
    # Spark Connect, shells
    *("spark-connect", "connect-repl", "spark-pipelines", "spark-repl", "scala-compiler", "jline", "java-diff-utils"),
    # Hive and its metastore; ORC files need hive-storage-api
    *("spark-hive", "hive-beeline", "hive-cli", "hive-common", "hive-exec", "hive-jdbc", "hive-llap", "hive-metastore"),
    *("hive-serde", "hive-service", "hive-shims", "datanucleus", "derby", "javax.jdo", "jdo-api", "bonecp", "HikariCP"),
    *("commons-dbcp", "libfb303", "libthrift", "stax-api", "javolution", "antlr-runtime-", "ST4", "jta", "jpam"),
    *("transaction-api", "super-csv", "opencsv", "json-1", "joda-time"),
)
_NATIVE = re.compile(r"-(linux|osx|windows)-(\w+)\.jar$")
_SYSTEMS = {"Linux": "linux", "Darwin": "osx"}
_MACHINES = {"aarch64": "aarch_64", "arm64": "aarch_64"}
_MAIN = "org.apache.spark.deploy.SparkSubmit"
#: settings whose values the launcher puts into its command
_MEMORY, _OPTION = "1234m", "-Dplaceholder=1"
_ASKED = ("--conf", f"spark.driver.memory={_MEMORY}", "--conf", f"spark.driver.extraJavaOptions={_OPTION}")

#: what the launcher, or the programs that lead to it, read in the environment
_READ_BY_LAUNCHER = (
    "SPARK_CONF_DIR",
    "SPARK_SUBMIT_OPTS",
    "SPARK_DIST_CLASSPATH",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "SPARK_PREPEND_CLASSES",
    "SPARK_TESTING",
    "SPARK_SQL_TESTING",
    "SPARK_REMOTE",
    "SPARK_API_MODE",
    "SPARK_PRINT_LAUNCH_COMMAND",
)
_PROGRAM = """\
#!/bin/sh
# Starts Spark's JVM as its launcher would, without the JVM of the launcher (cdcsync_spark.session.home).
home={home}
before= memory= options=
other={environment}
[ "${{SPARK_HOME:-$home}}" = "$home" ] && [ "${{SPARK_CONNECT_MODE:-0}}" = 0 ] && ! [ -e "$home/conf" ] || other=1
for word do
    case $before$word in
    --conf | pyspark-shell) ;;
    --confspark.driver.memory=*) memory=${{word#*=}} ;;
    --confspark.driver.extraJavaOptions=*) options=${{word#*=}} ;;
    --confspark.driver.extra* | --confspark.driver.default*) other=1 ;;
    --confspark.remote=* | --confspark.api.mode=* | --confspark.submit.deployMode=*) other=1 ;;
    --confspark.*=*) ;;
    *) other=1 ;;
    esac
    if [ "$before$word" = --conf ]; then before=--conf; else before=; fi
done
case $options in *[\\'\\"\\\\]* | *-Xmx*) other=1 ;; esac
if [ -n "$other" ] || [ -z "$memory" ]; then exec {launcher} "$@"; fi
export SPARK_HOME="$home" SPARK_CONF_DIR="$home/conf" SPARK_ENV_LOADED=1 SPARK_SCALA_VERSION={scala} PYTHONHASHSEED=0
set -f
# shellcheck disable=SC2086 # options are words
exec "${{JAVA_HOME:+$JAVA_HOME/bin/}}java" "@$home/{class_path}" "-Xmx$memory" $options \\
    {fixed} \\
    {main} "$@"
"""


def make_home(home: Path) -> None:
    """Makes a new home and renames it into place: the links of the previous one may lead to an
    environment that is gone."""
    found = Path(pyspark.__file__).parent
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="home-") as folder:
        made = Path(folder) / "new"
        (made / "jars").mkdir(parents=True)
        (made / "bin").mkdir()
        for program in (found / "bin").iterdir():
            (made / "bin" / program.name).symlink_to(program)
        for jar in (*(found / "jars").iterdir(), *delta_jars.installed()):
            if not jar.name.startswith(_LEFT_OUT) and _runs_here(jar.name):
                (made / "jars" / jar.name).symlink_to(jar)
        if jvm := java():
            _write_program(made, home, found / "bin" / "spark-submit", jvm)
        if home.exists():
            home.rename(Path(folder) / "old")
        made.rename(home)


def _runs_here(jar: str) -> bool:
    """False for native libraries of other systems."""
    native, machine = _NATIVE.search(jar), platform.machine()
    here = (_SYSTEMS.get(platform.system()), _MACHINES.get(machine, machine))
    return native is None or native.groups() == here


def _write_program(made: Path, home: Path, launcher: Path, jvm: str) -> None:
    """Into the home `made`, which will be `home`."""
    (core,) = (made / "jars").glob("spark-core_*")
    scala = core.name.removeprefix("spark-core_").partition("-")[0]
    class_path, fixed = _command(made, scala, jvm)
    words = ["-cp", ":".join(class_path).replace(str(made), str(home))]
    quoted = ['"{}"'.format(word.replace("\\", "\\\\").replace('"', '\\"')) for word in words]
    (made / CLASS_PATH).write_text("\n".join(quoted) + "\n")
    program = made / "bin" / "spark-submit"
    program.unlink()
    program.write_text(
        _PROGRAM.format(
            home=shlex.quote(str(home)),
            environment="".join(f"${{{name}:+1}}" for name in _READ_BY_LAUNCHER),
            launcher=shlex.quote(str(launcher)),
            scala=scala,
            class_path=CLASS_PATH,
            fixed=shlex.join(fixed),
            main=_MAIN,
        )
    )
    program.chmod(0o755)


def _command(home: Path, scala: str, jvm: str) -> tuple[list[str], list[str]]:
    """The class path that the launcher of this home names, and its options for every JVM."""
    environment = {k: v for k, v in os.environ.items() if k not in _READ_BY_LAUNCHER}
    printed = subprocess.run(
        [jvm, "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main", _MAIN, *_ASKED, "pyspark-shell"],
        env={
            **environment,
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(home / "conf"),
            "SPARK_SCALA_VERSION": scala,
        },
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    words = printed.strip("\0\n").split("\0")
    options = words[words.index("-cp") + 2 : words.index(_MAIN)]
    fixed = [word for word in options if word not in (f"-Xmx{_MEMORY}", _OPTION)]
    assert len(fixed) == len(options) - 2, f"Spark's launcher gave {words}"
    class_path: list[str] = []
    for entry in words[words.index("-cp") + 1].split(":"):
        jars = sorted(str(jar) for jar in Path(entry).parent.glob("*.jar")) if entry.endswith("/*") else [entry]
        class_path += [jar for jar in jars if jar not in class_path]
    return class_path, fixed
