-- Webhooks have several previous secrets, own headers, timeouts and retry schedules, and a version.

-- +goose Up
ALTER TABLE webhooks ADD COLUMN previous_keys TEXT NOT NULL DEFAULT '[]'; -- JSON array, newest first
UPDATE webhooks SET previous_keys = json_array(json_object('Secret', base64(old_secret),
        'SigningKey', CASE WHEN old_signing_key IS NOT NULL THEN base64(old_signing_key) END,
        'Until', strftime('%Y-%m-%dT%H:%M:%SZ', old_until / 1000000, 'unixepoch')))
    WHERE old_secret IS NOT NULL;
ALTER TABLE webhooks DROP COLUMN old_secret;
ALTER TABLE webhooks DROP COLUMN old_signing_key;
ALTER TABLE webhooks DROP COLUMN old_until;
ALTER TABLE webhooks ADD COLUMN headers TEXT NOT NULL DEFAULT 'null'; -- JSON object
ALTER TABLE webhooks ADD COLUMN timeout_seconds INTEGER NOT NULL DEFAULT 0; -- 0 is the server's
ALTER TABLE webhooks ADD COLUMN retry_seconds TEXT NOT NULL DEFAULT '[]'; -- JSON array; empty is the default schedule
ALTER TABLE webhooks ADD COLUMN version INTEGER NOT NULL DEFAULT 1;

-- +goose Down
-- Previous secrets stop signing.
ALTER TABLE webhooks DROP COLUMN version;
ALTER TABLE webhooks DROP COLUMN retry_seconds;
ALTER TABLE webhooks DROP COLUMN timeout_seconds;
ALTER TABLE webhooks DROP COLUMN headers;
ALTER TABLE webhooks DROP COLUMN previous_keys;
ALTER TABLE webhooks ADD COLUMN old_secret BLOB;
ALTER TABLE webhooks ADD COLUMN old_signing_key BLOB;
ALTER TABLE webhooks ADD COLUMN old_until INTEGER NOT NULL DEFAULT 0;
