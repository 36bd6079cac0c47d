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
		record := func() callRecord {
			id, err := uuid.NewV7()
			require.NoError(t, err)
			return callRecord{ToolCall: models.ToolCall{
				ID: id.String(), At: db.Now(), Source: SourceMCP, TokenID: "t", Actor: "a", AgentID: "nova", Server: "paper", Tool: "echo",
				Class: models.ToolRead, Digest: "d", Outcome: outcomeSuccess,
			}}
		}
		first, rejected, last := record(), record(), record()
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
