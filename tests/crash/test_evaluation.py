"""docs/internals/evaluation.md has the committed results, and every claim of the README links to a row of it."""

from __future__ import annotations

import re
from pathlib import Path

from standfast_prove import results
from standfast_prove.report import page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "prove" / "results"
EVALUATION = ROOT / "docs" / "internals" / "evaluation.md"


def test_the_page_is_what_the_results_say() -> None:
    """002-47: all figures come from result files. `make evaluation` writes the page."""
    assert EVALUATION.read_text() == page(RESULTS), (
        "prove/results and docs/internals/evaluation.md differ: make evaluation"
    )


def test_nothing_went_wrong_and_every_seeded_bug_was_found() -> None:
    runs = results.read(RESULTS)
    assert [sentence for one in results.every(runs) for sentence in one.bad] == []
    newest = {bug["mutant"]: bug for run in runs for bug in run.mutants}
    assert [name for name, bug in newest.items() if not bug["found"] and not bug["not_run"]] == []


def test_every_result_has_its_command_and_versions() -> None:
    for run in results.read(RESULTS):
        assert run.command.startswith("standfast prove")
        assert {"standfast", "source", "python", "sqlite", "system"} <= set(run.versions)
        assert run.seconds > 0


def test_a_claim_that_links_to_a_row_points_to_one() -> None:
    """Each link to a row, in the README and on every page, points to an existing row."""
    rows = set(re.findall(r'<a id="([^"]+)">', EVALUATION.read_text()))
    assert len(rows) == len(re.findall(r'<a id="([^"]+)">', EVALUATION.read_text())), "two rows have the same anchor"
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    linked = {(path.name, name) for path in pages for name in re.findall(r"evaluation\.md#([\w-]+)", path.read_text())}
    assert [f"{page} points to {name}, which is no row" for page, name in sorted(linked) if name not in rows] == []


def test_the_readme_claims_are_linked_to_their_rows() -> None:
    assert len(set(re.findall(r"docs/internals/evaluation\.md#[\w-]+", (ROOT / "README.md").read_text()))) >= 5
