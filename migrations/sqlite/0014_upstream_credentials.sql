-- The OAuth clients and tokens with which comet calls upstreams.

-- +goose Up
CREATE TABLE upstream_credentials (
    upstream_id   TEXT    NOT NULL PRIMARY KEY, -- an upstream of the API or of the file
    version       INTEGER NOT NULL, -- incremented when credentials change
    credentials   BLOB    NOT NULL, -- sealed JSON; empty before the first authorization
    lease_until   INTEGER NOT NULL, -- a replica refreshes the tokens until then
    pending       BLOB    NOT NULL, -- sealed JSON of an authorization in progress, or empty
    pending_state TEXT    NOT NULL, -- SHA-256 of its parameter state, in hexadecimal, or ''
    pending_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX upstream_credentials_pending ON upstream_credentials (pending_state);

-- +goose Down
-- The upstreams must be authorized again.
DROP TABLE upstream_credentials;
