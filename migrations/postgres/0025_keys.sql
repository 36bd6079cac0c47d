-- Agents have several Ed25519 keys, comet has keys of its own, and marks of signed messages tell
-- repetitions from other messages with the same id.

-- +goose Up
ALTER TABLE agent_keys
    ADD COLUMN key_id TEXT COLLATE "C", -- 16 hexadecimal digits: of the SHA-256 of a public key, random for a secret and for earlier keys
    ADD COLUMN profile TEXT NOT NULL DEFAULT '' CHECK (profile IN ('', 'v1', 'jcs')), -- of ed25519: what a signature must cover
    ADD COLUMN speaks BOOLEAN NOT NULL DEFAULT FALSE, -- a signature replaces a token
    ADD COLUMN not_after BIGINT,
    ADD COLUMN revoked_at BIGINT;
UPDATE agent_keys SET key_id = substr(replace(gen_random_uuid()::TEXT, '-', ''), 17), profile = CASE algorithm WHEN 'ed25519' THEN 'v1' ELSE '' END;
ALTER TABLE agent_keys
    ALTER COLUMN profile DROP DEFAULT, ALTER COLUMN speaks DROP DEFAULT,
    DROP CONSTRAINT agent_keys_pkey, ADD PRIMARY KEY (agent_id, key_id);
CREATE UNIQUE INDEX agent_keys_secret ON agent_keys (agent_id) WHERE algorithm = 'hmac-sha256';
CREATE UNIQUE INDEX agent_keys_public ON agent_keys (public_key) WHERE algorithm = 'ed25519';

-- comet's own Ed25519 keys.
CREATE TABLE service_keys (
    key_id     TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- 16 hexadecimal digits of the SHA-256 of the public key
    public_key TEXT             NOT NULL, -- 32 bytes in base64
    seed       BYTEA            NOT NULL, -- the private key, encrypted; empty once it is retired
    created_at BIGINT           NOT NULL,
    retired_at BIGINT
);
CREATE UNIQUE INDEX service_keys_current ON service_keys ((retired_at IS NULL)) WHERE retired_at IS NULL;

ALTER TABLE replay_marks ADD COLUMN digest BYTEA NOT NULL DEFAULT ''; -- of a message whose id is the mark

-- +goose Down
ALTER TABLE replay_marks DROP COLUMN digest;
DROP TABLE service_keys;
-- Of several valid Ed25519 keys an earlier program has the newest.
DELETE FROM agent_keys WHERE revoked_at IS NOT NULL OR not_after IS NOT NULL;
DELETE FROM agent_keys o USING agent_keys n
WHERE o.agent_id = n.agent_id AND o.algorithm = n.algorithm AND (o.created_at, n.key_id) < (n.created_at, o.key_id);
DROP INDEX agent_keys_public;
DROP INDEX agent_keys_secret;
ALTER TABLE agent_keys
    DROP CONSTRAINT agent_keys_pkey, ADD PRIMARY KEY (agent_id, algorithm),
    DROP COLUMN key_id, DROP COLUMN profile, DROP COLUMN speaks, DROP COLUMN not_after, DROP COLUMN revoked_at;
