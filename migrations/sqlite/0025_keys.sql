-- Agents have several Ed25519 keys, comet has keys of its own, and marks of signed messages tell
-- repetitions from other messages with the same id.

-- +goose Up
PRAGMA secure_delete = ON; -- secrets that an earlier version stored in plain text are overwritten
CREATE TABLE agent_keys_new (
    agent_id   TEXT    NOT NULL REFERENCES agents (id),
    key_id     TEXT    NOT NULL, -- 16 hexadecimal digits: of the SHA-256 of a public key, random for a secret and for earlier keys
    algorithm  TEXT    NOT NULL CHECK (algorithm IN ('hmac-sha256', 'ed25519')),
    secret     BLOB    NOT NULL, -- of hmac-sha256, encrypted
    public_key TEXT    NOT NULL, -- of ed25519: 32 bytes in base64
    profile    TEXT    NOT NULL CHECK (profile IN ('', 'v1', 'jcs')), -- of ed25519: what a signature must cover
    required   INTEGER NOT NULL, -- every message of the agent must be signed
    speaks     INTEGER NOT NULL, -- a signature replaces a token
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    not_after  INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (agent_id, key_id)
) STRICT, WITHOUT ROWID;
INSERT INTO agent_keys_new
SELECT agent_id, lower(hex(randomblob(8))), algorithm, secret, public_key, CASE algorithm WHEN 'ed25519' THEN 'v1' ELSE '' END, required, 0, created_at, created_by, NULL, NULL FROM agent_keys;
DROP TABLE agent_keys;
ALTER TABLE agent_keys_new RENAME TO agent_keys;
CREATE UNIQUE INDEX agent_keys_secret ON agent_keys (agent_id) WHERE algorithm = 'hmac-sha256';
CREATE UNIQUE INDEX agent_keys_public ON agent_keys (public_key) WHERE algorithm = 'ed25519';

-- comet's own Ed25519 keys.
CREATE TABLE service_keys (
    key_id     TEXT    NOT NULL PRIMARY KEY, -- 16 hexadecimal digits of the SHA-256 of the public key
    public_key TEXT    NOT NULL, -- 32 bytes in base64
    seed       BLOB    NOT NULL, -- the private key, encrypted; empty once it is retired
    created_at INTEGER NOT NULL,
    retired_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX service_keys_current ON service_keys ((retired_at IS NULL)) WHERE retired_at IS NULL;

ALTER TABLE replay_marks ADD COLUMN digest BLOB NOT NULL DEFAULT X''; -- of a message whose id is the mark

-- +goose Down
ALTER TABLE replay_marks DROP COLUMN digest;
DROP TABLE service_keys;
CREATE TABLE agent_keys_old (
    agent_id   TEXT    NOT NULL REFERENCES agents (id),
    algorithm  TEXT    NOT NULL CHECK (algorithm IN ('hmac-sha256', 'ed25519')),
    public_key TEXT    NOT NULL,
    required   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    secret     BLOB    NOT NULL DEFAULT X'',
    PRIMARY KEY (agent_id, algorithm)
) STRICT, WITHOUT ROWID;
-- Of several valid Ed25519 keys an earlier program has the newest.
INSERT OR IGNORE INTO agent_keys_old
SELECT agent_id, algorithm, public_key, required, created_at, created_by, secret FROM agent_keys
WHERE revoked_at IS NULL AND not_after IS NULL ORDER BY created_at DESC, key_id;
DROP TABLE agent_keys;
ALTER TABLE agent_keys_old RENAME TO agent_keys;
