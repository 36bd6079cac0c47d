package orchestrator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// crowded is a database with so many agents that reading them takes its time.
func crowded(t *testing.T, db *storetest.DB) {
	t.Helper()
	const many = 2000
	require.NoError(t, registry.New(db.Store, nil).Bootstrap(t.Context()))
	for from := 0; from < many; from += 500 {
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			for i := range 500 {
				if err := tx.InsertAgent(newcomer(db, fmt.Sprintf("many-%05d", from+i))); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// newcomer is an agent that offers what its id says. Some come before those of crowded in
// the order in which they are read, some behind them.
func newcomer(db *storetest.DB, id string) models.Agent {
	now, parent, sphere, budget := db.Now(), "orch-my-team", 8, int64(50_000)
	return models.Agent{
		ID: id, Name: id, Level: 2, SphereID: &sphere, FrequencyHz: 555, Capabilities: []string{"custom:" + id}, ParentID: &parent, TokenBudget: &budget,
		IsActive: true, Version: 1, CreatedAt: now, UpdatedAt: now,
	}
}

// begin starts an orchestrator and does not wait until it has read the agents.
func begin(t *testing.T, db *storetest.DB, opts *orchestrator.Options) *house {
	t.Helper()
	ledger := usage.New(db.Store, nil)
	h := &house{orchestrator.New(db.Store, ledger, opts), db, ledger, nil}
	require.NoError(t, h.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, h.Stop(context.Background())) })
	return h
}

// meant asks for work of an agent that has not joined, which is taken on only where the
// agent is known.
func (h *house) meant(t *testing.T, id string) {
	t.Helper()
	var out orchestrator.Submitted
	var err error
	require.Eventually(t, func() bool {
		out, err = h.Submit(context.Background(), ops(), orchestrator.Submission{Agent: id, Capabilities: []string{"custom:" + id}}, nil)
		return !errs.Is(err, errs.Unavailable) // the agents are being read, try again
	}, time.Minute, time.Millisecond)
	require.NoError(t, err, id)
	require.Equal(t, models.WaitForRetry, out.Task.WaitingFor, "it is known, and away")
}

// TestTheIndexWhileItIsFilled: the agents are read as a whole while others change them.
func TestTheIndexWhileItIsFilled(t *testing.T) {
	t.Parallel()

	onFresh(t, "LosesNobodyWhoIsLearnedMeanwhile", func(t *testing.T, db *storetest.DB) {
		crowded(t, db)
		early := 0 // learned before the index was filled
		for round := 0; early < 30; round++ {
			h := begin(t, db, nil) // with no feed: what is lost stays lost
			var all []string
			for i := 0; h.Check(t.Context()) != nil; i++ {
				id := fmt.Sprintf("%s-%d-%d", []string{"early", "zlate"}[i%2], round, i)
				require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.InsertAgent(newcomer(db, id)) }))
				require.NoError(t, h.ReindexAgent(t.Context(), id))
				all = append(all, id)
			}
			for _, id := range all {
				h.meant(t, id)
			}
			early += len(all)
			require.NoError(t, h.Stop(t.Context()))
		}
	})

	onFresh(t, "KnowsWhatIsOfferedByThenAndNotWhatWasBefore", func(t *testing.T, db *storetest.DB) {
		crowded(t, db)
		ids := []string{"many-00000", "many-01000", "many-01999"} // read first, on the way and last
		reg := registry.New(db.Store, nil)
		early := 0
		for round := 0; early < 30; round++ {
			h := begin(t, db, &orchestrator.Options{Registry: reg})
			last := map[string]string{}
			for i := 0; h.Check(t.Context()) != nil; i++ {
				id := ids[i%len(ids)]
				name := fmt.Sprintf("custom:%s-%d-%d", id, round, i)
				_, err := h.UpdateCapabilities(t.Context(), ops(), id, []string{name})
				require.NoError(t, err)
				last[id] = name
				early++
			}
			for id, name := range last {
				_, err := h.Submit(t.Context(), ops(), orchestrator.Submission{Agent: id, Capabilities: []string{name}}, nil)
				require.NoError(t, err)
			}
			require.NoError(t, h.Stop(t.Context()))
		}
		h := begin(t, db, nil)
		require.Eventually(t, func() bool { return h.Check(t.Context()) == nil }, time.Minute, time.Millisecond)
		h.requireUnoffered(t, "custom:many-00000") // as it was at first
	})

	onFresh(t, "KnowsWhomTheRegistryTookInElsewhere", func(t *testing.T, db *storetest.DB) {
		crowded(t, db)
		opts := &events.Options{Poll: 2 * time.Millisecond}
		feed := events.NewFeed(db.Store, opts)
		relay := events.NewRelay(db.Store, feed, opts)
		require.NoError(t, relay.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, relay.Stop(context.Background())) })
		reg := registry.New(db.Store, nil)
		hired := make(chan string, 1000)
		var hiring sync.WaitGroup
		started := make(chan struct{})
		hiring.Go(func() { // as another replica does: nobody is told but by the events
			defer close(hired)
			for i := range 60 {
				id, sphere, parent := fmt.Sprintf("hired-%d", i), 8, "orch-my-team"
				level := models.LevelSpecialist
				_, err := reg.Create(context.Background(), ops(), models.AgentDraft{
					ID: &id, Name: &id, Level: &level, SphereID: &sphere, FrequencyHz: new(555), ParentID: &parent, Capabilities: []string{"custom:" + id},
				}, nil)
				if err != nil {
					return
				}
				hired <- id
				if i == 9 { // some before the start
					close(started)
				}
			}
		})
		<-started
		h := begin(t, db, &orchestrator.Options{Feed: feed, Poll: 2 * time.Millisecond})
		n := 0
		for id := range hired {
			h.meant(t, id)
			n++
		}
		hiring.Wait()
		require.Equal(t, 60, n)
	})
}
