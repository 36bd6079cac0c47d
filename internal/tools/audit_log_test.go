package tools

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// TestRejectedRecordDoesNotBlockOthers checks that a record that the database rejects is logged and
// dropped, and the others are written once.
func TestRejectedRecordDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		var log bytes.Buffer
		auditLog := newAuditLog(db.Store, usage.New(db.Store, nil), db.Now, slog.New(slog.NewTextHandler(&log, nil)))
		first, rejected, last := newRecord(t, db), newRecord(t, db), newRecord(t, db)
		rejected.Error = "\x00" // PostgreSQL rejects this text, SQLite accepts it
		for _, e := range []callRecord{first, rejected, last} {
			auditLog.add(e)
		}
		require.NoError(t, auditLog.Flush(t.Context()))

		stored, err := db.Store.Tools(t.Context()).Calls(store.ToolCallQuery{Limit: 10})
		require.NoError(t, err)
		var ids []string
		for _, c := range stored {
			ids = append(ids, c.ID)
		}
		require.Subset(t, ids, []string{first.ID, last.ID})
		if !slices.Contains(ids, rejected.ID) {
			require.Contains(t, log.String(), "a tool call is missing from the audit log")
			require.Contains(t, log.String(), rejected.ID)
		}
		require.Zero(t, auditLog.pendingText.Load())
		require.NoError(t, auditLog.Stop(context.Background()))
	})
}

// TestASettledBillIsRecordedOnce: the calls of a bill have one record and one event each if the caller's commit succeeded, but
// the caller does not know it.
func TestASettledBillIsRecordedOnce(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		auditLog := newAuditLog(db.Store, usage.New(db.Store, nil), db.Now, slog.New(slog.DiscardHandler))
		svc := &Service{auditLog: auditLog, log: slog.New(slog.DiscardHandler)}
		stored, lost := NewAllowance(10).NewBill(), NewAllowance(10).NewBill()
		for _, b := range []*Bill{stored, lost, lost} {
			b.add(newRecord(t, db).ToolCall, 0)
		}
		require.NoError(t, db.Write(t.Context(), stored.RecordIn))
		for _, b := range []*Bill{stored, lost, lost} {
			svc.SettleBill(t.Context(), b)
		}
		calls, err := db.Store.Tools(t.Context()).Calls(store.ToolCallQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, calls, 3)
		sent, err := store.Row[int](db.Reads(t.Context()), "SELECT count(*) FROM events WHERE type = 'tool.called'")
		require.NoError(t, err)
		require.Equal(t, 3, sent)
		require.NoError(t, auditLog.Stop(t.Context()))
	})
}

// newRecord returns the record of a call.
func newRecord(t *testing.T, db *storetest.DB) callRecord {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	return callRecord{ToolCall: models.ToolCall{
		ID: id.String(), At: db.Now(), Source: SourceMCP, TokenID: "t", Actor: "a", AgentID: "nova", Server: "paper", Tool: "echo",
		Class: models.ToolRead, Digest: "d", Outcome: outcomeSuccess,
	}}
}

// TestCallsAroundAShutdownAreRecorded: a call is in the audit log if it is pending when the time
// for the shutdown is used up, and if it ends after the shutdown.
func TestCallsAroundAShutdownAreRecorded(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		auditLog := newAuditLog(db.Store, usage.New(db.Store, nil), db.Now, slog.New(slog.DiscardHandler))
		pending, late := newRecord(t, db), newRecord(t, db)
		auditLog.add(pending)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, auditLog.Stop(ended))
		auditLog.add(late)

		stored, err := db.Store.Tools(t.Context()).Calls(store.ToolCallQuery{Limit: 10})
		require.NoError(t, err)
		var ids []string
		for _, c := range stored {
			ids = append(ids, c.ID)
		}
		require.ElementsMatch(t, []string{pending.ID, late.ID}, ids)
	})
}

// TestLateCallThatCannotBeWrittenIsLogged: a call that ends after the shutdown and finds the
// database closed is reported with its id.
func TestLateCallThatCannotBeWrittenIsLogged(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		var log bytes.Buffer
		s, err := store.Open(t.Context(), db.Options)
		require.NoError(t, err)
		auditLog := newAuditLog(s, usage.New(s, nil), db.Now, slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, auditLog.Stop(t.Context()))
		require.NoError(t, s.Close())
		late := newRecord(t, db)
		auditLog.add(late)
		require.Contains(t, log.String(), "a tool call that ended after the shutdown is missing from the audit log")
		require.Contains(t, log.String(), late.ID)
	})
}
