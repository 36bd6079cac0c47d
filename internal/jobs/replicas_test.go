package jobs_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/jobs"
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// disconnections receives the connections that a Replicas ends.
type disconnections chan string

func (d disconnections) options() jobs.ReplicaOptions {
	return jobs.ReplicaOptions{Disconnect: func(_ context.Context, agentID, connectionID string) error {
		d <- agentID + " " + connectionID
		return nil
	}}
}

// hold takes a lease of the webhook w and of a job, and connects the worker nova, as another process.
func hold(t *testing.T, s *store.Store) (connection string) {
	t.Helper()
	connection = s.Process() + "/1"
	require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error {
		require.NoError(t, tx.Agents().Insert(models.Agent{ID: "nova", Name: "NOVA", FrequencyHz: 999, IsActive: true}))
		require.NoError(t, tx.Workers().Save(&models.Worker{
			AgentID: "nova", State: models.WorkerOnline, Protocol: "envelope", Transport: "websocket", ConnectionID: connection, Concurrency: 1, LastSeenAt: tx.Now(),
		}))
		require.NoError(t, tx.Webhooks().Insert(models.Webhook{
			ID: "w", URL: "https://example.com/w", Events: []models.EventType{events.AgentUpdated}, Ordering: models.OrderingNone,
			Enabled: true, Keys: models.WebhookKeys{Secret: []byte("secret")}, CreatedBy: "ops", CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
		}))
		_, ok, err := tx.Webhooks().Lease("w", s.Process(), tx.Now().Add(time.Hour))
		require.True(t, ok)
		return err
	}))
	enqueue(t, s, store.Job{Kind: "work"})
	require.Len(t, claimAll(t, s, "work"), 1)
	return connection
}

// isFree reports whether the webhook and the job have no lease.
func isFree(t *testing.T, s *store.Store) (free bool) {
	t.Helper()
	err := s.Write(t.Context(), func(tx *store.Tx) error {
		claimed, err := tx.Jobs().Claim([]string{"work"}, 1, time.Minute)
		require.NoError(t, err)
		_, leased, err := tx.Webhooks().Lease("w", "looking", tx.Now())
		require.NoError(t, err)
		require.Equal(t, leased, len(claimed) == 1, "all or nothing")
		free = leased
		return errBoom // only looking
	})
	require.ErrorIs(t, err, errBoom)
	return free
}

func TestReplicas(t *testing.T) {
	t.Parallel()

	t.Run("ReleaseWhatAnEarlierProcessHeldAtTheStartOnSQLite", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t, "sqlite")
		connection := hold(t, db.Store)
		require.False(t, isFree(t, db.Store))
		ended := make(disconnections, 1)
		r := jobs.NewReplicas(db.Store, ended.options())
		require.NoError(t, r.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, r.Stop(context.Background())) })
		require.True(t, isFree(t, db.Store), "at once")
		require.Equal(t, "nova "+connection, testkit.Receive(t, ended), "unless the worker connects in time")
	})

	if !slices.Contains(storetest.Databases(), "postgres") {
		return
	}
	pair := func(t *testing.T, opts jobs.ReplicaOptions) (db *storetest.DB, alive, other *jobs.Replicas, otherStore *store.Store) {
		t.Helper()
		db = storetest.Open(t, "postgres")
		otherStore, err := store.Open(t.Context(), db.Options)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, otherStore.Close()) })
		return db, jobs.NewReplicas(db.Store, opts), jobs.NewReplicas(otherStore, opts), otherStore
	}

	t.Run("ReleaseLeasesAndConnectionsOfADeadReplica", func(t *testing.T) {
		t.Parallel()
		ended := make(disconnections, 1)
		db, alive, dying, dyingStore := pair(t, ended.options())
		connection := hold(t, dyingStore)
		db.Clock.Advance(time.Minute - time.Microsecond) // no lease ends by itself
		for range 10 {
			require.NoError(t, dying.Heartbeat(t.Context()))
			require.NoError(t, alive.Heartbeat(t.Context()))
		}
		for range 2 { // two seconds
			require.NoError(t, alive.Heartbeat(t.Context()))
		}
		require.False(t, isFree(t, db.Store), "it may be slow")
		require.NoError(t, alive.Heartbeat(t.Context()))
		require.True(t, isFree(t, db.Store))
		require.Equal(t, "nova "+connection, testkit.Receive(t, ended))
		for range 5 { // it lives after all: it takes part again
			require.NoError(t, dying.Heartbeat(t.Context()))
			require.NoError(t, alive.Heartbeat(t.Context()))
		}
		require.Empty(t, ended)
	})

	t.Run("KeepWhatALivingReplicaHoldsAfterThisOneWasSlow", func(t *testing.T) {
		t.Parallel()
		db, alive, late, aliveStore := pair(t, make(disconnections, 1).options())
		hold(t, aliveStore)
		require.NoError(t, late.Heartbeat(t.Context()))
		require.NoError(t, alive.Heartbeat(t.Context()))
		db.Clock.Advance(30 * time.Second)
		for range 10 {
			require.NoError(t, alive.Heartbeat(t.Context()))
			require.NoError(t, late.Heartbeat(t.Context()))
		}
		require.False(t, isFree(t, db.Store))
	})

	t.Run("LeaveNothingBehindAfterStop", func(t *testing.T) {
		t.Parallel()
		db, one, other, _ := pair(t, make(disconnections, 1).options())
		require.NoError(t, one.Start(t.Context()))
		require.NoError(t, other.Start(t.Context()))
		require.NoError(t, one.Stop(t.Context()))
		require.NoError(t, other.Stop(t.Context()))
		left, err := store.Rows[string](db.Reads(t.Context()), "SELECT id FROM replicas")
		require.NoError(t, err)
		require.Empty(t, left)
	})

	t.Run("WarnOnceIfTheyDoNotWakeEachOther", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		opts := make(disconnections, 1).options()
		opts.Isolated, opts.Logger = true, slog.New(slog.NewTextHandler(&out, nil))
		_, one, other, _ := pair(t, opts)
		for range 10 {
			require.NoError(t, other.Heartbeat(t.Context()))
			require.NoError(t, one.Heartbeat(t.Context()))
		}
		require.Equal(t, 2, bytes.Count(out.Bytes(), []byte("set --nats-url")), "each of them")
	})
}
