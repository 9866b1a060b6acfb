"""`backup audit TARGET`: how safe a place of copies, a bucket, a server or an RDS instance is.

The audit only reads.

    DIR               modes, and the age, size and state of the copies in it
    s3://BUCKET/NAME  the same, and versioning, object lock, encryption, public access (extra `aws`)
    postgresql://…    archiving, standbys, checksums
    rds:NAME          retention, point-in-time recovery, encryption, deletion protection (extra `aws`)

A client of AWS refuses every call but Describe, Get, List and Head before it leaves this machine.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Literal

from standfast import hints, modules
from standfast.admin.copies.places import Directory, opened
from standfast.admin.copies.resource import listed
from standfast.clock import DAY_US, SYSTEM, format_duration
from standfast.config.target import mask
from standfast.errors import StorageError
from standfast.models import Model

READS = ("Describe", "Get", "List", "Head")
RETENTION_MIN_DAYS = 7
ARCHIVED_MAX_S = 3600
DENIED = ("AccessDenied", "AllAccessDisabled", "MethodNotAllowed", "NotImplemented", "403")
State = Literal["ok", "warn", "error"]


class Finding(Model):
    """One setting or fact that the audit read."""

    id: str
    state: State
    text: str
    remedy: str = ""


def audit(target: str) -> list[Finding]:
    """Read the settings of a target. Raises StorageError if it cannot be reached."""
    if target.startswith("rds:"):
        return list(_rds(_client("rds"), target.removeprefix("rds:")))
    if target.startswith(("postgresql://", "postgres://")):
        return list(_server(target))
    if target.startswith("s3://"):
        return [*_bucket(_client("s3"), target.removeprefix("s3://").partition("/")[0]), *_copies(target)]
    return [*_directory(target), *_copies(target)]


def _judged(id: str, well: bool, text: str, remedy: str, otherwise: State = "warn") -> Finding:
    return Finding(id, "ok", text) if well else Finding(id, otherwise, text, remedy)


def _copies(target: str) -> Iterator[Finding]:
    root = opened(target)
    stores = root.stores()
    if not stores:
        yield Finding("copies", "error", f"{root.shown} has no copies", hints.command("backup", "--to", target))
    for store_id in stores:
        copies = listed(root.of(store_id))
        damaged = [copy.id for copy in copies if copy.damage]
        if damaged:
            yield Finding("copies", "error", f"{store_id}: damaged: {', '.join(damaged)}", "standfast backup list")
        text = f"{store_id}: {len(copies)} copies, {sum(copy.size_bytes for copy in copies)} bytes"
        newest_us = max((copy.taken_us for copy in copies if copy.verified_us), default=None)
        if newest_us is None:
            yield Finding("copies", "error", f"{text}, none verified", "standfast backup verify")
        else:
            age_us = SYSTEM.now_us() - newest_us
            text += f", the last verified {format_duration(age_us, parts=1)} old"
            yield _judged("copies", age_us <= DAY_US, text, "standfast backup")


def _directory(path: str) -> Iterator[Finding]:
    place = opened(path)
    assert isinstance(place, Directory)
    if not os.path.isdir(place.path):
        raise StorageError(f"{place.path} is not a directory", "standfast where", code="not_found")
    mode = stat.S_IMODE(os.stat(place.path).st_mode)
    yield _judged("access", not mode & 0o077, f"mode {mode:04o}", f"chmod 700 {place.path}")
    text = "an agent of this account can delete these copies"
    yield Finding("deletion", "warn", text, "copy them to S3 with versioning")


# -- PostgreSQL -----------------------------------------------------------------------------------------


def _server(url: str) -> Iterator[Finding]:
    modules.load("standfast.db.postgres.audit")
    from standfast.db.postgres.audit import ask

    found = ask(url)
    yield Finding("server", "ok", f"{mask(url)}: PostgreSQL {found['version']}, {found['size_bytes']} bytes")
    yield _judged("fsync", found["fsync"] == "on", f"fsync = {found['fsync']}", "fsync = on", "error")
    checksums = found["checksums"] == "on"
    yield _judged("checksums", checksums, f"data_checksums = {found['checksums']}", "pg_checksums --enable")
    if found["archive_mode"] == "off":
        hint = "archive_mode = on with pgBackRest, WAL-G or Barman; or take copies: standfast backup"
        yield Finding("archive", "warn", "archive_mode = off: there is no point-in-time recovery", hint)
    else:
        age_s = found["archived_age_s"]
        late = found["failing"] or age_s is None or age_s > ARCHIVED_MAX_S
        age = "never" if age_s is None else f"{age_s} s ago"
        text = f"{found['archived']} WAL files archived, the last {age}; {found['failed']} failures"
        yield _judged("archive", not late, text, "SELECT * FROM pg_stat_archiver", "error")
    yield Finding("standbys", "ok", f"{found['standbys']} standbys are connected")


# -- AWS --------------------------------------------------------------------------------------------------


def _client(service: str) -> Any:
    """A client that cannot write. Credentials come from the environment."""
    try:
        boto3: Any = import_module("boto3")
    except ImportError:
        raise StorageError("this audit needs the package boto3", modules.install("aws"), code="missing_extra") from None
    client = boto3.client(service)
    client.meta.events.register_first("before-parameter-build.*.*", _refuse_writing)
    return client


def _refuse_writing(model: Any, **_: object) -> None:
    if not model.name.startswith(READS):
        raise AssertionError(f"an audit does not call {model.name}")


def _asked(client: Any, call: str, **given: str) -> tuple[Any, str]:
    """The answer of one call and "", or None and the error code of AWS."""
    errors: Any = import_module("botocore.exceptions")
    try:
        return getattr(client, call)(**given), ""
    except errors.ClientError as error:
        return None, error.response.get("Error", {}).get("Code", "")
    except errors.BotoCoreError as error:
        raise StorageError(f"AWS cannot be asked: {error}", "set AWS_REGION and the keys in the environment") from None


def _bucket(s3: Any, name: str) -> Iterator[Finding]:
    for id, call in (
        ("versioning", "get_bucket_versioning"),
        ("lock", "get_object_lock_configuration"),
        ("encryption", "get_bucket_encryption"),
        ("public", "get_public_access_block"),
    ):
        found, code = _asked(s3, call, Bucket=name)
        if code.startswith("NoSuchBucket") or code == "404":
            raise StorageError(f"there is no bucket {name}", "standfast where", code="not_found")
        if code in DENIED:
            text, remedy = f"not known: the service answers {code}", "ask with a key that may read settings"
            yield Finding(id, "warn", text, remedy)
        else:
            yield _setting(id, found or {})


def _setting(id: str, found: Any) -> Finding:
    """The value of one setting of a bucket. Empty if the bucket does not have it."""
    if id == "versioning":
        state = found.get("Status", "off")
        return _judged(id, state == "Enabled", f"versioning: {state}", "enable versioning", "error")
    if id == "lock":
        rule = found.get("ObjectLockConfiguration", {}).get("Rule", {}).get("DefaultRetention", {})
        text = f"object lock: {rule}" if rule else "no object lock: a key that may delete removes copies"
        return _judged(id, bool(rule), text, "create a bucket with object lock and a default retention")
    if id == "encryption":
        rules = found.get("ServerSideEncryptionConfiguration", {}).get("Rules", [])
        kinds = ", ".join(rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] for rule in rules)
        return _judged(id, bool(kinds), f"default encryption: {kinds or 'none'}", "set SSE-S3 or SSE-KMS")
    blocks = found.get("PublicAccessBlockConfiguration", {"public access": False})
    open_ = sorted(block for block, on in blocks.items() if not on)
    text = f"not blocked: {', '.join(open_)}" if open_ else "public access is blocked"
    return _judged(id, not open_, text, "block all public access", "error")


def _rds(rds: Any, name: str) -> Iterator[Finding]:
    answer, code = _asked(rds, "describe_db_instances", DBInstanceIdentifier=name)
    if answer is None:
        raise StorageError(f"the instance {name} cannot be asked: {code}", "rds:NAME of this region", code="not_found")
    (found,) = answer["DBInstances"]
    days = int(found.get("BackupRetentionPeriod", 0))
    text = f"automatic backups are kept for {days} days" if days else "automatic backups are off"
    remedy = f"keep {RETENTION_MIN_DAYS} days or more"
    yield _judged("retention", days >= RETENTION_MIN_DAYS, text, remedy, "warn" if days else "error")
    latest = found.get("LatestRestorableTime")
    if latest is None or not days:
        yield Finding("pitr", "error", "there is no point-in-time recovery", "set a retention period")
    else:
        age_s = int(time.time() - latest.timestamp())
        text = f"restorable to any second of the last {days} days, up to {age_s} s ago"
        yield _judged("pitr", age_s <= ARCHIVED_MAX_S, text, "look at the instance's events")
    for id, field in (("encryption", "StorageEncrypted"), ("deletion", "DeletionProtection")):
        on = bool(found.get(field))
        yield _judged(id, on, f"{field} is {'on' if on else 'off'}", f"set {field}")
    public = bool(found.get("PubliclyAccessible"))
    text = "reachable from the internet" if public else "not public"
    yield _judged("public", not public, text, "PubliclyAccessible = no", "error")
