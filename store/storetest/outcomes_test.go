package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// outcome is one of finance.
func outcome(session string, status string, milliseconds *int64, at time.Time) store.OutcomeRow {
	return store.OutcomeRow{AgentID: "finance", SessionID: session, Status: status, DurationMS: milliseconds, At: at}
}

func addOutcomes(t *testing.T, db *storetest.DB, rows ...store.OutcomeRow) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error { return tx.Agents().AddOutcomes(rows) })
}

func requireStats(t *testing.T, db *storetest.DB, id string, want models.AgentStats, why ...any) {
	t.Helper()
	got, err := db.Agents(t.Context()).Detail(id, db.Now())
	require.NoError(t, err)
	require.Equal(t, want, got.Stats, why...)
}

func TestOutcomes(t *testing.T) {
	t.Parallel()

	rule(t, "SumUpToTheStatisticsOfTheUTCDay", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		addOutcomes(t, db,
			outcome("yesterday", "failed", new(int64(3_600_000)), db.Now().Add(-24*time.Hour)),
			outcome("s1", "success", new(int64(100)), db.Now()),
			outcome("s1", "success", new(int64(201)), db.Now()),
			outcome("s2", "failed", new(int64(300)), db.Now()),
		)
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 2, AvgResponseTimeMS: new(int64(200)), SuccessRate: new(0.6667)})
	})

	rule(t, "FailuresAndTimeoutsLowerTheSuccessRate", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		for _, status := range []string{"success", "failed", "timeout", "timeout"} {
			addOutcomes(t, db, outcome("s", status, nil, db.Now()))
		}
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 1, SuccessRate: new(0.25)})
	})

	rule(t, "CancellationsDoNotChangeTheSuccessRate", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		addOutcomes(t, db, outcome("a", "cancelled", new(int64(40)), db.Now()))
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 1, AvgResponseTimeMS: new(int64(40))}, "nothing to divide")
		addOutcomes(t, db, outcome("b", "success", new(int64(20)), db.Now()))
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 2, AvgResponseTimeMS: new(int64(30)), SuccessRate: new(1.0)})
	})

	rule(t, "UnmeasuredDurationsAreNotInTheAverage", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		addOutcomes(t, db, outcome("a", "failed", nil, db.Now()))
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 1, SuccessRate: new(0.0)})
		addOutcomes(t, db, outcome("a", "failed", new(int64(500)), db.Now()), outcome("a", "failed", new(int64(0)), db.Now()))
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 1, AvgResponseTimeMS: new(int64(250)), SuccessRate: new(0.0)}, "zero is a time")
	})

	rule(t, "AreWrittenTogetherAndCountedEach", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		const n = 1000
		rows := make([]store.OutcomeRow, n)
		for i := range rows {
			rows[i] = outcome(fmt.Sprint("s", i), "success", new(int64(i)), db.Now())
			if i%4 == 0 {
				rows[i].AgentID, rows[i].Status, rows[i].DurationMS = "health", "failed", nil
			}
		}
		addOutcomes(t, db, rows...)
		addOutcomes(t, db)
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 750, AvgResponseTimeMS: new(int64(500)), SuccessRate: new(1.0)})
		requireStats(t, db, "health", models.AgentStats{SessionsToday: 250, SuccessRate: new(0.0)})
	})

	rule(t, "AreRefusedTogetherWhenOneIsInvalid", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		good := outcome("s", "success", new(int64(1)), db.Now())
		for name, spoil := range map[string]func(*store.OutcomeRow){
			"an unknown agent":    func(o *store.OutcomeRow) { o.AgentID = "missing" },
			"an unknown status":   func(o *store.OutcomeRow) { o.Status = "well" },
			"no status":           func(o *store.OutcomeRow) { o.Status = "" },
			"a negative duration": func(o *store.OutcomeRow) { o.DurationMS = new(int64(-1)) },
		} {
			bad := good
			spoil(&bad)
			err := db.Write(context.Background(), func(tx *store.Tx) error { return tx.Agents().AddOutcomes([]store.OutcomeRow{good, bad}) })
			require.Equal(t, errs.Conflict, errs.CodeOf(err), name)
			err = db.Write(context.Background(), func(tx *store.Tx) error { return tx.Agents().AddOutcomes([]store.OutcomeRow{bad}) })
			require.Equal(t, errs.Conflict, errs.CodeOf(err), name)
		}
		requireStats(t, db, "finance", models.AgentStats{})
	})
}
