-- Publications, who subscribes to them, and those that were not delivered.

-- +goose Up
CREATE TABLE subscriptions (
    agent_id   TEXT    NOT NULL,
    pattern    TEXT    NOT NULL, -- a type, the beginning of types and *, or *; '' where an agent has chosen none
    from_name  TEXT    NOT NULL, -- the only sender, '' for all others
    created_at INTEGER NOT NULL,
    PRIMARY KEY (agent_id, pattern, from_name)
) STRICT, WITHOUT ROWID;
CREATE INDEX subscriptions_pattern ON subscriptions (pattern, agent_id);
CREATE INDEX workers_protocol ON workers (protocol, agent_id);

CREATE TABLE publications (
    id               TEXT    NOT NULL PRIMARY KEY, -- UUIDv7, also the id of the messages in inbox
    from_name        TEXT    NOT NULL, -- the sender as receivers see it
    recipient        TEXT    NOT NULL, -- '' for all subscribers
    type             TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    payload          TEXT    NOT NULL, -- JSON
    schema_version   TEXT    NOT NULL,
    content_type     TEXT    NOT NULL,
    guarantee        TEXT    NOT NULL, -- at-least-once, exactly-once
    deduplication_id TEXT    NOT NULL, -- '' for none, and once it may be used again
    max_attempts     INTEGER NOT NULL,
    initial_interval INTEGER NOT NULL, -- microseconds
    coefficient      REAL    NOT NULL,
    message_id       TEXT    NOT NULL, -- the sender's id, '' for none
    meta             TEXT    NOT NULL, -- JSON of the sender's protocol, '' for none
    trace            TEXT    NOT NULL, -- W3C traceparent, '' for none
    created_at       INTEGER NOT NULL,
    sender           TEXT    NOT NULL, -- the agent or the token of which deduplication_id is unique
    digest           BLOB    NOT NULL, -- of the content, to tell a repetition from another publication
    subscribers      INTEGER NOT NULL, -- agents whose inbox has received it
    cursor           TEXT    NOT NULL, -- the last of them while it is being distributed, '' afterwards
    expires_at       INTEGER NOT NULL  -- when it is deleted
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX publications_dedup ON publications (sender, deduplication_id) WHERE deduplication_id <> '';
CREATE INDEX publications_expiring ON publications (expires_at);

CREATE TABLE dead_letters (
    agent_id       TEXT    NOT NULL,
    publication_id TEXT    NOT NULL REFERENCES publications (id) ON DELETE CASCADE,
    attempts       INTEGER NOT NULL,
    reason         TEXT    NOT NULL,
    dead_at        INTEGER NOT NULL,
    PRIMARY KEY (publication_id, agent_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX dead_letters_agent ON dead_letters (agent_id, publication_id);

ALTER TABLE inbox ADD COLUMN not_before INTEGER NOT NULL DEFAULT 0; -- of the next delivery of a publication
ALTER TABLE inbox ADD COLUMN ends_at INTEGER NOT NULL DEFAULT 0; -- when the last attempt has failed, 0 before it
CREATE INDEX inbox_publications ON inbox (id) WHERE kind = 'publication';
CREATE INDEX inbox_ending ON inbox (ends_at) WHERE ends_at > 0;

-- +goose Down
DELETE FROM inbox WHERE kind = 'publication';
DROP INDEX inbox_ending;
DROP INDEX inbox_publications;
ALTER TABLE inbox DROP COLUMN ends_at;
ALTER TABLE inbox DROP COLUMN not_before;
DROP TABLE dead_letters;
DROP TABLE publications;
DROP INDEX workers_protocol;
DROP TABLE subscriptions;
