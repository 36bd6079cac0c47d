-- The lines of PROTOCOL_V5 that were said (§10), for who asks what was said about a task, and
-- for references to messages. They are written together, a little later than they were said,
-- and are kept for as long as ended tasks are.

-- +goose Up
CREATE TABLE lines (
    id        TEXT    NOT NULL PRIMARY KEY, -- UUIDv7: the order in which they were said
    at        INTEGER NOT NULL,
    peer      TEXT    NOT NULL, -- the end it was exchanged with, 'W1', or 'User:' and whose token
    context   INTEGER NOT NULL, -- the number of CTX
    task      INTEGER NOT NULL, -- that of TID, 0 for none
    depth     INTEGER NOT NULL,
    number    INTEGER NOT NULL, -- that of MSG
    sender    TEXT    NOT NULL,
    receiver  TEXT    NOT NULL,
    type      TEXT    NOT NULL,
    state     TEXT    NOT NULL, -- '' for none, as the code
    code      TEXT    NOT NULL,
    data      TEXT    NOT NULL,
    parent    INTEGER NOT NULL, -- the number that pid= says, 0 for none
    parent_id TEXT    NOT NULL  -- the line that caused this one, '' for none that is known
) STRICT, WITHOUT ROWID;
CREATE INDEX lines_task ON lines (context, task, id);
CREATE INDEX lines_number ON lines (context, peer, number, id);

-- +goose Down
DROP TABLE lines;
