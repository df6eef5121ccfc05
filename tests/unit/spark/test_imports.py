"""What the processes import, and what of it most of them do not need."""

from __future__ import annotations

import subprocess
import sys

_EVERYTHING = """
import importlib, pkgutil, sys
import cdcsync_spark
for module in pkgutil.walk_packages(cdcsync_spark.__path__, "cdcsync_spark."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
import numpy as np, pyarrow as pa
found = pa.table({"a": pa.array(np.array([1, 2])), "b": pa.array(["x", None])})
print("pandas" in sys.modules, "rich" in sys.modules, found.to_pandas()["a"].sum())
"""
#: what the source of a stream imports
_READER = """
import sys
import cdcsync_spark.binlog.collector, cdcsync_spark.binlog.reader, cdcsync_spark.stream.handover
print(*(name for name in ("cryptography", "deltalake", "obstore", "pandas", "pydantic", "rich") if name in sys.modules))
"""
#: the drivers of a stream and of a snapshot, until something is done that few of them do
_DRIVER = """
import sys
import cdcsync_spark.app.program, cdcsync_spark.app.driver, cdcsync_spark.stream.run, cdcsync_spark.snapshot.run
from pyspark.sql.types import NumpyArrayConverter
NumpyArrayConverter().can_convert("what each call of the JVM asks")
print(*(name for name in ("cryptography", "deltalake", "obstore", "pandas", "pyarrow._s3fs") if name in sys.modules))
"""
#: a user's program
_SOURCES = """
import cdcsync_spark.datasource
from pyarrow.fs import S3FileSystem
"""
_HIDDEN = """
import cdcsync_spark.app.program
import pyarrow._s3fs, pandas
"""
_CONTROLLER = """
import sys
import cdcsync_operator.cli.main, cdcsync_operator.reconcile.source_calls
print(*(name for name in ("cryptography", "obstore", "pyarrow", "pyspark") if name in sys.modules))
"""
#: what is encrypted and decrypted, by two threads that both are the first
_RSA_LOGIN = """
import sys, threading
import cdcsync_mysql.connection
from pymysql import _auth
assert "cryptography" not in sys.modules
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
key = rsa.generate_private_key(65537, 2048)
pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
found = []
def log_in():
    hidden = _auth.sha2_rsa_encrypt(b"secret", b"x" * 20, pem)
    shown = key.decrypt(hidden, padding.OAEP(padding.MGF1(SHA1()), SHA1(), None))
    found.append(bytes(a ^ ord("x") for a in shown[:6]).decode())
threads = [threading.Thread(target=log_in) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
log_in()
print(*found)
"""
#: threads of numpy have the name of the process, others have their own
_THREADS = """
import os
import cdcsync_spark, numpy
names = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
print(names.count(open("/proc/self/comm").read()))
"""


def test_arrow_and_structlog_do_without_pandas_and_rich() -> None:
    assert _output(_EVERYTHING) == ["False", "False", "3"]


def test_the_login_that_needs_cryptography_imports_it() -> None:
    assert _output(_RSA_LOGIN) == ["secret"] * 3


def test_a_reader_does_without_the_models_of_the_specification() -> None:
    assert _output(_READER) == []


def test_a_driver_does_without_delta_rs_and_the_clients_of_object_stores() -> None:
    assert _output(_DRIVER) == []


def test_what_is_kept_out_can_be_imported_by_name() -> None:
    assert _output(_HIDDEN) == []


def test_a_program_that_reads_our_sources_has_all_file_systems() -> None:
    assert _output(_SOURCES) == []


def test_a_local_controller_does_without_the_client_of_object_stores() -> None:
    assert _output(_CONTROLLER) == []


def test_numpy_starts_no_thread() -> None:
    assert _output(_THREADS) == ["1"]


def _output(program: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
