"""The nine-part system on DBOS: workflows, steps, a queue, a message, an event, a schedule. `run.py` kills it."""

import sys
import threading
from datetime import datetime
from typing import Any

import world
from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found,unused-ignore]  # run.py installs it

# mypy: disable-error-code="untyped-decorator, no-any-return"


@DBOS.step()
def plan(issue: str) -> str:
    return world.plan(issue)


@DBOS.step()
def edit(plan: str) -> str:
    return world.edit(plan)


@DBOS.step()
def open_pr(branch: str) -> str:
    return world.find_pr(branch) or world.open_pr(branch)


@DBOS.step()
def post_review(pr: str) -> str:
    return world.find_review(pr) or world.post_review(pr)


@DBOS.step()
def deploy(version: str) -> str:
    return world.find_deployment(version) or world.deploy(version)


@DBOS.step()
def send_report(night: str) -> str:
    return world.find_report(night) or world.send_report(night)


@DBOS.workflow()
def review(pr: str) -> str:
    return post_review(pr)


@DBOS.workflow()
def fix() -> None:
    pr = open_pr(edit(plan("issue 42")))
    verdict = DBOS.enqueue_workflow("reviews", review, pr).get_result()
    DBOS.set_event("why", f"deploy v42, because the reviewer says: {verdict}")
    if DBOS.recv("approval", timeout_seconds=600):
        deploy("v42")


@DBOS.workflow()
def report(time: datetime | None, context: Any) -> None:
    send_report(world.tonight())


def launch(executor: str, *queues: str) -> None:
    DBOS(config={"name": "shop", "executor_id": executor, "application_version": "1", "log_level": "CRITICAL"})
    DBOS.listen_queues(queues)
    DBOS.launch()


def coder() -> None:
    launch("coder")
    DBOS.register_queue("reviews")
    nightly = {"schedule_name": "nightly", "workflow_fn": report, "schedule": "0 3 * * *"}
    DBOS.apply_schedules([nightly])
    with SetWorkflowID("fix-42"):
        DBOS.start_workflow(fix).get_result()


def reviewer() -> None:
    launch("reviewer", "reviews")
    threading.Event().wait()


def nightly() -> None:
    launch("nightly")
    with SetWorkflowID(f"nightly {world.tonight()}"):
        DBOS.start_workflow(report, None, None).get_result()


def what_happened() -> None:
    launch("person")
    for workflow in DBOS.list_workflows():
        for step in DBOS.list_workflow_steps(workflow.workflow_id):
            print(workflow.workflow_id, step["function_name"], step["started_at_epoch_ms"])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
