"""A REST catalog of Iceberg tables that a test session owns: Iceberg's own handlers
(`IcebergRestServer.java`) over its JDBC catalog on SQLite, in a folder and on a port of its own. It
can lose an answer, refuse, hang and forget on demand."""

from __future__ import annotations

import sqlite3
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode

import pyspark

from cdcsync_demo.server_process import LOOPBACK, ServerProcess

_SUPPORT = Path(__file__).parent
ICEBERG = _SUPPORT.parents[1] / ".cache" / "iceberg-1.12.0"
SPARK_JARS = Path(pyspark.__path__[0]) / "jars"


class IcebergCatalog:
    """`start` it, then work in namespaces of one's own; tables lie in `warehouse`, which may be a
    folder or, with `properties` of Iceberg's library, a place in an object store. `database` is the
    file of SQLite, in which the catalog is called `cdcsync`. It listens at `address`, one of this
    machine's."""

    def __init__(
        self,
        folder: Path,
        warehouse: str = "",
        database: Path | None = None,
        address: str = LOOPBACK,
        **properties: str,
    ) -> None:
        if not (ICEBERG / "classes" / "SignedStoreIO.class").is_file():
            subprocess.run([str(_SUPPORT / "iceberg-jars.sh"), str(ICEBERG), str(SPARK_JARS)], check=True)
        self.warehouse = warehouse or str(folder / "warehouse")
        self.database = database or folder / "catalog.db"
        self._address, self._properties = address, properties
        self._process = ServerProcess(self._command, folder / "catalog.log", self._serves)

    def start(self) -> IcebergCatalog:
        """Again on its port, where it was killed."""
        self._process.start(self._process.port)
        return self

    def kill(self) -> None:
        self._process.kill()

    @property
    def uri(self) -> str:
        return f"http://{self._address}:{self._process.port}"

    def fault(self, name: str) -> None:
        """See `IcebergRestServer.java`."""
        with urllib.request.urlopen(f"{self.uri}/fault?{name}", timeout=600):
            pass

    def holds(self) -> bool:
        """Whether the request that `fault("hold")` keeps from being carried out has come."""
        with suppress(HTTPError), urllib.request.urlopen(f"{self.uri}/held", timeout=600):
            return True
        return False

    def vend(self, settings: Mapping[str, str]) -> None:
        """From then on, who asks for the credentials of a table's files is given these."""
        with urllib.request.urlopen(f"{self.uri}/vend?{urlencode(settings)}", timeout=600):
            pass

    def _command(self, port: int) -> Sequence[str]:
        java = ("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
        path = (ICEBERG / "classes", ICEBERG / "jars" / "*", SPARK_JARS / "*")
        settings = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self.database}?busy_timeout=60000",
            "jdbc.schema-version": "V1",
            "warehouse": self.warehouse,
            **self._properties,
        }
        arguments = (f"{name}={value}" for name, value in settings.items())
        server = [f"-Daddress={self._address}", "-cp", ":".join(map(str, path)), "IcebergRestServer"]
        return [*java, *server, str(port), *arguments]

    def _serves(self, port: int) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}:{port}/v1/config", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def metadata_file(database: Path, namespace: str, table: str) -> str:
    """The newest `metadata.json` of a table of a catalog in a file of SQLite."""
    question = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
    with closing(sqlite3.connect(database)) as connection:
        ((location,),) = connection.execute(question, (namespace, table)).fetchall()
    return str(location)
