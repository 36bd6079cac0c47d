package storetest

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync/atomic"
)

// Statement is one SQL statement that a connection has run.
type Statement struct {
	// Context is that of the caller.
	Context context.Context
	// Connection numbers the connection.
	Connection int64
	// Query is the text; BEGIN, COMMIT or ROLLBACK where database/sql controls the
	// transaction.
	Query string
	// Rows is how many rows the statement has changed, or returned with RETURNING. It is 0
	// for a SELECT.
	Rows int64
	// Err is the error of the statement, nil for none.
	Err error
}

// Statements returns a value for store.Options.Connector that calls record after every
// statement, on the goroutine that runs it.
func Statements(record func(Statement)) func(driver.Connector) driver.Connector {
	connections := new(atomic.Int64)
	return func(c driver.Connector) driver.Connector { return &recordingConnector{c, connections, record} }
}

type recordingConnector struct {
	driver.Connector
	connections *atomic.Int64
	record      func(Statement)
}

// Connect implements driver.Connector.
func (c *recordingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &recordingConn{conn.(fullConn), c.connections.Add(1), c.record}, nil
}

// fullConn is what the drivers of both databases implement.
type fullConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
}

type recordingConn struct {
	fullConn
	id     int64
	record func(Statement)
}

func (c *recordingConn) ran(ctx context.Context, query string, rows int64, err error) {
	c.record(Statement{Context: ctx, Connection: c.id, Query: query, Rows: rows, Err: err})
}

// changed records a statement that returns no rows.
func (c *recordingConn) changed(ctx context.Context, query string, result driver.Result, err error) {
	rows := int64(0)
	if err == nil {
		rows, _ = result.RowsAffected()
	}
	c.ran(ctx, query, rows, err)
}

// queried records a SELECT at once, and a statement with RETURNING when its rows are read.
func (c *recordingConn) queried(ctx context.Context, query string, rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil || !strings.Contains(query, "RETURNING ") {
		c.ran(ctx, query, 0, err)
		return rows, err
	}
	return &recordingRows{Rows: rows, done: func(n int64, err error) { c.ran(ctx, query, n, err) }}, nil
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *recordingConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.fullConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// IsValid implements driver.Validator.
func (c *recordingConn) IsValid() bool {
	v, ok := c.fullConn.(driver.Validator)
	return !ok || v.IsValid()
}

// ExecContext implements driver.ExecerContext.
func (c *recordingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.fullConn.ExecContext(ctx, query, args)
	c.changed(ctx, query, result, err)
	return result, err
}

// QueryContext implements driver.QueryerContext.
func (c *recordingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.fullConn.QueryContext(ctx, query, args)
	return c.queried(ctx, query, rows, err)
}

// PrepareContext implements driver.ConnPrepareContext. To prepare a statement is not
// recorded: it happens once.
func (c *recordingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	st, err := c.fullConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &recordingStmt{st.(fullStmt), c, query}, nil
}

// BeginTx implements driver.ConnBeginTx.
func (c *recordingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.fullConn.BeginTx(ctx, opts)
	c.ran(ctx, "BEGIN", 0, err)
	if err != nil {
		return nil, err
	}
	return &recordingTx{tx, ctx, c}, nil
}

type recordingTx struct {
	driver.Tx
	ctx  context.Context
	conn *recordingConn
}

// Commit implements driver.Tx.
func (tx *recordingTx) Commit() error {
	err := tx.Tx.Commit()
	tx.conn.ran(tx.ctx, "COMMIT", 0, err)
	return err
}

// Rollback implements driver.Tx.
func (tx *recordingTx) Rollback() error {
	err := tx.Tx.Rollback()
	tx.conn.ran(tx.ctx, "ROLLBACK", 0, err)
	return err
}

type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type recordingStmt struct {
	fullStmt
	conn  *recordingConn
	query string
}

// ExecContext implements driver.StmtExecContext.
func (s *recordingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	result, err := s.fullStmt.ExecContext(ctx, args)
	s.conn.changed(ctx, s.query, result, err)
	return result, err
}

// QueryContext implements driver.StmtQueryContext.
func (s *recordingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.fullStmt.QueryContext(ctx, args)
	return s.conn.queried(ctx, s.query, rows, err)
}

// recordingRows counts the rows of a statement with RETURNING.
type recordingRows struct {
	driver.Rows
	n    int64
	err  error
	done func(rows int64, err error)
}

// Next implements driver.Rows.
func (r *recordingRows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	switch {
	case err == nil:
		r.n++
	case !errors.Is(err, io.EOF):
		r.err = err
	}
	return err
}

// Close implements driver.Rows.
func (r *recordingRows) Close() error {
	err := r.Rows.Close()
	if r.done != nil {
		r.done(r.n, errors.Join(r.err, err))
		r.done = nil
	}
	return err
}
