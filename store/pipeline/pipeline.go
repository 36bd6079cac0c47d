// Package pipeline sends several statements of a transaction to PostgreSQL in one round trip. BEGIN is sent with the first
// statement. A statement whose number of rows is not read is sent with a later statement or with COMMIT.
package pipeline

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// maxQueued is the maximum number of statements that wait in a transaction.
const maxQueued = 64

// Connector returns a connector whose connections send the statements of a transaction together; c is a connector of pgx.
func Connector(c driver.Connector) driver.Connector { return connector{c} }

type connector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: made.(*stdlib.Conn)}, nil
}

// conn is a connection. In its transactions ExecContext only queues a statement. A later call sends it and
// returns its error: RowsAffected, the next query, Commit, or ExecContext if maxQueued statements wait.
type conn struct {
	*stdlib.Conn
	tx *transaction // nil outside a transaction, and in one with other than the default options
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if opts != (driver.TxOptions{}) {
		return c.Conn.BeginTx(ctx, opts)
	}
	if c.Conn.Conn().IsClosed() {
		return nil, driver.ErrBadConn
	}
	c.tx = &transaction{conn: c, ctx: ctx}
	c.tx.queue("BEGIN", nil)
	return c.tx, nil
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.tx == nil {
		return c.Conn.ExecContext(ctx, query, args)
	}
	if len(c.tx.queued) >= maxQueued {
		_ = c.tx.send() // its error is returned below
	}
	return c.tx.queue(query, args), c.tx.err
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.tx != nil {
		if err := c.tx.send(); err != nil {
			return nil, err
		}
	}
	return c.Conn.QueryContext(ctx, query, args)
}

// PrepareContext implements driver.ConnPrepareContext. In a transaction it returns an error, because a prepared statement
// would be executed before the statements that wait.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.tx != nil {
		return nil, errors.New("a statement cannot be prepared in a transaction")
	}
	return c.Conn.PrepareContext(ctx, query)
}

// transaction is a transaction with the statements that wait.
type transaction struct {
	conn   *conn
	ctx    context.Context
	queued []*statement
	sent   bool  // BEGIN was sent
	err    error // of the first statement that failed, or ErrTxDone after a rollback
}

// statement is a statement of ExecContext and its result.
type statement struct {
	tx   *transaction // nil after the database has answered
	text string
	args []any
	rows int64
}

// LastInsertId implements driver.Result.
func (*statement) LastInsertId() (int64, error) {
	return 0, errors.New("PostgreSQL does not return the id of an inserted row")
}

// RowsAffected implements driver.Result. It sends the statement.
func (s *statement) RowsAffected() (int64, error) {
	if s.tx != nil {
		if err := s.tx.send(); err != nil {
			return 0, err
		}
	}
	return s.rows, nil
}

// queue adds a statement to those that wait.
func (tx *transaction) queue(text string, args []driver.NamedValue) *statement {
	s := &statement{tx: tx, text: text, args: make([]any, len(args))}
	for i, a := range args {
		s.args[i] = a.Value
	}
	tx.queued = append(tx.queued, s)
	return s
}

// send sends the statements that wait and reads their results. It returns the error of the transaction: after a failed
// statement it sends nothing more.
func (tx *transaction) send() error {
	if tx.err != nil || len(tx.queued) == 0 {
		return tx.err
	}
	var batch pgx.Batch
	for _, s := range tx.queued {
		batch.Queue(s.text, s.args...)
	}
	results := tx.conn.Conn.Conn().SendBatch(tx.ctx, &batch)
	for _, s := range tx.queued {
		tag, err := results.Exec()
		if err != nil {
			tx.err = err
			break
		}
		if s.text == commit && tag.String() != commit {
			tx.err = pgx.ErrTxCommitRollback
		}
		s.tx, s.rows = nil, tag.RowsAffected()
	}
	if err := results.Close(); tx.err == nil {
		tx.err = err
	}
	tx.queued, tx.sent = nil, true
	return tx.err
}

const commit = "COMMIT"

// Commit implements driver.Tx.
func (tx *transaction) Commit() error {
	if !tx.sent && len(tx.queued) == 1 { // only BEGIN
		return tx.Rollback()
	}
	tx.queue(commit, nil)
	if err := tx.send(); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	tx.conn.tx = nil
	return nil
}

// Rollback implements driver.Tx.
func (tx *transaction) Rollback() error {
	tx.conn.tx, tx.queued = nil, nil
	if tx.err == nil {
		tx.err = sql.ErrTxDone
	}
	if c := tx.conn.Conn.Conn(); !tx.sent || c.PgConn().TxStatus() == 'I' || c.IsClosed() {
		return nil
	}
	_, err := tx.conn.Conn.Conn().Exec(tx.ctx, "ROLLBACK")
	return err
}
