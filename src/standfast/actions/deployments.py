"""Deployments: `terraform apply`, by serial and lineage of the state; `kubectl apply`, by the version of each object.

An apply can stop half-way. The probe answers "arrived" only if every planned change is there, and "did not arrive" only
if no change was made. Otherwise the answer is unknown.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from standfast.actions.action import Action, Answer, CannotTell, Facts, Place, absent, arrived, unknown
from standfast.actions.command_lines import split
from standfast.actions.programs import run, word

CHANGES_MAX = 200
OBJECTS_MAX = 50

# -- terraform ---------------------------------------------------------------------------------------------

_TERRAFORM_FLAGS = ("-auto-approve", "-no-color", "-compact-warnings")
_TERRAFORM_VALUES = ("-input", "-lock", "-lock-timeout", "-parallelism", "-var", "-var-file", "-refresh")


def _parse_terraform(args: Sequence[str]) -> Facts | None:
    rest: list[str] = []
    left = list(args)
    while left:
        name, equals, _ = (given := left.pop(0)).partition("=")
        if not given.startswith("-"):
            rest.append(given)
        elif name in _TERRAFORM_VALUES and not equals and left:
            left.pop(0)
        elif name not in (*_TERRAFORM_FLAGS, *_TERRAFORM_VALUES):
            return None
    return {"plan": (*rest, None)[0]} if len(rest) <= 1 else None


def _before_terraform(facts: Facts, place: Place) -> Facts:
    if place.sent_us is not None:
        raise CannotTell("the state before the apply is unknown")
    serial, lineage, _ = _state(place)
    changes = None if facts["plan"] is None else _planned(facts["plan"], place)
    return {"serial": serial, "lineage": lineage, "changes": changes}


def _state(place: Place) -> tuple[int, str | None, dict[str, bool]]:
    """The serial and lineage of the state, and for each resource whether it is complete."""
    ended = run(("terraform", "state", "pull"), cwd=place.cwd, within_s=place.within_s)
    if ended.code != 0:
        raise CannotTell(f"terraform state pull: {ended.why}")
    found = json.loads(ended.stdout) if ended.stdout.strip() else {"serial": 0, "lineage": None, "resources": []}
    return read_state(found)


def read_state(found: Any) -> tuple[int, str | None, dict[str, bool]]:
    """The serial, lineage and resources in the text of a state of format 4. Raises CannotTell for another format."""
    if found.get("version", 4) != 4:
        raise CannotTell(f"a terraform state of format {found.get('version')} is not known")
    return int(found["serial"]), found["lineage"], dict(_resources(found.get("resources") or []))


def _resources(resources: list[Any]) -> Iterator[tuple[str, bool]]:
    for one in resources:
        if one.get("mode") != "managed":
            continue
        module = f"{one['module']}." if one.get("module") else ""
        for instance in one.get("instances") or []:
            index = instance.get("index_key")
            key = "" if index is None else f"[{json.dumps(index)}]"
            whole = instance.get("status") != "tainted" and not instance.get("deposed")
            yield f"{module}{one['type']}.{one['name']}{key}", whole


def _planned(plan: str, place: Place) -> dict[str, str]:
    """The change that a saved plan makes to each resource: `create`, `delete` or `update`."""
    ended = run(("terraform", "show", "-json", word(plan)), cwd=place.cwd, within_s=place.within_s)
    if ended.code != 0:
        raise CannotTell(f"terraform show: {ended.why}")
    return read_plan(json.loads(ended.stdout))


def read_plan(found: Any) -> dict[str, str]:
    """The planned changes in the JSON of a plan."""
    changes: dict[str, str] = {}
    for one in found.get("resource_changes") or []:
        actions = one["change"]["actions"]
        if one.get("mode") == "managed" and actions not in (["no-op"], ["read"]):
            changes[one["address"]] = actions[0] if len(actions) == 1 else "update"
    if len(changes) > CHANGES_MAX:
        raise CannotTell(f"the plan has more than {CHANGES_MAX} changes")
    return changes


def _find_terraform(facts: Facts, place: Place) -> Answer:
    serial, lineage, resources = _state(place)
    before = f"serial {facts['serial']}"
    if (serial, lineage) == (facts["serial"], facts["lineage"]):
        return _not_begun(place, before)
    if facts["lineage"] not in (None, lineage):
        return unknown(f"the state has another lineage than before, {lineage}")
    changes = facts["changes"]
    if changes is None:
        return unknown(f"the state went from {before} to {serial}: `terraform plan` says whether all of it is there")
    left = [name for name, kind in changes.items() if not _changed(kind, resources.get(name))]
    if left:
        return unknown(f"the state went from {before} to {serial}, but not for {', '.join(left[:3])}")
    return arrived(f"all {len(changes)} changes are in the state, serial {serial}", {"serial": serial})


def _changed(kind: str, whole: bool | None) -> bool:
    """Whether the Terraform state shows that a planned change was made. It never shows an update."""
    return whole is True if kind == "create" else whole is None if kind == "delete" else False


def _not_begun(place: Place, before: str) -> Answer:
    """The answer for an unchanged state. Only a local state without a lock proves that no change was made."""
    if os.path.exists(os.path.join(place.cwd, ".terraform", "terraform.tfstate")):
        return unknown(f"the state is still at {before}, but a remote backend does not say whether it began")
    if os.path.exists(os.path.join(place.cwd, ".terraform.tfstate.lock.info")):
        return unknown(f"the state is still at {before} and locked: resources may have been created")
    return absent(f"the state is still at {before} and not locked")


def inside_terraform(args: Sequence[str]) -> tuple[str | None, list[str]]:
    """`terraform -chdir=DIR apply`: the directory, and the rest."""
    if args and args[0].startswith("-chdir="):
        return args[0].partition("=")[2], list(args[1:])
    return None, list(args)


# -- kubectl -----------------------------------------------------------------------------------------------

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OBJECT = re.compile(r"[A-Za-z][A-Za-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9.:-]*")


def _parse_kubectl(args: Sequence[str]) -> Facts | None:
    words = split(
        args,
        flags="--server-side --force-conflicts --wait -R --recursive",
        values="-f --filename -k --kustomize -n --namespace --context --field-manager",
    )
    if words is None or words.rest:
        return None
    file, directory = words.value("-f", "--filename"), words.value("-k", "--kustomize")
    if (file is None) == (directory is None) or file == "-":
        return None
    source = ["-k", directory] if file is None else ["-f", file]
    return {"source": source, "namespace": words.value("-n", "--namespace"), "context": words.value("--context")}


def _kubectl(facts: Facts, place: Place, *words: str) -> Any:
    named = [f"--{name}={word(facts[name])}" for name in ("namespace", "context") if facts.get(name)]
    ended = run(
        ("kubectl", *words, *named, "-o", "json", "--request-timeout=15s"), cwd=place.cwd, within_s=place.within_s
    )
    if ended.code != 0:
        raise CannotTell(f"kubectl {words[0]}: {ended.why}")
    return json.loads(ended.stdout) if ended.stdout.strip() else {}


def _before_kubectl(facts: Facts, place: Place) -> Facts:
    if place.sent_us is not None:
        raise CannotTell("the objects before the apply are unknown")
    option, source = facts["source"]
    wanted = _kubectl(facts, place, "create", "--dry-run=client", "--validate=false", option, word(source))
    objects = sorted(read_objects(wanted))
    if not objects or len(objects) > OBJECTS_MAX:
        raise CannotTell(f"the file has {len(objects)} objects")
    kept = {"namespace": facts["namespace"], "context": facts["context"]}
    return {**kept, "was": dict.fromkeys(objects) | _objects({**kept, "was": objects}, place)}


def _objects(facts: Facts, place: Place) -> dict[str, str]:
    names = list(facts["was"])
    if not all(isinstance(name, str) and _OBJECT.fullmatch(name) for name in names):
        raise CannotTell("the recorded names are no objects")
    found = read_objects(_kubectl(facts, place, "get", "--ignore-not-found", *names))
    return {name: found[name] for name in names if name in found}


def read_objects(found: Any) -> dict[str, str]:
    """The version of each object in an answer of `kubectl get -o json`."""
    items = found.get("items") if isinstance(found.get("items"), list) else [found] if found.get("kind") else []
    return {f"{_kind(one)}/{one['metadata']['name']}": _version(one["metadata"]) for one in items}


def _kind(one: Any) -> str:
    group = one.get("apiVersion", "v1").rpartition("/")[0]
    return f"{one['kind'].lower()}.{group}" if group else one["kind"].lower()


def _version(metadata: Any) -> str:
    """The generation, and the hash of the last applied configuration. A server-side apply stores no configuration."""
    applied = (metadata.get("annotations") or {}).get(_LAST_APPLIED)
    seen = f"generation {metadata.get('generation', 0)}"
    return f"{seen}, applied {hashlib.sha256(applied.encode()).hexdigest()[:12]}" if applied else seen


def _find_kubectl(facts: Facts, place: Place) -> Answer:
    was = facts["was"]
    return compared(was, _objects(facts, place))


def compared(was: dict[str, str | None], now: dict[str, str]) -> Answer:
    """Whether every object has changed since, or none."""
    changed = [name for name in was if now.get(name) is not None and now.get(name) != was[name]]
    if len(changed) == len(was):
        return arrived(
            f"all {len(was)} objects are applied: {', '.join(f'{name} at {now[name]}' for name in changed[:3])}"
        )
    if not changed:
        return absent(f"none of {len(was)} objects changed")
    return unknown(f"only {', '.join(changed[:3])} of {len(was)} objects changed")


# -- the entries -------------------------------------------------------------------------------------------

ACTIONS = (
    Action(
        name="terraform apply",
        commands=("terraform apply",),
        tools=(),
        by="serial and lineage of the state, and the changes of a saved plan",
        compensate="terraform apply of the configuration before",
        cannot="an apply that stopped half-way; without a saved plan also one that finished",
        settle="10s",
        settle_why="only the killed process itself writes the state",
        parse=_parse_terraform,
        before=_before_terraform,
        find=_find_terraform,
        looks=lambda facts: "terraform state pull",
    ),
    Action(
        name="kubectl apply",
        commands=("kubectl apply",),
        tools=(),
        by="each object's last applied configuration and generation",
        compensate="kubectl apply of the file before, or kubectl rollout undo",
        cannot="an apply that changes nothing: it counts as not arrived, and applying again is harmless",
        settle="10s",
        settle_why="the API server answers reads from a cache",
        parse=_parse_kubectl,
        before=_before_kubectl,
        find=_find_kubectl,
        looks=lambda facts: f"kubectl get {' '.join(facts['was'])}",
    ),
)
