"""The index of the jars, as Java reads it."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from cdcsync_spark.session.jar_index import NAME, write_index

_LOOK = """
import java.util.ServiceLoader;
public class Look {
    public static void main(String[] names) throws Exception {
        ClassLoader loader = Look.class.getClassLoader();
        for (String name : names) System.out.println(name + " " + (loader.getResource(name) != null));
        ServiceLoader.load(Runnable.class).stream().forEach(p -> System.out.println(p.type().getName()));
        String open = java.nio.file.Files.list(java.nio.file.Path.of("/proc/self/fd"))
            .map(p -> { try { return java.nio.file.Files.readSymbolicLink(p).getFileName().toString(); }
                        catch (Exception e) { return ""; } })
            .filter(p -> p.endsWith(".jar")).sorted().distinct().collect(java.util.stream.Collectors.joining(" "));
        System.out.println("open: " + open);
    }
}
"""
_SERVICE = "META-INF/services/java.lang.Runnable"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`Look`, and three services in packages of their own."""
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("no Java compiler")
    folder = tmp_path_factory.mktemp("classes")
    (folder / "Look.java").write_text(_LOOK)
    for package in ("a", "b", "c"):
        (folder / package).mkdir()
        source = f"package {package}; public class S implements Runnable {{ public void run() {{}} }}"
        (folder / package / "S.java").write_text(source)
    sources = [folder / "Look.java", *folder.glob("*/S.java")]
    subprocess.run([javac, "--release", "17", "-d", folder, *sources], check=True)
    return folder


@pytest.fixture
def home(classes: Path, tmp_path: Path) -> Path:
    """Its jars are links, as those of Spark's home, whose folder has a space in its name."""
    store, jars = tmp_path / "a store", tmp_path / "home"
    store.mkdir()
    jars.mkdir()
    contents: dict[str, dict[str, str | Path]] = {
        "a.jar": {"a/S.class": classes / "a/S.class", _SERVICE: "a.S"},
        "b.jar": {
            "b/S.class": classes / "b/S.class",
            _SERVICE: "b.S\n",
            "META-INF/LICENSE": "free",
            "b.properties": "",
        },
        "log4j-c.jar": {"c/S.class": classes / "c/S.class", _SERVICE: "# the last\nc.S", "META-INF/plugins.dat": "1"},
        "log4j-d.jar": {"META-INF/plugins.dat": "2"},
        "unused.jar": {"d/e/found.txt": "text", "META-INF/versions/17/f/found.txt": "text", "META-INF/g/found.txt": ""},
    }
    for name, content in contents.items():
        with zipfile.ZipFile(store / name, "w") as jar:
            for entry, text in content.items():
                jar.writestr(entry, text.read_bytes() if isinstance(text, Path) else text)
        (jars / name).symlink_to(store / name)
    write_index(jars, jars)
    return jars


def _look(classes: Path, home: Path, *names: str) -> tuple[list[str], str]:
    path = ":".join(map(str, [home / NAME, *sorted(home.glob("[a-z]*.jar")), classes]))
    command = ["java", "-cp", path, "Look", *names]
    *found, opened = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return found, opened


def test_all_providers_of_a_service_are_found_once(classes: Path, home: Path) -> None:
    found, _ = _look(classes, home)
    assert found == ["a.S", "b.S", "c.S"]


def test_a_search_for_what_is_not_there_opens_no_jar_of_the_index(classes: Path, home: Path) -> None:
    """Those of log4j, which are not in it, come before the last entry of the class path."""
    names = ["no/such/file.txt", "none.properties", "META-INF/none"]
    found, opened = _look(classes, home, *names)
    assert found[:3] == [f"{name} false" for name in names]
    assert "unused.jar" not in opened
    found, opened = _look(classes, home, "d/e/none.txt")
    assert found[0] == "d/e/none.txt false"
    assert "unused.jar" in opened, "it has the package"


def test_what_is_there_is_found(classes: Path, home: Path) -> None:
    names = ["d/e/found.txt", "b.properties", "META-INF/g/found.txt", "META-INF/plugins.dat"]
    found, _ = _look(classes, home, *names)
    assert found[:4] == [f"{name} true" for name in names]
