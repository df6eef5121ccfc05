"""The places where the contract of sinks is tested: a local folder, and an S3 server of our own
(moto)."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pyarrow.fs as pafs

from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.lake.storage.stores import open_store
from support.s3server import S3_SERVER

REGION = "us-east-1"
ACCESS_KEY = "LAKEKEYID"
SECRET_KEY = "lake-secret-value"
STORES = ("local", "s3")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class S3Server:
    port: int
    log: Path

    def requests(self, bucket: str) -> list[tuple[str, str]]:
        """Method and path below the bucket of every request so far, as the server's access log has
        them."""
        lines = _COLOURS.sub("", self.log.read_text())
        return re.findall(rf'"?(GET|HEAD|PUT|POST|DELETE) /{bucket}(/?[^ ]*) HTTP', lines)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def make_bucket(self, name: str) -> None:
        s3 = pafs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            region=REGION,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            allow_bucket_creation=True,
        )
        s3.create_dir(name)

    def store(self, bucket: str, secrets: Path) -> Store:
        secret = secrets / "lake"
        secret.mkdir(exist_ok=True)
        (secret / "AWS_ACCESS_KEY_ID").write_text(ACCESS_KEY)
        (secret / "AWS_SECRET_ACCESS_KEY").write_text(SECRET_KEY + "\n")
        return open_store(f"s3://{bucket}/cdc", self.endpoint, REGION, str(secret))


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    with (folder / "moto.log").open("wb") as log:
        process = subprocess.Popen([*S3_SERVER, "-H", "127.0.0.1", "-p", "0"], stdout=log, stderr=subprocess.STDOUT)
        try:
            yield S3Server(_port(folder / "moto.log", process), folder / "moto.log")
        finally:
            process.terminate()
            process.wait()


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    """The port that the server chose, from its first lines."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        _, found, rest = log.read_text().partition("http://127.0.0.1:")
        if found and "\n" in rest:
            return int("".join(c for c in rest.split("\n")[0] if c.isdigit()))
        time.sleep(0.05)
    raise RuntimeError(f"the S3 server did not start: {log.read_text()}")


_EVERYTHING = ("s3:*", "iam:*")


@dataclass(frozen=True)
class GuardedServer:
    """A store that judges every request by the rights of its account; `admin` are the keys of one
    that may do all."""

    server: S3Server
    admin: tuple[str, str]

    def place_with(self, bucket: str, folder: Path, *rights: str) -> Store:
        """A lake in a bucket, reached by a new account with these rights."""
        self.make_bucket(bucket)
        key, value = self.account(*rights)
        (folder / "AWS_ACCESS_KEY_ID").write_text(key)
        (folder / "AWS_SECRET_ACCESS_KEY").write_text(value)
        return open_store(f"s3://{bucket}/cdc", self.server.endpoint, REGION, str(folder))

    def make_bucket(self, name: str) -> None:
        """One that is there is no error."""
        with suppress(self._client("s3").exceptions.BucketAlreadyOwnedByYou):
            self._client("s3").create_bucket(Bucket=name)

    def account(self, *rights: str) -> tuple[str, str]:
        """The keys of a new account with these rights."""
        return _account(self._client("iam"), uuid.uuid4().hex, rights)

    def revoke(self, key: str) -> None:
        """No request with this account's key is answered any more."""
        iam = self._client("iam")
        user = iam.get_access_key_last_used(AccessKeyId=key)["UserName"]
        iam.delete_access_key(UserName=user, AccessKeyId=key)

    def _client(self, service: str) -> Any:
        return _client(self.server, service, self.admin)


@contextmanager
def guarded_server(folder: Path) -> Iterator[GuardedServer]:
    with s3_server(folder) as server:
        admin = _account(_client(server, "iam", (ACCESS_KEY, SECRET_KEY)), "admin", _EVERYTHING)
        judge = urllib.request.Request(
            f"{server.endpoint}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(judge).close()
        yield GuardedServer(server, admin)


def _client(server: S3Server, service: str, keys: tuple[str, str]) -> Any:
    return boto3.client(
        service,
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=keys[0],
        aws_secret_access_key=keys[1],
    )


def _account(iam: Any, name: str, rights: tuple[str, ...]) -> tuple[str, str]:
    """A new account's keys."""
    allowed = {"Effect": "Allow", "Action": list(rights or ["s3:ListAllMyBuckets"]), "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="rights", PolicyDocument=policy)
    made = iam.create_access_key(UserName=name)["AccessKey"]
    return made["AccessKeyId"], made["SecretAccessKey"]
