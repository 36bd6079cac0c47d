package messagelog_test

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
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/protocol/v5/shortid"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testOnDatabases runs a subtest on a fresh database of every kind.
func testOnDatabases(t *testing.T, name string, fn func(t *testing.T, db *storetest.DB)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, fn)
	})
}

// message is a message between a peer and O1 about task 1 in context 1.
func message(t *testing.T, peer string, number, pid int) messagelog.Message {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	return messagelog.Message{ID: id.String(), At: time.UnixMicro(1).UTC(), Peer: peer, Context: 1, Task: 1, Number: number, Parent: pid, From: peer, To: "O1", Type: "U", Data: "-"}
}

// task is a task with the short id T1 in context 1.
func task(t *testing.T, db *storetest.DB) models.Task {
	t.Helper()
	require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
		_, err := shortid.Assign(tx, "the task", "")
		return err
	}))
	return models.Task{ID: "the task"}
}

// countMessages counts the stored messages without writing the buffer.
func countMessages(t *testing.T, db *storetest.DB) int {
	t.Helper()
	n, err := store.Row[int](db.Reads(t.Context()), "SELECT count(*) FROM v5_messages")
	require.NoError(t, err)
	return n
}

func TestLog(t *testing.T) {
	t.Parallel()

	testOnDatabases(t, "a read finds messages that were just added", func(t *testing.T, db *storetest.DB) {
		log := messagelog.New(db.Store, nil) // not even started
		first, second := message(t, "W1", 3, 0), message(t, "W1", 4, 3)
		log.Add(first)
		got, err := log.ByNumber(t.Context(), 1, "W1", 3)
		require.NoError(t, err)
		require.Equal(t, first, got)
		_, err = log.ByNumber(t.Context(), 1, "W2", 3)
		require.True(t, errs.Is(err, errs.NotFound), err)
		log.Add(second)
		all, err := log.ByTask(t.Context(), task(t, db), "", 10)
		require.NoError(t, err)
		require.Len(t, all, 2)
		all, err = log.ByTask(t.Context(), task(t, db), first.ID, 10)
		require.NoError(t, err)
		require.Len(t, all, 1)
		all, err = log.ByTask(t.Context(), models.Task{ID: "another task"}, "", 10)
		require.NoError(t, err)
		require.Empty(t, all)
	})

	testOnDatabases(t, "a pid means the newest earlier message with that number", func(t *testing.T, db *storetest.DB) {
		log := messagelog.New(db.Store, nil)
		m3, other := message(t, "W1", 3, 0), message(t, "W2", 3, 0)
		first := message(t, "W1", 4, 3) // in the same batch
		log.Add(m3)
		log.Add(other)
		log.Add(first)
		require.NoError(t, log.Flush(t.Context()))
		second := message(t, "W1", 5, 3)  // in a later one
		wrapped := message(t, "W1", 3, 3) // the numbers have wrapped
		third := message(t, "W1", 6, 3)
		unknown := message(t, "W1", 7, 99)
		for _, m := range []messagelog.Message{second, wrapped, third, unknown} {
			log.Add(m)
		}
		all, err := log.ByTask(t.Context(), task(t, db), "", 10)
		require.NoError(t, err)
		causes := map[string]string{}
		for _, m := range all {
			causes[m.ID] = m.ParentID
		}
		require.Equal(t, map[string]string{
			m3.ID: "", other.ID: "", first.ID: m3.ID, second.ID: m3.ID, wrapped.ID: m3.ID, third.ID: wrapped.ID, unknown.ID: "",
		}, causes)
	})

	testOnDatabases(t, "the buffer is written at the interval and by Stop", func(t *testing.T, db *storetest.DB) {
		metrics := prometheus.NewRegistry()
		log := messagelog.New(db.Store, &messagelog.Options{FlushInterval: time.Millisecond, Registerer: metrics})
		require.NoError(t, log.Start(t.Context()))
		var senders sync.WaitGroup
		for n := range 4 {
			senders.Go(func() {
				for i := range 300 {
					log.Add(message(t, fmt.Sprint("W", n+1), i+1, i))
				}
			})
		}
		senders.Wait()
		require.Eventually(t, func() bool { // without a read through the log, which would write
			return countMessages(t, db) == 1200
		}, time.Minute, 5*time.Millisecond)
		last := message(t, "W9", 1, 0)
		log.Add(last)
		require.NoError(t, log.Stop(context.Background()))
		require.NoError(t, log.Stop(context.Background()))
		got, err := log.ByNumber(t.Context(), 1, "W9", 1)
		require.NoError(t, err)
		require.Equal(t, last, got)
		require.Equal(t, 1201, int(metric(t, metrics, "comet_v5_messages_logged_total")))
	})

	testOnDatabases(t, "messages beyond the buffer are dropped and counted", func(t *testing.T, db *storetest.DB) {
		metrics := prometheus.NewRegistry()
		log := messagelog.New(db.Store, &messagelog.Options{MaxBuffered: 2, Registerer: metrics})
		for i := range 5 {
			log.Add(message(t, "W1", i+1, 0))
		}
		require.Equal(t, 3, int(metric(t, metrics, "comet_v5_messages_dropped_total")))
		_, err := log.ByNumber(t.Context(), 1, "W1", 2)
		require.NoError(t, err)
		_, err = log.ByNumber(t.Context(), 1, "W1", 3)
		require.True(t, errs.Is(err, errs.NotFound), err)
		log.Add(message(t, "W1", 6, 0)) // the buffer has space again
		_, err = log.ByNumber(t.Context(), 1, "W1", 6)
		require.NoError(t, err)
	})

	testOnDatabases(t, "messages that cannot be written stay in the buffer", func(t *testing.T, db *storetest.DB) {
		log := messagelog.New(db.Store, nil)
		log.Add(message(t, "W1", 1, 0))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, log.Flush(ended))
		_, err := log.ByNumber(t.Context(), 1, "W1", 1)
		require.NoError(t, err)
	})
}

func metric(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range all {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return -1
}
