"""`backup audit` lists the properties of each target that keeps copies, and never writes."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import standfast
from standfast.admin.copies import audit
from standfast_prove.postgres import fresh_database
from tests import frameworks, s3
from tests.interfaces.test_cli import run

MOTO = "moto==5.2.5"
FAKE = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """AWS as moto plays it, in this process."""
    frameworks.importable(MOTO)
    for name, value in FAKE.items():
        monkeypatch.setenv(name, value)
    from moto import mock_aws  # type: ignore[import-not-found]

    with mock_aws():
        import boto3  # type: ignore[import-not-found]

        yield boto3


def states(found: list[audit.Finding]) -> dict[str, str]:
    return {one.id: one.state for one in found}


def test_a_directory_of_copies(tmp_path: Path) -> None:
    """000-43: the modes of the directory, and age, size and state of the copies. The audit changes nothing in it."""
    place = tmp_path / "copies"
    with standfast.open(data_dir=tmp_path / "data") as sf:
        copy = sf.backup(place)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in place.rglob("*")}
    assert states(audit.audit(str(place))) == {"access": "ok", "deletion": "warn", "copies": "ok"}
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in place.rglob("*")} == before
    place.chmod(0o755)
    (Path(copy.place) / f"{copy.id}.json").write_text("{")
    found = audit.audit(str(place))
    assert states(found) == {"access": "warn", "deletion": "warn", "copies": "error"}
    assert any(copy.id in one.text for one in found)
    done = run("backup", "audit", str(place), "--json", home=tmp_path)
    assert (done.returncode, len(json.loads(done.stdout)["data"])) == (1, len(found))
    assert run("backup", "audit", str(tmp_path / "none"), home=tmp_path).returncode == 1


def test_a_server_is_asked_and_its_wal_position_does_not_move(pg_url: str) -> None:
    """000-43: the audit uses a read-only transaction, so the WAL position does not move."""
    with fresh_database(pg_url) as url, psycopg.connect(url, autocommit=True) as admin:
        position = "SELECT pg_current_wal_insert_lsn()"
        audit.audit(url)
        admin.execute("CHECKPOINT")
        before = admin.execute(position).fetchone()
        found = states(audit.audit(url))
        assert admin.execute(position).fetchone() == before
    assert set(found) == {"server", "fsync", "checksums", "archive", "standbys"}
    assert (found["archive"], found["fsync"]) == ("warn", "ok")
    with pytest.raises(standfast.StorageError):
        audit.audit("postgresql://ada@127.0.0.1:1/x")


@pytest.mark.slow  # moto takes 20 s of CPU to import
def test_an_rds_instance(aws: Any) -> None:
    """000-43: retention, PITR window, encryption, deletion protection."""
    rds = aws.client("rds")
    asked = {"Engine": "postgres", "DBInstanceClass": "db.t3.micro", "AllocatedStorage": 20}
    asked |= {"MasterUsername": "ada", "MasterUserPassword": "hunter2hunter2"}
    rds.create_db_instance(DBInstanceIdentifier="weak", BackupRetentionPeriod=0, PubliclyAccessible=True, **asked)
    safe = {"StorageEncrypted": True, "DeletionProtection": True, "PubliclyAccessible": False}
    rds.create_db_instance(DBInstanceIdentifier="safe", BackupRetentionPeriod=14, **safe, **asked)
    weak = states(audit.audit("rds:weak"))
    assert (weak["retention"], weak["pitr"], weak["encryption"], weak["public"]) == ("error", "error", "warn", "error")
    found = audit.audit("rds:safe")
    assert states(found) == dict.fromkeys(("retention", "pitr", "encryption", "deletion", "public"), "ok")
    assert "any second of the last 14 days" in next(one.text for one in found if one.id == "pitr")
    with pytest.raises(standfast.StorageError, match="none"):
        audit.audit("rds:none")


@pytest.mark.slow  # moto takes 20 s of CPU to import
def test_a_bucket(aws: Any) -> None:
    """000-43: versioning, object lock, encryption, public access."""
    client = aws.client("s3")
    client.create_bucket(Bucket="weak")
    client.create_bucket(Bucket="safe", ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 30}}
    lock = {"ObjectLockEnabled": "Enabled", "Rule": rule}
    client.put_object_lock_configuration(Bucket="safe", ObjectLockConfiguration=lock)
    blocks = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    client.put_public_access_block(Bucket="safe", PublicAccessBlockConfiguration=dict.fromkeys(blocks, True))
    sse = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]}
    client.put_bucket_encryption(Bucket="safe", ServerSideEncryptionConfiguration=sse)
    weak = states(list(audit._bucket(audit._client("s3"), "weak")))
    assert (weak["versioning"], weak["lock"], weak["public"]) == ("error", "warn", "error")
    safe = states(list(audit._bucket(audit._client("s3"), "safe")))
    assert safe == {"versioning": "ok", "lock": "ok", "encryption": "ok", "public": "ok"}


@pytest.mark.slow  # moto takes 20 s of CPU to import
def test_a_client_of_an_audit_refuses_to_write(aws: Any) -> None:
    """000-43: the client refuses the call before it leaves this machine."""
    client = audit._client("s3")
    for call in (
        lambda: client.create_bucket(Bucket="new"),
        lambda: client.put_object(Bucket="new", Key="x", Body=b"x"),
        lambda: client.delete_object(Bucket="new", Key="x"),
    ):
        with pytest.raises(AssertionError, match="an audit does not call"):
            call()
    assert client.list_buckets()["Buckets"] == []
    with pytest.raises(AssertionError, match="an audit does not call DeleteDBInstance"):
        audit._client("rds").delete_db_instance(DBInstanceIdentifier="safe")


@contextmanager
def only_reading(endpoint: str) -> Iterator[tuple[str, list[str]]]:
    """A proxy that refuses every method but GET and HEAD: its address, and the methods it saw."""
    seen: list[str] = []
    there = urlsplit(endpoint)

    class Proxy(BaseHTTPRequestHandler):
        def forward(self) -> None:
            seen.append(self.command)
            if self.command not in ("GET", "HEAD"):
                self.send_error(405)
                return
            connection = http.client.HTTPConnection(there.hostname or "", there.port)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            with closing(connection):
                answer = connection.getresponse()
                body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward  # noqa: N815  http.server names them

        def log_message(self, *args: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow  # installs moto
def test_an_audit_of_s3_needs_no_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """000-43: through a proxy that refuses writes, and with a read-only key. The control is a copy, which fails."""
    frameworks.importable(MOTO)  # has boto3
    with s3.server(tmp_path / "weed") as variables, only_reading(variables["AWS_ENDPOINT_URL"]) as (address, seen):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with standfast.open(data_dir=tmp_path / "data") as sf:
            sf.backup("s3://keep/agents")
            monkeypatch.setenv("AWS_ENDPOINT_URL", address)
            found = audit.audit("s3://keep/agents")
            assert set(seen) <= {"GET", "HEAD"}
            assert states(found)["copies"] == "ok"
            with pytest.raises(standfast.StorageError, match="was not written"):
                sf.backup("s3://keep/agents")
            assert "PUT" in seen
            for name, value in {**s3.READER, "AWS_ENDPOINT_URL": variables["AWS_ENDPOINT_URL"]}.items():
                monkeypatch.setenv(name, value)
            assert states(audit.audit("s3://keep/agents"))["copies"] == "ok"
            with pytest.raises(standfast.StorageError, match="was not written"):
                sf.backup("s3://keep/agents")
            with pytest.raises(standfast.StorageError, match="no bucket"):
                audit.audit("s3://no-such-bucket/agents")
