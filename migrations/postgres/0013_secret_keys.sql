-- Secrets of webhooks, push targets and agents are stored encrypted. Their columns become bytes; the
-- server encrypts their values when it starts.

-- +goose Up
-- At most one row. It is sealed with the key of this database, so a server with another key detects that.
CREATE TABLE secret_keys (
    id     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sealed BYTEA            NOT NULL
);
ALTER TABLE webhooks ALTER COLUMN previous_keys DROP DEFAULT, ALTER COLUMN headers DROP DEFAULT;
ALTER TABLE webhooks ALTER COLUMN previous_keys TYPE BYTEA USING convert_to(previous_keys, 'UTF8'), -- JSON array
    ALTER COLUMN headers TYPE BYTEA USING convert_to(headers, 'UTF8'); -- JSON object
ALTER TABLE push_targets ALTER COLUMN secret TYPE BYTEA USING convert_to(secret, 'UTF8');
ALTER TABLE agent_keys ALTER COLUMN secret TYPE BYTEA USING convert_to(secret, 'UTF8');

-- +goose Down
-- The secrets stay encrypted; an earlier program cannot use them.
ALTER TABLE agent_keys ALTER COLUMN secret TYPE TEXT USING convert_from(secret, 'UTF8');
ALTER TABLE push_targets ALTER COLUMN secret TYPE TEXT USING convert_from(secret, 'UTF8');
ALTER TABLE webhooks ALTER COLUMN previous_keys TYPE TEXT USING convert_from(previous_keys, 'UTF8'),
    ALTER COLUMN headers TYPE TEXT USING convert_from(headers, 'UTF8');
ALTER TABLE webhooks ALTER COLUMN previous_keys SET DEFAULT '[]', ALTER COLUMN headers SET DEFAULT 'null';
DROP TABLE secret_keys;
