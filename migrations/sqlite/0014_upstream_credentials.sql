-- The OAuth clients and tokens with which comet calls upstreams of the API or of the file.

-- +goose Up
CREATE TABLE upstream_credentials (
    upstream_id TEXT    NOT NULL PRIMARY KEY,
    version     INTEGER NOT NULL, -- incremented when sealed changes
    sealed      BLOB    NOT NULL, -- encrypted JSON
    lease_until INTEGER NOT NULL  -- a replica refreshes the tokens until then
) STRICT, WITHOUT ROWID;

-- Authorizations that a person has not finished yet.
CREATE TABLE upstream_authorizations (
    state       TEXT    NOT NULL PRIMARY KEY, -- SHA-256 of the parameter, in hexadecimal
    upstream_id TEXT    NOT NULL UNIQUE,
    sealed      BLOB    NOT NULL, -- encrypted JSON
    until       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
-- The upstreams must be authorized again.
DROP TABLE upstream_authorizations;
DROP TABLE upstream_credentials;
