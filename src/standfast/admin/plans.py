"""The hash of a plan: a person confirms it with `--confirm HASH` if there is no terminal."""

from __future__ import annotations

from collections.abc import Mapping

from standfast import serial
from standfast.serial import Json


def plan_hash(facts: Mapping[str, Json]) -> str:
    """12 hex digits. Leave out what may differ at the next call, such as a time."""
    return serial.hash(dict(facts)).removeprefix("h1:")[:12]
