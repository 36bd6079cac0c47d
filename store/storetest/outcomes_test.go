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
func outcome(session string, status models.Outcome, milliseconds *int64, at time.Time) models.OutcomeRow {
	return models.OutcomeRow{AgentID: "finance", SessionID: session, Status: status, DurationMS: milliseconds, At: at}
}

func addOutcomes(t *testing.T, db *storetest.DB, rows ...models.OutcomeRow) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error { return tx.AddOutcomes(rows) })
}

func requireStats(t *testing.T, db *storetest.DB, id string, want models.AgentStats, why ...any) {
	t.Helper()
	got, err := db.AgentDetail(t.Context(), id, db.Now())
	require.NoError(t, err)
	require.Equal(t, want, got.Stats, why...)
}

func TestOutcomes(t *testing.T) {
	t.Parallel()

	rule(t, "SumUpToTheStatisticsOfTheUTCDay", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		addOutcomes(t, db,
			outcome("yesterday", models.OutcomeFailed, new(int64(3_600_000)), db.Now().Add(-24*time.Hour)),
			outcome("s1", models.OutcomeSuccess, new(int64(100)), db.Now()),
			outcome("s1", models.OutcomeSuccess, new(int64(201)), db.Now()),
			outcome("s2", models.OutcomeFailed, new(int64(300)), db.Now()),
		)
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 2, AvgResponseTimeMS: 200, SuccessRate: new(0.6667)})
	})

	rule(t, "FailedAndTimedOutWorkCountsAgainstTheRate", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		for _, status := range []models.Outcome{models.OutcomeSuccess, models.OutcomeFailed, models.OutcomeTimeout, models.OutcomeTimeout} {
			addOutcomes(t, db, outcome("s", status, nil, db.Now()))
		}
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 1, SuccessRate: new(0.25)})
	})

	rule(t, "CancelledWorkIsASessionAndTakesTimeButCountsNeitherWay", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		addOutcomes(t, db, outcome("a", models.OutcomeCancelled, new(int64(40)), db.Now()))
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 1, AvgResponseTimeMS: 40}, "nothing to divide")
		addOutcomes(t, db, outcome("b", models.OutcomeSuccess, new(int64(20)), db.Now()))
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 2, AvgResponseTimeMS: 30, SuccessRate: new(1.0)})
	})

	rule(t, "WhatNobodyMeasuredIsNotInTheAverage", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		addOutcomes(t, db, outcome("a", models.OutcomeFailed, nil, db.Now()))
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 1, SuccessRate: new(0.0)})
		addOutcomes(t, db, outcome("a", models.OutcomeFailed, new(int64(500)), db.Now()), outcome("a", models.OutcomeFailed, new(int64(0)), db.Now()))
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 1, AvgResponseTimeMS: 250, SuccessRate: new(0.0)}, "zero is a time")
	})

	rule(t, "ManyAreWrittenAtOnceAndEachCounts", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		const n = 1000
		rows := make([]models.OutcomeRow, n)
		for i := range rows {
			rows[i] = outcome(fmt.Sprint("s", i), models.OutcomeSuccess, new(int64(i)), db.Now())
			if i%4 == 0 {
				rows[i].AgentID, rows[i].Status, rows[i].DurationMS = "health", models.OutcomeFailed, nil
			}
		}
		addOutcomes(t, db, rows...)
		addOutcomes(t, db)
		requireStats(t, db, "finance", models.AgentStats{SessionsToday: 750, AvgResponseTimeMS: 500, SuccessRate: new(1.0)})
		requireStats(t, db, "health", models.AgentStats{SessionsToday: 250, SuccessRate: new(0.0)})
	})

	rule(t, "AreRefusedAllTogetherWhereOneBreaksARule", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		good := outcome("s", models.OutcomeSuccess, new(int64(1)), db.Now())
		for name, spoil := range map[string]func(*models.OutcomeRow){
			"an unknown agent":    func(o *models.OutcomeRow) { o.AgentID = "nobody" },
			"an unknown status":   func(o *models.OutcomeRow) { o.Status = "well" },
			"no status":           func(o *models.OutcomeRow) { o.Status = "" },
			"a negative duration": func(o *models.OutcomeRow) { o.DurationMS = new(int64(-1)) },
		} {
			bad := good
			spoil(&bad)
			err := db.Write(context.Background(), func(tx *store.Tx) error { return tx.AddOutcomes([]models.OutcomeRow{good, bad}) })
			require.Equal(t, errs.Conflict, errs.CodeOf(err), name)
			err = db.Write(context.Background(), func(tx *store.Tx) error { return tx.AddOutcomes([]models.OutcomeRow{bad}) })
			require.Equal(t, errs.Conflict, errs.CodeOf(err), name)
		}
		requireStats(t, db, "finance", models.AgentStats{})
	})
}
