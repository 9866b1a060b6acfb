"""The columns that a model reads, written once per table: `SELECT {columns:mail}` in a `.sql` file.

A statement names its columns and never uses `*`, so an older process does not see columns that it does not know.
"""

from __future__ import annotations

_TEXTS = {
    "agent": """
        scope name kind status status_why task_id config metadata holder first_seen_us last_seen_us""",
    "artifact": """
        id scope session_id name kind digest uri size_bytes retention actor created_us""",
    "checkpoint": """
        id session_id node_id from_position to_position cursor summary data cache_keys versions size_bytes
        created_us""",
    "credit_entry": """
        seq id scope account unit amount key hash reason actor created_us occurred_us""",
    "dead_letter": """
        id scope subject kind reason attempts created_us settled_us settlement settled_by note""",
    "decision": """
        id scope session_id node_id position what why plan n state outcome agent actor tags created_us
        closed_us""",
    "event": """
        seq time_us occurred_us scope actor holder source type subject session_id state stream version summary
        data""",
    "gate": """
        id scope pattern need why actor created_us removed_us""",
    "import_source": """
        seq id agent host path state note native_id session_id identity head size_bytes mtime_us upto
        generation reader carry counts first_us last_us created_us updated_us""",
    "lease": """
        scope name holder actor lease_until_us lease_boot lease_mono_us lease_for_us fence acquired_us note""",
    "mail": """
        seq id scope box sender thread_id reply_to_id subject body hash key priority state reason attempts
        attempts_max provenance session_id ready_us expires_us holder actor lease_until_us lease_boot
        lease_mono_us lease_for_us kept fence sent_us read_us ended_us""",
    "message": """
        id session_id node_id position role format content hash key actor created_us occurred_us retracted_us""",
    "node": """
        id session_id parent_id name title first_position next_position created_us""",
    "session": """
        id scope key state reason agent preview command cwd cursor parent_id cut_node_id cut_position cut_seq
        openings holder actor lease_until_us lease_boot lease_mono_us lease_for_us fence created_us updated_us
        ended_us git_dir origin""",
    "state": """
        scope namespace key value version json_schema verify verified_us verdict actor updated_us expires_us""",
    "task": """
        id scope fingerprint episode state reason title body kind source priority labels branch assignee
        parent_id session_id result occurrences first_seen_us last_seen_us cool_down_us snoozed_until_us
        due_us holder actor lease_until_us lease_boot lease_mono_us lease_for_us fence created_us updated_us
        closed_us""",
    "webhook_event": """
        id scope source event_id kind hash payload state result error deliveries attempts attempts_max
        ready_us holder actor lease_until_us lease_boot lease_mono_us lease_for_us fence received_us ended_us""",
}
COLUMNS = {table: tuple(text.split()) for table, text in _TEXTS.items()}


def listed(table: str, alias: str | None) -> str:
    """The columns of `table` as a select list, each with the alias of the table if it has one."""
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + name for name in COLUMNS[table])
