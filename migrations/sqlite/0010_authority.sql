-- Tokens that were created with a token bound to an agent, the objects that tokens created, and when
-- tokens were last used.

-- +goose Up
ALTER TABLE tokens ADD COLUMN parent_id TEXT REFERENCES tokens (id); -- the token it was created with; it is revoked with it
ALTER TABLE tokens ADD COLUMN last_used_at INTEGER;
CREATE INDEX tokens_parent ON tokens (parent_id) WHERE parent_id IS NOT NULL;

-- What tokens without the scope admin created; their quotas count it while it exists.
CREATE TABLE token_objects (
    token_id TEXT NOT NULL REFERENCES tokens (id),
    kind     TEXT NOT NULL CHECK (kind IN ('agents', 'webhooks')), -- a table
    id       TEXT NOT NULL,
    PRIMARY KEY (token_id, kind, id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE token_objects;
DROP INDEX tokens_parent;
ALTER TABLE tokens DROP COLUMN last_used_at;
ALTER TABLE tokens DROP COLUMN parent_id;
