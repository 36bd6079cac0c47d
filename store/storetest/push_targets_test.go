package storetest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestPushTargets(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		save := func(target models.PushTarget) (models.PushTarget, error) {
			err := db.Write(t.Context(), func(tx *store.Tx) error { return tx.Workers().SavePushTarget(&target) })
			return target, err
		}
		drop := func(agentID, secret string) (dropped bool) {
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) (err error) {
				dropped, err = tx.Workers().DeletePushTarget(agentID, secret)
				return err
			}))
			return dropped
		}
		now := db.Now()
		insert(t, db, nova(db), orchestrator(db, "ada", 1), orchestrator(db, "bob", 2))

		_, err := db.Workers(t.Context()).PushTarget("ada")
		require.True(t, errs.Is(err, errs.NotFound))
		ada := models.PushTarget{AgentID: "ada", URL: "https://ada.example/in?x=1", Protocol: "envelope", Concurrency: 3, Secret: "s1", Owner: "t1"}
		ada, err = save(ada)
		require.NoError(t, err)
		require.Equal(t, []time.Time{now, now}, []time.Time{ada.CreatedAt, ada.UpdatedAt})
		got, err := db.Workers(t.Context()).PushTarget("ada")
		require.NoError(t, err)
		require.Equal(t, ada, got)

		db.Clock.Advance(time.Minute)
		again, err := save(models.PushTarget{AgentID: "ada", URL: "http://b.example", Protocol: "notes", Concurrency: 1, Secret: "s2", Owner: "t2"})
		require.NoError(t, err)
		require.Equal(t, []time.Time{now, now.Add(time.Minute)}, []time.Time{again.CreatedAt, again.UpdatedAt}, "it was made once")
		bob, err := save(models.PushTarget{AgentID: "bob", URL: "http://bob.example", Protocol: "envelope", Concurrency: 1, Secret: "s3", Owner: "t3"})
		require.NoError(t, err)
		all, err := db.Workers(t.Context()).PushTargets()
		require.NoError(t, err)
		require.Equal(t, []models.PushTarget{again, bob}, all, "in the order of the agents")

		require.False(t, drop("ada", "s1"), "another one has taken its place")
		require.True(t, drop("ada", "s2"))
		require.True(t, drop("bob", ""))
		require.False(t, drop("bob", ""))
		_, err = save(models.PushTarget{AgentID: "missing", URL: "http://c.example", Protocol: "envelope", Concurrency: 1, Secret: "s", Owner: "t"})
		require.True(t, errs.Is(err, errs.Conflict), err)
	})
}
