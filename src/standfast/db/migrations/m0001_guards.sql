-- Triggers that hold for every role of a PostgreSQL server (db/postgres/roles.py). A dispatch consumes its grant, rows
-- of the journal are only added, and a role that may not write loops stores no command.

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the journal is only added to' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER event_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Runs as the owner: the role that dispatches may not change an approval. The number of attempts comes from the
-- question, not from the row. 40001: the grant was there a moment ago.
CREATE FUNCTION use_grant() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = standfast, pg_temp AS $$
BEGIN
    UPDATE approval
    SET attempts_used = COALESCE(attempts_used, 0) + 1, consumed_us = NEW.dispatched_us, attempt = NEW.attempt,
        state = CASE WHEN COALESCE(attempts_used, 0) + 1 < CAST(CAST(question AS json) ->> 'attempts' AS bigint)
                     THEN 'granted' ELSE 'consumed' END
    WHERE effect_id = NEW.id AND state = 'granted';
    IF NOT FOUND AND EXISTS (SELECT 1 FROM approval WHERE effect_id = NEW.id) THEN
        RAISE EXCEPTION 'effect % was asked for and has no grant', NEW.id USING ERRCODE = '40001';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER effect_grant AFTER UPDATE ON effect FOR EACH ROW
    WHEN (NEW.state = 'dispatched' AND (OLD.state <> 'dispatched' OR OLD.attempt <> NEW.attempt))
    EXECUTE FUNCTION use_grant();

-- A stored command is run by others: who may not write loops may not store one.
CREATE FUNCTION refuse_command() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT has_table_privilege('standfast.loop', 'INSERT') THEN
        RAISE EXCEPTION 'role % may not store a command in %', current_user, TG_TABLE_NAME USING ERRCODE = '42501';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER session_command_insert BEFORE INSERT ON session FOR EACH ROW
    WHEN (NEW.command IS NOT NULL) EXECUTE FUNCTION refuse_command();
CREATE TRIGGER session_command_update BEFORE UPDATE ON session FOR EACH ROW
    WHEN (NEW.command IS NOT NULL AND NEW.command IS DISTINCT FROM OLD.command) EXECUTE FUNCTION refuse_command();
CREATE TRIGGER state_verify_insert BEFORE INSERT ON state FOR EACH ROW
    WHEN (NEW.verify IS NOT NULL) EXECUTE FUNCTION refuse_command();
CREATE TRIGGER state_verify_update BEFORE UPDATE ON state FOR EACH ROW
    WHEN (NEW.verify IS NOT NULL AND NEW.verify IS DISTINCT FROM OLD.verify) EXECUTE FUNCTION refuse_command();
