package bench

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxBareBatch is the most operations that share a commit of the bare writer.
const maxBareBatch = 512

// bareWriter is the simplest group commit: one goroutine runs all waiting operations in one
// transaction and reports their success after its commit. It has no savepoints.
type bareWriter struct {
	queue chan *bareOperation

	begin, commit, insert, update, event *sql.Stmt
}

// bareOperation writes a task or its result, and one event.
type bareOperation struct {
	taskID     string
	createArgs []any // of the task, nil for a result
	output     string
	at         int64
	data       []byte // of the event
	// committed is called by the writer after the commit, or with the error. It must not wait.
	committed func(error)
}

const (
	bareTaskColumns = "task_id, type, request_id, trace_id, message_id, from_agent, worker, parameters, state, output, created_at, ended_at"
	bareEventSQL    = "INSERT INTO bare_events (type, task_id, at, data) VALUES (?, ?, ?, ?)"
)

// bareSchema returns the statements that create the tables. Their keys are numbers in the order of
// insertion; only the task's public id has an index.
func bareSchema(database string) []string {
	key := "INTEGER PRIMARY KEY"
	if database == postgres {
		key = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	}
	return []string{
		"CREATE TABLE bare_tasks (id " + key + `, task_id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, request_id TEXT NOT NULL, trace_id TEXT NOT NULL,
			message_id TEXT NOT NULL, from_agent TEXT NOT NULL, worker TEXT NOT NULL, parameters TEXT NOT NULL, state BIGINT NOT NULL,
			output TEXT NOT NULL, created_at BIGINT NOT NULL, ended_at BIGINT NOT NULL)`,
		"CREATE TABLE bare_events (id " + key + ", type BIGINT NOT NULL, task_id TEXT NOT NULL, at BIGINT NOT NULL, data TEXT NOT NULL)",
	}
}

// openBareWriter creates the tables in a database and starts the writer on one connection, with the
// driver, the pragmas and the durability of the store.
func openBareWriter(b *testing.B, g testDatabase) *bareWriter {
	b.Helper()
	conn, err := g.raw(b, 1).Conn(detached())
	require.NoError(b, err)
	for _, statement := range bareSchema(g.database) {
		_, err := conn.ExecContext(detached(), statement)
		require.NoError(b, err, statement)
	}
	prepare := func(query string) *sql.Stmt {
		st, err := conn.PrepareContext(detached(), g.bind(query))
		require.NoError(b, err, query)
		return st
	}
	begin := "BEGIN IMMEDIATE"
	if g.database == postgres {
		begin = "BEGIN"
	}
	w := &bareWriter{
		queue: make(chan *bareOperation, maxBareBatch), begin: prepare(begin), commit: prepare("COMMIT"),
		insert: prepare("INSERT INTO bare_tasks (" + bareTaskColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, '', ?, 0)"),
		update: prepare("UPDATE bare_tasks SET state = 1, output = ?, ended_at = ? WHERE task_id = ? AND state = 0"),
		event:  prepare(bareEventSQL),
	}
	var running sync.WaitGroup
	running.Go(w.run)
	b.Cleanup(func() {
		close(w.queue)
		running.Wait()
		_ = conn.Close()
	})
	return w
}

// run commits batches until the queue is closed. An error ends all operations, because a benchmark
// with a failure has no result.
func (w *bareWriter) run() {
	batch := make([]*bareOperation, 0, maxBareBatch)
	var failed error
	for first := range w.queue {
		batch = append(batch[:0], first)
		for more := true; more && len(batch) < maxBareBatch; {
			select {
			case next, open := <-w.queue:
				if more = open; open {
					batch = append(batch, next)
				}
			default:
				more = false
			}
		}
		if failed == nil {
			failed = w.transact(detached(), batch)
		}
		for _, op := range batch {
			op.committed(failed)
		}
	}
}

func (w *bareWriter) transact(ctx context.Context, batch []*bareOperation) error {
	if _, err := w.begin.ExecContext(ctx); err != nil {
		return err
	}
	for _, op := range batch {
		if err := w.write(ctx, op); err != nil {
			return err
		}
	}
	_, err := w.commit.ExecContext(ctx)
	return err
}

func (w *bareWriter) write(ctx context.Context, op *bareOperation) error {
	if op.createArgs != nil {
		if _, err := w.insert.ExecContext(ctx, op.createArgs...); err != nil {
			return err
		}
		_, err := w.event.ExecContext(ctx, 0, op.taskID, op.at, op.data)
		return err
	}
	result, err := w.update.ExecContext(ctx, op.output, op.at, op.taskID)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(err, errors.New("the result of an unknown or finished task"))
	}
	_, err = w.event.ExecContext(ctx, 1, op.taskID, op.at, op.data)
	return err
}
