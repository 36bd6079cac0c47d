-- Secrets of webhooks, push targets and agents are stored encrypted. Their columns become bytes; the
-- server encrypts their values when it starts.

-- +goose Up
PRAGMA secure_delete = ON; -- the former columns are overwritten
-- At most one row. It is sealed with the key of this database, so a server with another key detects that.
CREATE TABLE secret_keys (
    id     TEXT NOT NULL PRIMARY KEY,
    sealed BLOB NOT NULL
) STRICT, WITHOUT ROWID;
ALTER TABLE webhooks ADD COLUMN sealed_keys BLOB NOT NULL DEFAULT X''; -- JSON array
ALTER TABLE webhooks ADD COLUMN sealed_headers BLOB NOT NULL DEFAULT X''; -- JSON object
UPDATE webhooks SET sealed_keys = CAST(previous_keys AS BLOB), sealed_headers = CAST(headers AS BLOB);
ALTER TABLE webhooks DROP COLUMN previous_keys;
ALTER TABLE webhooks DROP COLUMN headers;
ALTER TABLE webhooks RENAME COLUMN sealed_keys TO previous_keys;
ALTER TABLE webhooks RENAME COLUMN sealed_headers TO headers;
ALTER TABLE push_targets ADD COLUMN sealed_secret BLOB NOT NULL DEFAULT X'';
UPDATE push_targets SET sealed_secret = CAST(secret AS BLOB);
ALTER TABLE push_targets DROP COLUMN secret;
ALTER TABLE push_targets RENAME COLUMN sealed_secret TO secret;
ALTER TABLE agent_keys ADD COLUMN sealed_secret BLOB NOT NULL DEFAULT X'';
UPDATE agent_keys SET sealed_secret = CAST(secret AS BLOB);
ALTER TABLE agent_keys DROP COLUMN secret;
ALTER TABLE agent_keys RENAME COLUMN sealed_secret TO secret;

-- +goose Down
-- The secrets stay encrypted; an earlier program cannot use them.
ALTER TABLE agent_keys ADD COLUMN plain_secret TEXT NOT NULL DEFAULT '';
UPDATE agent_keys SET plain_secret = CAST(secret AS TEXT);
ALTER TABLE agent_keys DROP COLUMN secret;
ALTER TABLE agent_keys RENAME COLUMN plain_secret TO secret;
ALTER TABLE push_targets ADD COLUMN plain_secret TEXT NOT NULL DEFAULT '';
UPDATE push_targets SET plain_secret = CAST(secret AS TEXT);
ALTER TABLE push_targets DROP COLUMN secret;
ALTER TABLE push_targets RENAME COLUMN plain_secret TO secret;
ALTER TABLE webhooks ADD COLUMN plain_keys TEXT NOT NULL DEFAULT '[]';
ALTER TABLE webhooks ADD COLUMN plain_headers TEXT NOT NULL DEFAULT 'null';
UPDATE webhooks SET plain_keys = CAST(previous_keys AS TEXT), plain_headers = CAST(headers AS TEXT);
ALTER TABLE webhooks DROP COLUMN previous_keys;
ALTER TABLE webhooks DROP COLUMN headers;
ALTER TABLE webhooks RENAME COLUMN plain_keys TO previous_keys;
ALTER TABLE webhooks RENAME COLUMN plain_headers TO headers;
DROP TABLE secret_keys;
