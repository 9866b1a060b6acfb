"""The columns that a model reads, written once per table: `SELECT {columns:mail}` in a `.sql` file.

A statement names its columns and never uses `*`, so an older process does not see columns that it does not know.
"""

from __future__ import annotations

LEASE = "holder actor lease_until_us lease_boot lease_mono_us lease_for_us"
"""The columns of a row that one holder has at a time."""
_TEXTS = {
    "agent": """
        scope name kind status status_why task_id config metadata holder first_seen_us last_seen_us""",
    "approval": """
        id scope session_id effect_id gate tool intent_hash question_hash state requester why approver
        rationale method requested_us expires_us answered_us consumed_us attempt attempts attempts_used""",
    "artifact": """
        id scope session_id name kind digest uri size_bytes retention actor created_us""",
    "budget": """
        id scope name parent per window_us action max_tokens max_microusd max_calls max_duration_us held_tokens
        held_microusd held_calls held_duration_us spent_tokens spent_microusd spent_calls spent_duration_us actor
        created_us updated_us removed_us""",
    "checkpoint": """
        id session_id node_id from_position to_position cursor summary data cache_keys versions size_bytes
        created_us""",
    "credit_entry": """
        seq id scope account unit amount key hash reason actor created_us occurred_us""",
    "dead_letter": """
        id scope subject kind reason attempts created_us settled_us settlement settled_by note""",
    "decision": """
        id scope repository session_id node_id position what why plan n state outcome agent actor tags created_us
        closed_us""",
    "effect": """
        id scope session_id node_id task_id tool key n by_hash intent_hash intent context state attempt idempotent_us
        LEASE gave_up_us result artifact_id external_ref error evidence approval_id successor_id pruned_us planned_us
        first_dispatched_us dispatched_us ended_us updated_us result_shape git_dir origin""",
    "event": """
        seq time_us occurred_us scope actor holder source type subject session_id state stream version summary
        data""",
    "gate": """
        id scope repository pattern need via why actor created_us removed_us paused_until_us""",
    "hold": """
        id scope subject budgets session_id key n hash state LEASE most_tokens most_microusd most_calls
        most_duration_us spent_tokens spent_microusd spent_calls spent_duration_us note settled_by created_us
        ended_us""",
    "import_source": """
        seq id agent host path state note native_id session_id identity head size_bytes mtime_us upto
        generation reader carry counts first_us last_us created_us updated_us""",
    "item": """
        seq scope git_dir origin path key value created_us updated_us ttl_us expires_us""",
    "item_vector": """
        seq item_seq field vector""",
    "knowledge": """
        seq id scope agent tags superseded_by stale_us created_us actor session_id source text embedder dimensions""",
    "lease": """
        scope name LEASE fence acquired_us note""",
    "loop": """
        id scope name kind schedule zone command cwd environment catch_up catch_up_max overlap timeout_us
        retries_max backoff_us failures_max failures state reason spec_hash anchor_us next_slot_us last_slot_us
        actor created_us updated_us git_dir origin account host""",
    "mail": """
        seq id scope box sender thread_id reply_to_id subject body hash key priority state reason attempts
        attempts_max provenance session_id ready_us expires_us LEASE kept fence sent_us read_us ended_us""",
    "message": """
        id session_id node_id position role format content hash key actor created_us occurred_us retracted_us""",
    "node": """
        id session_id parent_id name title first_position next_position created_us""",
    "run": """
        id loop_id scope slot_us until_slot_us slots source state reason attempt ready_us exit_code duration_us
        host pid process stdout_id stderr_id cancel_reason LEASE created_us started_us ended_us git_dir origin""",
    "session": """
        id scope key state reason agent preview command cwd cursor parent_id cut_node_id cut_position cut_seq
        openings LEASE fence created_us updated_us ended_us git_dir origin""",
    "state": """
        scope repository namespace key value version json_schema verify verified_us verdict actor updated_us
        expires_us""",
    "task": """
        id scope repository fingerprint episode state reason title body kind source priority labels branch assignee
        parent_id session_id result occurrences first_seen_us last_seen_us cool_down_us snoozed_until_us
        due_us LEASE fence created_us updated_us closed_us""",
    "thread_checkpoint": """
        seq thread_seq namespace checkpoint_id parent_id run_id header parts metadata created_us""",
    "thread_value": """
        seq thread_seq segment n type data""",
    "thread_write": """
        seq thread_seq namespace checkpoint_id task_id task_path idx channel type data""",
    "usage": """
        id session_id node_id response model input_tokens cached_input_tokens cache_write_tokens output_tokens
        reasoning_tokens cost_microusd occurred_us context_tokens prompt_id response_id hold_id price""",
    "webhook_event": """
        id scope source event_id kind hash payload state result error deliveries attempts attempts_max
        ready_us LEASE fence received_us ended_us""",
}
COLUMNS = {table: tuple(text.replace("LEASE", LEASE).split()) for table, text in _TEXTS.items()}


def listed(table: str, alias: str | None) -> str:
    """The columns of `table` as a select list, each with the alias of the table if it has one."""
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + name for name in COLUMNS[table])
