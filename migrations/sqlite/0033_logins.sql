-- Logins of browsers, and the single-use codes that start them. Their secrets are not stored.

-- +goose Up
CREATE TABLE logins (
    id         TEXT    NOT NULL PRIMARY KEY,
    token_id   TEXT    NOT NULL, -- a JWT is not in tokens
    token_name TEXT    NOT NULL,
    user_agent TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL, -- to the minute
    expires_at INTEGER NOT NULL,
    id_hash    BLOB    NOT NULL UNIQUE, -- SHA-256 of the secret in the cookie
    token_hash BLOB    NOT NULL, -- SHA-256 of the token's secret, which a rotation changes
    issued     TEXT -- JSON: the JWT, NULL for a stored token
) STRICT;
CREATE INDEX logins_token ON logins (token_id, id);

CREATE TABLE login_codes (
    hash       BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of the code
    token_id   TEXT    NOT NULL,
    token_hash BLOB    NOT NULL,
    issued     TEXT,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX login_codes_token ON login_codes (token_id, expires_at);

-- +goose Down
DROP TABLE login_codes;
DROP TABLE logins;
