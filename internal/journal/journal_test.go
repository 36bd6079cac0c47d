package journal_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/errs"
	"comet/internal/journal"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rule runs one case on a fresh database of every kind.
func rule(t *testing.T, name string, fn func(t *testing.T, db *storetest.DB)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, fn)
	})
}

// said is a line between a peer and O1, in the context 1.
func said(t *testing.T, peer string, number, pid int) models.LoggedMessage {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	return models.LoggedMessage{ID: id.String(), At: time.UnixMicro(1).UTC(), Peer: peer, Context: 1, Task: 1, Number: number, Parent: pid, From: peer, To: "O1", Type: "U", Data: "-"}
}

// task is the one that is T1 in the context 1.
func task(t *testing.T, db *storetest.DB) models.Task {
	t.Helper()
	require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
		_, err := tx.TaskShortID("the task", "")
		return err
	}))
	return models.Task{ID: "the task"}
}

func TestJournal(t *testing.T) {
	t.Parallel()

	rule(t, "WhoReadsFindsWhatWasSaidBefore", func(t *testing.T, db *storetest.DB) {
		j := journal.New(db.Store, nil) // not even started
		first, second := said(t, "W1", 3, 0), said(t, "W1", 4, 3)
		j.Add(first)
		got, err := j.ByNumber(t.Context(), 1, "W1", 3)
		require.NoError(t, err)
		require.Equal(t, first, got)
		_, err = j.ByNumber(t.Context(), 1, "W2", 3)
		require.True(t, errs.Is(err, errs.NotFound), err)
		j.Add(second)
		all, err := j.Of(t.Context(), task(t, db), "", 10)
		require.NoError(t, err)
		require.Len(t, all, 2)
		all, err = j.Of(t.Context(), task(t, db), first.ID, 10)
		require.NoError(t, err)
		require.Len(t, all, 1)
		all, err = j.Of(t.Context(), models.Task{ID: "another task"}, "", 10)
		require.NoError(t, err)
		require.Empty(t, all)
	})

	rule(t, "APidMeansTheNewestLineSoNumberedBeforeIt", func(t *testing.T, db *storetest.DB) {
		j := journal.New(db.Store, nil)
		m3, other := said(t, "W1", 3, 0), said(t, "W2", 3, 0)
		first := said(t, "W1", 4, 3) // in the same batch
		j.Add(m3)
		j.Add(other)
		j.Add(first)
		require.NoError(t, j.Flush(t.Context()))
		second := said(t, "W1", 5, 3) // in a later one
		again := said(t, "W1", 3, 3)  // the numbers have come round
		third := said(t, "W1", 6, 3)
		lost := said(t, "W1", 7, 99)
		for _, l := range []models.LoggedMessage{second, again, third, lost} {
			j.Add(l)
		}
		all, err := j.Of(t.Context(), task(t, db), "", 10)
		require.NoError(t, err)
		causes := map[string]string{}
		for _, l := range all {
			causes[l.ID] = l.ParentID
		}
		require.Equal(t, map[string]string{
			m3.ID: "", other.ID: "", first.ID: m3.ID, second.ID: m3.ID, again.ID: m3.ID, third.ID: again.ID, lost.ID: "",
		}, causes)
	})

	rule(t, "WhatWaitsIsWrittenSoonAndBeforeTheEnd", func(t *testing.T, db *storetest.DB) {
		counts := prometheus.NewRegistry()
		j := journal.New(db.Store, &journal.Options{Every: time.Millisecond, Registerer: counts})
		require.NoError(t, j.Start(t.Context()))
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() {
				for i := range 300 {
					j.Add(said(t, fmt.Sprint("W", n+1), i+1, i))
				}
			})
		}
		all.Wait()
		require.Eventually(t, func() bool { // nobody reads through the journal
			page, err := db.LoggedMessages(t.Context(), models.LoggedMessageQuery{ShortID: models.ShortID{Context: 1, Task: 1}, Limit: 2000})
			return err == nil && len(page) == 1200
		}, time.Minute, time.Millisecond)
		last := said(t, "W9", 1, 0)
		j.Add(last)
		require.NoError(t, j.Stop(context.Background()))
		require.NoError(t, j.Stop(context.Background()))
		got, err := db.LoggedMessageByNumber(t.Context(), 1, "W9", 1)
		require.NoError(t, err)
		require.Equal(t, last, got)
		require.Equal(t, 1201, int(metric(t, counts, "comet_lines_kept_total")))
	})

	rule(t, "ABatchIsWrittenWithoutWaitingForItsTime", func(t *testing.T, db *storetest.DB) {
		j := journal.New(db.Store, &journal.Options{Every: time.Hour, Batch: 10})
		require.NoError(t, j.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, j.Stop(context.Background())) })
		for i := range 10 {
			j.Add(said(t, "W1", i+1, 0))
		}
		require.Eventually(t, func() bool {
			_, err := db.LoggedMessageByNumber(t.Context(), 1, "W1", 10)
			return err == nil
		}, time.Minute, time.Millisecond)
	})

	rule(t, "WhatFindsTheQueueFullIsLostAndCounted", func(t *testing.T, db *storetest.DB) {
		counts := prometheus.NewRegistry()
		j := journal.New(db.Store, &journal.Options{MaxWaiting: 2, Registerer: counts})
		for i := range 5 {
			j.Add(said(t, "W1", i+1, 0))
		}
		require.Equal(t, 3, int(metric(t, counts, "comet_lines_lost_total")))
		_, err := j.ByNumber(t.Context(), 1, "W1", 2)
		require.NoError(t, err)
		_, err = j.ByNumber(t.Context(), 1, "W1", 3)
		require.True(t, errs.Is(err, errs.NotFound), err)
		j.Add(said(t, "W1", 6, 0)) // there is room again
		_, err = j.ByNumber(t.Context(), 1, "W1", 6)
		require.NoError(t, err)
	})

	rule(t, "WhatCannotBeWrittenGoesOnWaiting", func(t *testing.T, db *storetest.DB) {
		j := journal.New(db.Store, nil)
		j.Add(said(t, "W1", 1, 0))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, j.Flush(ended))
		_, err := j.ByNumber(t.Context(), 1, "W1", 1)
		require.NoError(t, err)
	})
}

func metric(t *testing.T, of *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := of.Gather()
	require.NoError(t, err)
	for _, family := range all {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return -1
}
