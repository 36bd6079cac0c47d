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
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// withManyAgents inserts so many agents that reading them takes time.
func withManyAgents(t *testing.T, db *storetest.DB) {
	t.Helper()
	const many = 2000
	require.NoError(t, registry.New(db.Store, nil).Bootstrap(t.Context()))
	for from := 0; from < many; from += 500 {
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			for i := range 500 {
				if err := tx.Agents().Insert(newAgent(db, fmt.Sprintf("many-%05d", from+i))); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// newAgent returns an agent that offers its id as a capability. Some are read before those of
// withManyAgents, some after them.
func newAgent(db *storetest.DB, id string) models.Agent {
	return testkit.NewAgent(db, id, "custom:"+id)
}

// TestChangesOfTheRegistryAreIndexedAtOnce checks that a change of the registry is in the index before its event has been
// read. Until then, a self-registered agent could get tasks that are meant for a new agent.
func TestChangesOfTheRegistryAreIndexedAtOnce(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		agents := registry.New(db.Store, nil)
		work := testkit.StartWork(t, db, orchestrator.Options{Registry: agents}) // without the events of the registry
		id, name, level, parent := "digger", "digger", models.LevelSpecialist, "orch-my-team"
		draft := models.AgentDraft{ID: &id, Name: &name, Level: &level, ParentID: &parent, Capabilities: []string{"custom:dig"}}
		_, err := agents.Create(t.Context(), models.System(), draft, nil)
		require.NoError(t, err)
		require.Contains(t, work.CapabilitiesOf(""), "dig")
		_, err = agents.Update(t.Context(), models.System(), id, registry.AgentPatch{Capabilities: models.Some([]string{"custom:fill"})}, nil)
		require.NoError(t, err)
		require.NotContains(t, work.CapabilitiesOf(""), "dig")
		require.Contains(t, work.CapabilitiesOf(""), "fill")
		require.NoError(t, agents.Deactivate(t.Context(), models.System(), id, nil))
		require.NotContains(t, work.CapabilitiesOf(""), "fill")
	})
}

// startUnready starts an orchestrator and does not wait until it has read the agents.
func startUnready(t *testing.T, db *storetest.DB, opts orchestrator.Options) *harness {
	t.Helper()
	h := &harness{testkit.NewWork(t, db, opts), nil}
	h.Start(t)
	return h
}

// requireAssignable submits work for an agent that has not joined. It is accepted only if the
// agent is known.
func (h *harness) requireAssignable(t *testing.T, id string) {
	t.Helper()
	var out orchestrator.SubmitResult
	var err error
	require.Eventually(t, func() bool {
		out, err = h.Submit(context.Background(), operator(), orchestrator.Submission{AgentID: id, Capabilities: []string{"custom:" + id}}, nil)
		return !errs.Is(err, errs.Unavailable) // the index is being loaded
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, err, id)
	require.Equal(t, models.WaitForRetry, out.Task.WaitingFor, "it is known and offline")
}

// TestIndexDuringLoad changes agents while all of them are read.
func TestIndexDuringLoad(t *testing.T) {
	t.Parallel()

	withDatabase(t, "keeps agents that are indexed meanwhile", func(t *testing.T, db *storetest.DB) {
		withManyAgents(t, db)
		early := 0 // indexed before the load ends
		for round := 0; early < 30; round++ {
			h := startUnready(t, db, orchestrator.Options{}) // without a feed a lost change stays lost
			var all []string
			for i := 0; h.Check(t.Context()) != nil; i++ {
				id := fmt.Sprintf("%s-%d-%d", []string{"early", "zlate"}[i%2], round, i)
				require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Agents().Insert(newAgent(db, id)) }))
				require.NoError(t, h.ReindexAgent(t.Context(), id))
				all = append(all, id)
			}
			for _, id := range all {
				h.requireAssignable(t, id)
			}
			early += len(all)
			require.NoError(t, h.Orchestrator.Stop(t.Context()))
		}
	})

	withDatabase(t, "keeps the newest capabilities", func(t *testing.T, db *storetest.DB) {
		withManyAgents(t, db)
		ids := []string{"many-00000", "many-01000", "many-01999"} // read first, in the middle and last
		reg := registry.New(db.Store, nil)
		early := 0
		for round := 0; early < 30; round++ {
			h := startUnready(t, db, orchestrator.Options{Registry: reg})
			last := map[string]string{}
			for i := 0; h.Check(t.Context()) != nil; i++ {
				id := ids[i%len(ids)]
				name := fmt.Sprintf("custom:%s-%d-%d", id, round, i)
				_, err := h.UpdateAgent(t.Context(), operator(), id, registry.AgentPatch{Capabilities: models.Some([]string{name})})
				require.NoError(t, err)
				last[id] = name
				early++
			}
			for id, name := range last {
				_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{AgentID: id, Capabilities: []string{name}}, nil)
				require.NoError(t, err)
			}
			require.NoError(t, h.Orchestrator.Stop(t.Context()))
		}
		h := startUnready(t, db, orchestrator.Options{})
		require.Eventually(t, func() bool { return h.Check(t.Context()) == nil }, time.Minute, 5*time.Millisecond)
		h.requireUnsupported(t, "custom:many-00000") // the old capability
	})

	withDatabase(t, "finds agents that another process registered", func(t *testing.T, db *storetest.DB) {
		withManyAgents(t, db)
		opts := &events.Options{Poll: 2 * time.Millisecond}
		feed := events.NewFeed(db.Store, opts)
		relay := events.NewRelay(db.Store, feed, opts)
		require.NoError(t, relay.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, relay.Stop(context.Background())) })
		reg := registry.New(db.Store, nil)
		hired := make(chan string, 1000)
		var hiring sync.WaitGroup
		started := make(chan struct{})
		hiring.Go(func() { // as another replica does: only the events tell
			defer close(hired)
			for i := range 60 {
				id, sphere, parent := fmt.Sprintf("hired-%d", i), 8, "orch-my-team"
				level := models.LevelSpecialist
				_, err := reg.Create(context.Background(), operator(), models.AgentDraft{
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
		h := startUnready(t, db, orchestrator.Options{Feed: feed, Poll: 2 * time.Millisecond})
		n := 0
		for id := range hired {
			h.requireAssignable(t, id)
			n++
		}
		hiring.Wait()
		require.Equal(t, 60, n)
	})
}
