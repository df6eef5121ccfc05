"""The home that Spark is started from, and what its `spark-submit` starts: the same as Spark's
launcher would, or that launcher."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from cdcsync_spark.session.home import make_home
from cdcsync_spark.session.start import CLASS_PATH

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

_MAIN = "org.apache.spark.deploy.SparkSubmit"
_VARIABLES = ("PYTHONHASHSEED", "SPARK_CONF_DIR", "SPARK_ENV_LOADED", "SPARK_HOME", "SPARK_SCALA_VERSION")
_CONF = {
    "spark.driver.memory": "300m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Dany=*",
    "spark.app.name": "two words, 'quoted' $HOME",
    "spark.master": "local[2]",
}
#: runs the launcher itself; else it prints what would be started
_JAVA = """#!/bin/sh
case " $* " in *" org.apache.spark.launcher.Main "*) touch {folder}/launcher; exec {java} "$@" ;; esac
for name in {variables}; do eval "printf '%s=%s\\0' $name \\"\\$$name\\""; done
printf '%s\\0' "$@"
"""


@dataclass(frozen=True)
class Started:
    options: list[str]
    class_path: list[str]
    settings: set[str]
    environment: list[str]
    by_launcher: bool


class Home:
    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "it's home"
        make_home(self.path)
        java = folder / "java" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(_JAVA.format(folder=folder, java=shutil.which("java"), variables=" ".join(_VARIABLES)))
        java.chmod(0o755)

    def started(
        self, conf: dict[str, str], *words: str, program: Path | None = None, environment: dict[str, str] | None = None
    ) -> Started:
        mark = self.folder / "launcher"
        mark.unlink(missing_ok=True)
        given = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
        output = subprocess.run(
            [program or self.path / "bin" / "spark-submit", *given, *words, "pyspark-shell"],
            env={
                **clean,
                "SPARK_HOME": str(self.path),
                "JAVA_HOME": str(self.folder / "java"),
                "SPARK_CONNECT_MODE": "0",
                **(environment or {}),
            },
            stdin=subprocess.PIPE,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        printed = output.rstrip("\0").split("\0")
        at = printed.index(_MAIN)
        options, settings = printed[len(_VARIABLES) : at], printed[at + 1 :]
        return Started(
            options=options[2 if options[0] == "-cp" else 1 :],
            class_path=self._class_path(options),
            settings={" ".join(pair) for pair in zip(settings[::2], settings[1::2], strict=False)},
            environment=printed[: len(_VARIABLES)],
            by_launcher=mark.exists(),
        )

    def _class_path(self, options: Sequence[str]) -> list[str]:
        if options[0] == "-cp":
            return [entry.rstrip("/") for entry in options[1].split(":")]
        assert options[0] == f"@{self.path / CLASS_PATH}"
        _, written = (self.path / CLASS_PATH).read_text().splitlines()
        return written.strip('"').split(":")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home"))


def test_the_jvm_is_started_as_by_the_launcher_but_without_it(home: Home) -> None:
    ours = home.started(_CONF)
    spark = home.started(_CONF, program=Path(pyspark.__file__).parent / "bin" / "spark-submit")
    assert spark.by_launcher
    assert not ours.by_launcher
    assert ours.options == spark.options
    assert "-Dany=*" in ours.options
    assert "-Xmx300m" in ours.options
    assert ours.settings == spark.settings == {f"--conf {key}={value}" for key, value in _CONF.items()}
    assert ours.environment == spark.environment


def test_the_class_path_has_the_jars_in_the_order_of_their_names(home: Home) -> None:
    conf, first, *jars = home.started(_CONF).class_path
    assert conf == str(home.path / "conf")
    assert "/slf4j-api-" in first
    assert jars == sorted(jars)
    assert {first, *jars} == {str(jar) for jar in (home.path / "jars").glob("*.jar")}


@pytest.mark.parametrize(
    "setting",
    [
        {"spark.driver.extraClassPath": "/x.jar"},
        {"spark.driver.extraLibraryPath": "/x"},
        {"spark.driver.defaultJavaOptions": "-Da=b"},
        {"spark.driver.extraJavaOptions": "'-Da=b c'"},
    ],
)
def test_what_the_launcher_reads_in_the_settings_is_left_to_it(home: Home, setting: dict[str, str]) -> None:
    assert home.started({**_CONF, **setting}).by_launcher


@pytest.mark.parametrize(
    "name", ["SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR"]
)
def test_what_the_launcher_reads_in_the_environment_is_left_to_it(home: Home, name: str) -> None:
    value = "-Da=b" if name.endswith("OPTS") else str(home.folder)
    started = home.started(_CONF, environment={name: value})
    assert started.by_launcher
    assert value in [*started.options, *started.class_path]


def test_other_arguments_and_a_folder_of_settings_are_left_to_the_launcher(home: Home) -> None:
    assert home.started(_CONF, "--verbose").by_launcher
    assert home.started({"spark.app.name": "no heap is named"}).by_launcher
    conf = home.path / "conf"
    conf.mkdir()
    try:
        assert home.started(_CONF).by_launcher
    finally:
        conf.rmdir()


def test_a_home_made_again_replaces_the_one_before(home: Home, tmp_path: Path) -> None:
    made = tmp_path / "home"
    make_home(made)
    (made / "jars" / "gone.jar").symlink_to(tmp_path / "gone")
    make_home(made)
    assert not (made / "jars" / "gone.jar").is_symlink()
    assert [entry.name for entry in tmp_path.iterdir()] == ["home"]


def test_native_libraries_of_other_systems_are_left_out(home: Home) -> None:
    native = {jar.name for jar in (home.path / "jars").glob("netty-*.Final-*")}
    assert any("-linux-" in name for name in native) == (platform.system() == "Linux")
    assert not [name for name in native if "-windows-" in name]
    assert len({re.sub(r".*Final-", "", name) for name in native}) == 1, native


def test_no_service_of_a_jar_that_stays_is_of_one_that_is_left_out(home: Home) -> None:
    """A look-up of services fails at a class that is not there, and with it every data source."""
    jars = Path(pyspark.__file__).parent / "jars"
    kept = {jar.name for jar in (home.path / "jars").glob("*.jar")}
    left_out = {name for jar in jars.glob("*.jar") if jar.name not in kept for name in _names(jar)}
    left_out -= {name for name in kept for name in _names(home.path / "jars" / name)}
    assert "org/apache/spark/sql/hive/HiveSessionStateBuilder.class" in left_out
    for jar in kept:
        with zipfile.ZipFile(home.path / "jars" / jar) as content:
            for file in (name for name in content.namelist() if re.match("META-INF/services/[^/]+$", name)):
                lines = content.read(file).decode().splitlines()
                classes = {line.partition("#")[0].strip().replace(".", "/") + ".class" for line in lines}
                assert not classes & left_out, (jar, file)


def _names(jar: Path) -> list[str]:
    with zipfile.ZipFile(jar) as content:
        return content.namelist()


_SESSION = """
import json, sys, urllib.request
from cdcsync_spark.session.start import start_session
folder = sys.argv[1]
extra = {
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
spark = start_session("home", cores=1, memory="700m", scratch_dir=folder, extra=extra)
assert "/share/cdcsync/spark/" in spark.sparkContext._jvm.System.getProperty("java.class.path")
rows = spark.range(3).selectExpr("id", "concat('v', id) AS v")
for kind in ("delta", "parquet", "orc", "json", "csv", "xml"):
    written = rows.write.format(kind).option("rowTag", "r")
    written.save(f"{folder}/{kind}")
    read = spark.read.format(kind).option("rowTag", "r")
    read = read if kind == "delta" else read.schema("id long, v string")
    print(kind, sorted(r["v"] for r in read.load(f"{folder}/{kind}").collect()))
spark.sql(f"MERGE INTO delta.`{folder}/delta` t USING (SELECT 9L AS id, 'v9' AS v) s ON t.id = s.id "
          "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
print("merged", spark.read.format("delta").load(f"{folder}/delta").count())
spark.sql(f"CREATE TABLE t (id LONG) USING parquet LOCATION '{folder}/table'")
print("tables", [t.tableName for t in spark.sql("SHOW TABLES").collect()])
url = spark.sparkContext.uiWebUrl
print("ui", urllib.request.urlopen(url + "/jobs/").status, json.load(urllib.request.urlopen(url + "/api/v1/applications"))[0]["name"])
jvm = spark.sparkContext._jvm
coordinates = jvm.org.apache.spark.util.MavenUtils.extractMavenCoordinates("a.b:c:1").mkString()
print("ivy", coordinates, jvm.org.apache.ivy.Ivy.newInstance().getClass().getSimpleName())
client = jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build()
print("kubernetes", client.getHttpClient().getClass().getSimpleName())
"""


def test_a_session_has_files_tables_the_ui_packages_and_the_client_of_kubernetes(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _SESSION, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    values = "['v0', 'v1', 'v2']"
    kinds = ("delta", "parquet", "orc", "json", "csv", "xml")
    assert ended.stdout.splitlines() == [
        *(f"{kind} {values}" for kind in kinds),
        "merged 4",
        "tables ['t']",
        "ui 200 home",
        "ivy a.b:c:1 Ivy",
        "kubernetes VertxHttpClient",
    ], ended.stderr[-3000:]
