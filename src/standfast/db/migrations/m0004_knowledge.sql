-- What agents learned. `words` is `text` in the form that a search compares; `vector` has the form of
-- item_vector.vector. `embedding` is the direction of `vector` again, in the form that pgvector reads.
CREATE TABLE knowledge (
    seq            BIGKEY,
    id             TEXT NOT NULL UNIQUE,
    scope          TEXT NOT NULL,
    git_dir        TEXT,
    origin         TEXT,
    agent          TEXT NOT NULL,
    tags           TEXT NOT NULL,
    superseded_by  TEXT,
    stale_us       BIGINT,
    created_us     BIGINT NOT NULL,
    actor          TEXT NOT NULL,
    session_id     TEXT,
    source         TEXT,
    hash           TEXT NOT NULL,
    text           TEXT NOT NULL,
    words          TEXT NOT NULL,
    embedder       TEXT,
    dimensions     BIGINT,
    vector         BYTES,
    embedding      real[], -- [postgres]
    UNIQUE (scope, agent, hash)
) STRICT;
CREATE INDEX knowledge_embedded ON knowledge (scope, seq) WHERE vector IS NOT NULL;
CREATE INDEX knowledge_superseded ON knowledge (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX knowledge_unfilled ON knowledge (seq) WHERE vector IS NOT NULL AND embedding IS NULL; -- [postgres]
CREATE INDEX knowledge_by_words ON knowledge USING gin (array_to_tsvector(string_to_array(words, ' '))); -- [postgres]

-- The index of words follows its table by triggers, so that a restore by rows fills it too.
CREATE VIRTUAL TABLE knowledge_words USING fts5 (words, content = 'knowledge', content_rowid = 'seq'); -- [sqlite]
CREATE TRIGGER knowledge_is_added AFTER INSERT ON knowledge BEGIN -- [sqlite]
    INSERT INTO knowledge_words (rowid, words) VALUES (new.seq, new.words); -- [sqlite]
END; -- [sqlite]
CREATE TRIGGER knowledge_is_deleted AFTER DELETE ON knowledge BEGIN -- [sqlite]
    INSERT INTO knowledge_words (knowledge_words, rowid, words) VALUES ('delete', old.seq, old.words); -- [sqlite]
END; -- [sqlite]

-- The vectors of items, in the form that pgvector reads.
ALTER TABLE item_vector ADD COLUMN embedding real[]; -- [postgres]
CREATE INDEX item_vector_unfilled ON item_vector (seq) WHERE embedding IS NULL; -- [postgres]
