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
	"comet/store/storetest"
)

// TestACallThatNoDatabaseTakesHoldsUpNoOther: what a database refuses while it answers is
// said, and given up; the others are written, each once.
func TestACallThatNoDatabaseTakesHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		var log bytes.Buffer
		trail := newAuditLog(db.Store, newPrepaid(usage.New(db.Store, nil), db.Now), slog.New(slog.NewTextHandler(&log, nil)))
		line := func() callRecord {
			id, err := uuid.NewV7()
			require.NoError(t, err)
			return callRecord{ToolCall: models.ToolCall{
				ID: id.String(), At: db.Now(), Door: ViaMCP, TokenID: "t", Actor: "a", AgentID: "nova", Server: "paper", Tool: "echo",
				Class: models.ToolRead, Digest: "d", Outcome: models.ToolSucceeded,
			}}
		}
		first, broken, last := line(), line(), line()
		broken.Error = "\x00" // PostgreSQL has no such text; SQLite takes anything
		for _, e := range []callRecord{first, broken, last} {
			trail.add(e)
		}
		require.NoError(t, trail.Flush(t.Context()))

		kept, err := db.Store.ToolCalls(t.Context(), models.ToolCallQuery{Limit: 10})
		require.NoError(t, err)
		var ids []string
		for _, c := range kept {
			ids = append(ids, c.ID)
		}
		require.Subset(t, ids, []string{first.ID, last.ID})
		if !slices.Contains(ids, broken.ID) {
			require.Contains(t, log.String(), "a tool call is missing from the audit log")
			require.Contains(t, log.String(), broken.ID)
		}
		require.Zero(t, trail.open, "there is room again")
		require.NoError(t, trail.flush(context.Background(), true))
	})
}
