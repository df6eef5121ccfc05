"""The home that Spark is started from, and what its `spark-submit` starts: the same as Spark's
launcher would, or that launcher."""

from __future__ import annotations

import os
import shutil
import subprocess
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
#: for the launcher itself; else it tells what would be started
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
