package orchestrator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
	"comet/store/storetest"
)

// jobless is an orchestrator whose jobs nobody runs: what a server commits in the moment
// before it is killed.
func jobless(t *testing.T, db *storetest.DB) (h *house, stop func()) {
	t.Helper()
	ledger := usage.New(db.Store, nil)
	h = &house{
		orchestrator.New(db.Store, ledger, &orchestrator.Options{Registry: registry.New(db.Store, nil), Poll: 2 * time.Millisecond}), db, ledger, past(t, db),
	}
	require.NoError(t, h.Start(t.Context()))
	stop = func() { require.NoError(t, h.Stop(context.Background())) }
	t.Cleanup(stop)
	require.Eventually(t, func() bool { return h.Check(t.Context()) == nil }, time.Minute, time.Millisecond)
	return h, stop
}

// TestACrashBetweenAPartAndItsWhole: that a part has ended is found out with the whole by
// whoever comes next, because the job that does so was committed with the part.
func TestACrashBetweenAPartAndItsWhole(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how  models.Aggregate
		give []string
		want string
	}{
		"TheFirstSuccessIsTaken":   {models.AggregateFirst, []string{"b"}, "b's"},
		"WhatAllSaidIsPutTogether": {models.AggregateMerge, []string{"a", "b", "c"}, "a's\nb's\nc's"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T, db *storetest.DB) {
				h, stop := boot(t, db, nil)
				h.trio(t)
				id := h.submit(t, "work", inParallel(3, c.how)).ID
				stop()

				h, stop = jobless(t, db)
				shares := h.shares(t, id)
				for _, agent := range c.give {
					h.give(t, shares[agent], orchestrator.Result{Output: []byte(agent + "'s"), Tokens: 5})
				}
				whole, err := h.Task(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, models.TaskRunning, whole.State, "nobody has looked at it")
				stop()

				h, _ = boot(t, db, nil)
				whole = h.until(t, id, ended)
				require.Equal(t, models.TaskDone, whole.State)
				require.Equal(t, c.want, h.output(t, id, models.StreamResult))
				require.EqualValues(t, 5*len(c.give), whole.Tokens)
				for _, share := range shares {
					h.until(t, share.ID, ended)
				}
				requireSound(t, h)
				requireLegalEvents(t, h)
			})
		})
	}
}
