-- SQLite has one process, which releases all leases when it starts. The table is that of PostgreSQL.

-- +goose Up
CREATE TABLE replicas (
    id         TEXT    NOT NULL PRIMARY KEY,
    heartbeats INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE replicas;
