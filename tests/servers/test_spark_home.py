"""The home that Spark is started from."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from cdcsync_spark.engine.home import make_home
from cdcsync_spark.engine.start import CLASS_PATH_JAR, LINKED_JARS
from support import delta_jars

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home") / "it's home"
    make_home(path)
    return path


def _class_path(home: Path) -> list[str]:
    """As Java reads it: a line that begins with a space goes on with the one before."""
    with zipfile.ZipFile(home / "jars" / CLASS_PATH_JAR) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
    assert max(len(line.encode()) for line in manifest.splitlines()) < 72
    return manifest.replace("\n ", "").splitlines()[1].removeprefix("Class-Path: ").split(" ")


def test_the_class_path_is_one_jar_that_names_the_others_in_the_order_of_their_names(home: Path) -> None:
    assert [jar.name for jar in (home / "jars").glob("*.jar")] == [CLASS_PATH_JAR]
    named = _class_path(home)
    assert named == sorted(named)
    assert all((home / "jars" / jar).is_file() for jar in named)
    assert set(named) == {f"{LINKED_JARS}/{jar.name}" for jar in (home / "jars" / LINKED_JARS).iterdir()}


def test_only_the_jars_for_machine_learning_are_left_out(home: Path) -> None:
    linked = {jar.name for jar in (home / "jars" / LINKED_JARS).iterdir()}
    left_out = {jar.name for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")} - linked
    assert any(name.startswith("spark-mllib_") for name in left_out)
    assert not [name for name in left_out if name.startswith(("spark-core", "spark-sql", "spark-hive", "netty"))]


def test_a_home_made_again_replaces_the_one_before_and_its_class_path_is_the_same(tmp_path: Path) -> None:
    """A class archive is good for a class path of the same bytes and time."""
    made = tmp_path / "home"
    make_home(made)
    class_path = made / "jars" / CLASS_PATH_JAR
    before = class_path.read_bytes(), class_path.stat().st_mtime_ns
    (made / "jars" / "gone.jar").symlink_to(tmp_path / "gone")
    make_home(made)
    assert not (made / "jars" / "gone.jar").is_symlink()
    assert [entry.name for entry in tmp_path.iterdir()] == ["home"]
    assert (class_path.read_bytes(), class_path.stat().st_mtime_ns) == before


def test_no_service_of_a_jar_that_stays_is_of_one_that_is_left_out(home: Path) -> None:
    """A look-up of services fails at a class that is not there, and with it every data source."""
    jars, linked = Path(pyspark.__file__).parent / "jars", home / "jars" / LINKED_JARS
    kept = {jar.name for jar in linked.iterdir()}
    left_out = {name for jar in jars.glob("*.jar") if jar.name not in kept for name in _names(jar)}
    left_out -= {name for jar in kept for name in _names(linked / jar)}
    assert "org/apache/spark/ml/Pipeline.class" in left_out
    for jar in kept:
        with zipfile.ZipFile(linked / jar) as content:
            for file in (name for name in content.namelist() if re.match("META-INF/services/[^/]+$", name)):
                lines = content.read(file).decode().splitlines()
                classes = {line.partition("#")[0].strip().replace(".", "/") + ".class" for line in lines}
                assert not classes & left_out, (jar, file)


def _names(jar: Path) -> list[str]:
    with zipfile.ZipFile(jar) as content:
        return content.namelist()


_SESSION = """
import json, sys, urllib.request
from cdcsync_spark.engine.start import start_session
folder = sys.argv[1]
extra = {"spark.ui.enabled": "true", "spark.ui.port": "0", **json.loads(sys.argv[2])}
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


@pytest.mark.long
def test_a_session_has_files_tables_the_ui_packages_and_the_client_of_kubernetes(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _SESSION, str(tmp_path), json.dumps(delta_jars.settings())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
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
