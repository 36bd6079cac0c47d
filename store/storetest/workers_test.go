package storetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// joined stores the agents of a small tree, and one of them as a worker that is online.
func joined(t *testing.T, db *storetest.DB, change func(*models.Worker)) models.Worker {
	t.Helper()
	smallTree(t, db)
	w := models.Worker{AgentID: "finance", State: models.WorkerOnline, Protocol: "envelope", Transport: "poll", Concurrency: 1, LastSeenAt: db.Now()}
	if change != nil {
		change(&w)
	}
	write(t, db, func(tx *store.Tx) error { return tx.Workers().Save(&w) })
	return w
}

func TestAWorker(t *testing.T) {
	t.Parallel()

	rule(t, "IsReadAsItWasWritten", func(t *testing.T, db *storetest.DB) {
		want := joined(t, db, func(w *models.Worker) {
			*w = models.Worker{
				AgentID: "finance", State: models.WorkerBusy, Protocol: "v5", ProtocolVersion: "V4", Transport: "sse", ConnectionID: "l1", Concurrency: 9, InFlight: 3, Load: 44, LastSeenAt: db.Now(),
				LastAssignedAt: db.Now().Add(time.Second), Failures: 4, BreakerUntil: db.Now().Add(time.Minute), Probing: true,
			}
		})
		got, err := db.Workers(t.Context()).Get("finance")
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.EqualValues(t, 1, got.Version)
		db.Clock.Advance(time.Second)
		want.LastAssignedAt, want.BreakerUntil, want.Probing = time.Time{}, time.Time{}, false
		write(t, db, func(tx *store.Tx) error { return tx.Workers().Save(&want) })
		got, err = db.Workers(t.Context()).Get("finance")
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.EqualValues(t, 2, got.Version)
		require.Equal(t, db.Now(), got.UpdatedAt)
		_, err = db.Workers(t.Context()).Get("health")
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		require.Error(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Workers().Save(&models.Worker{AgentID: "missing", Concurrency: 1}) }))
	})

	rule(t, "HasNoMoreSlotsThanItsConcurrency", func(t *testing.T, db *storetest.DB) {
		const places, callers = 5, 16
		joined(t, db, func(w *models.Worker) { w.Concurrency = places })
		var mu sync.Mutex
		var taken []int
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				var w models.Worker
				var ok bool
				err := db.Write(context.Background(), func(tx *store.Tx) (err error) {
					w, ok, err = tx.Workers().ChangeSlots("finance", 1, 0, false)
					return err
				})
				mu.Lock()
				defer mu.Unlock()
				if err != nil || ok {
					taken = append(taken, w.InFlight)
				}
			})
		}
		all.Wait()
		require.ElementsMatch(t, []int{1, 2, 3, 4, 5}, taken)
		got, err := db.Workers(t.Context()).Get("finance")
		require.NoError(t, err)
		require.Equal(t, places, got.InFlight)
		require.Equal(t, db.Now(), got.LastAssignedAt)
		require.EqualValues(t, 1+places, got.Version)
	})

	for name, change := range map[string]func(*models.Worker){
		"ThatIsOffline":         func(w *models.Worker) { w.State = models.WorkerOffline },
		"ThatIsBusy":            func(w *models.Worker) { w.State = models.WorkerBusy },
		"WhoseBreakerIsOpen":    func(w *models.Worker) { w.BreakerUntil = w.LastSeenAt.Add(time.Minute) },
		"WhoseBreakerIsOverdue": func(w *models.Worker) { w.BreakerUntil = w.LastSeenAt.Add(-time.Minute) },
		"ThatIsFull":            func(w *models.Worker) { w.Concurrency, w.InFlight = 2, 2 },
	} {
		rule(t, name+"HasNoSlot", func(t *testing.T, db *storetest.DB) {
			want := joined(t, db, change)
			write(t, db, func(tx *store.Tx) error {
				_, ok, err := tx.Workers().ChangeSlots("finance", 1, 0, false)
				require.False(t, ok)
				return err
			})
			got, err := db.Workers(t.Context()).Get("finance")
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}

	rule(t, "IsSilentWithoutHeartbeats", func(t *testing.T, db *storetest.DB) {
		joined(t, db, nil)
		silent := func() []string {
			t.Helper()
			ids, err := db.Workers(t.Context()).Silent(db.Now().Add(-45*time.Second), 10)
			require.NoError(t, err)
			return ids
		}
		db.Clock.Advance(45 * time.Second)
		require.Empty(t, silent())
		db.Clock.Advance(time.Microsecond)
		require.Equal(t, []string{"finance"}, silent())
		write(t, db, func(tx *store.Tx) error {
			others, err := tx.Workers().Touch([]string{"finance", "health"})
			require.Empty(t, others)
			return err
		})
		require.Empty(t, silent())
		for name, change := range map[string]func(*models.Worker){
			"offline": func(w *models.Worker) { w.State = models.WorkerOffline },
			"breaker": func(w *models.Worker) { w.BreakerUntil = db.Now() },
		} {
			w, err := db.Workers(t.Context()).Get("finance")
			require.NoError(t, err)
			w.State, w.BreakerUntil = models.WorkerOnline, time.Time{}
			change(&w)
			write(t, db, func(tx *store.Tx) error { return tx.Workers().Save(&w) })
			write(t, db, func(tx *store.Tx) error {
				others, err := tx.Workers().Touch([]string{"finance"})
				require.Equal(t, []string{"finance"}, others, name)
				return err
			})
		}
	})

	rule(t, "AreListedByPages", func(t *testing.T, db *storetest.DB) {
		joined(t, db, nil)
		write(t, db, func(tx *store.Tx) error {
			return tx.Workers().Save(&models.Worker{AgentID: "health", State: models.WorkerOffline, Concurrency: 1})
		})
		for after, want := range map[string][]string{"": {"finance", "health"}, "finance": {"health"}, "health": nil} {
			for limit := 1; limit <= 2; limit++ {
				page, err := db.Workers(t.Context()).List("", after, limit)
				require.NoError(t, err)
				var got []string
				for _, w := range page {
					got = append(got, w.AgentID)
				}
				require.Equal(t, want[:min(len(want), limit)], got)
			}
		}
	})

	rule(t, "IsFoundByTheTimeOfItsChange", func(t *testing.T, db *storetest.DB) {
		joined(t, db, nil)
		for since, want := range map[time.Time]int{{}: 1, db.Now(): 1, db.Now().Add(time.Microsecond): 0} {
			got, err := db.Workers(t.Context()).ChangedSince(since)
			require.NoError(t, err)
			require.Len(t, got, want)
		}
	})
}

// tell puts messages about task t into an agent's inbox.
func tell(t *testing.T, db *storetest.DB, all ...models.InboxMessage) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		for _, m := range all {
			m.TaskID = "t"
			if _, err := tx.Inbox().Enqueue(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// inbox returns the messages of an agent in a short form.
func inbox(t *testing.T, db *storetest.DB, agent string) []string {
	t.Helper()
	all, err := db.Inbox(t.Context()).List(agent, 100)
	require.NoError(t, err)
	out := []string{}
	for _, m := range all {
		out = append(out, fmt.Sprintf("%s%d", m.Kind, m.Attempt))
	}
	return out
}

func TestAnInbox(t *testing.T) {
	t.Parallel()

	rule(t, "IsOrderedByPriorityAndAge", func(t *testing.T, db *storetest.DB) {
		insertTask(t, db, "t", nil)
		for n, priority := range []int{1, 3, 0, 1, 3} {
			tell(t, db, models.InboxMessage{AgentID: "finance", Kind: models.MessageAssign, Attempt: n, Priority: priority})
		}
		tell(t, db, models.InboxMessage{AgentID: "health", Kind: models.MessageReply, Data: json.RawMessage(`{"answer":"é"}`)})
		require.Equal(t, []string{"assign1", "assign4", "assign0", "assign3", "assign2"}, inbox(t, db, "finance"))
		some, err := db.Inbox(t.Context()).List("finance", 2)
		require.NoError(t, err)
		require.Len(t, some, 2)
		other, err := db.Inbox(t.Context()).List("health", 2)
		require.NoError(t, err)
		require.Equal(t, []models.InboxMessage{{
			AgentID: "health", ID: other[0].ID, Kind: models.MessageReply, TaskID: "t", Data: json.RawMessage(`{"answer":"é"}`), CreatedAt: db.Now(),
		}}, other)
	})

	rule(t, "IgnoresAcknowledgementsOfOtherAgents", func(t *testing.T, db *storetest.DB) {
		insertTask(t, db, "t", nil)
		tell(t, db, models.InboxMessage{AgentID: "finance", Kind: models.MessageAssign}, models.InboxMessage{AgentID: "finance", Kind: models.MessageReply})
		all, err := db.Inbox(t.Context()).List("finance", 10)
		require.NoError(t, err)
		ids := []string{all[0].ID, "unknown", all[0].ID}
		for _, c := range []struct {
			agent string
			want  int64
		}{{"health", 0}, {"finance", 1}, {"finance", 0}} {
			write(t, db, func(tx *store.Tx) error {
				n, _, err := tx.Inbox().Acknowledge(c.agent, ids)
				require.Equal(t, c.want, n)
				return err
			})
		}
		require.Equal(t, []string{"answer0"}, inbox(t, db, "finance"))
	})

	rule(t, "KeepsOnlyCancellationsAndResultsOfACancelledAttempt", func(t *testing.T, db *storetest.DB) {
		insertTask(t, db, "t", nil)
		for _, kind := range []string{models.MessageAssign, models.MessageCancel, models.MessageReply, models.MessageTaskEnded} {
			tell(t, db, models.InboxMessage{AgentID: "finance", Kind: kind, Attempt: 1}, models.InboxMessage{AgentID: "finance", Kind: kind, Attempt: 2})
		}
		write(t, db, func(tx *store.Tx) error { return tx.Inbox().Cancel("t", 1) })
		require.Equal(t, []string{"assign2", "cancel1", "cancel2", "answer2", "ended1", "ended2"}, inbox(t, db, "finance"))
	})
}

// TestAnInboxIsTheSameInATransaction compares the messages that a reader gets, on SQLite from memory,
// with those that a transaction reads, after random changes and after a restart.
func TestAnInboxIsTheSameInATransaction(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		random := rand.New(rand.NewPCG(1, 2))
		agents := []string{"finance", "health"}
		tasks := make([]models.Task, 8)
		for i := range tasks {
			tasks[i] = insertTask(t, db, fmt.Sprint("t", i), nil)
		}
		change := func(tx *store.Tx) error {
			agent := agents[random.IntN(len(agents))]
			switch random.IntN(4) {
			case 0:
				_, err := tx.Inbox().Enqueue(models.InboxMessage{AgentID: agent, Kind: models.MessageReply, TaskID: "t0", Priority: random.IntN(4)})
				return err
			case 1:
				all, err := tx.Inbox().List(agent, 10)
				var ids []string
				for _, m := range all {
					if random.IntN(2) == 0 {
						ids = append(ids, m.ID)
					}
				}
				if err == nil && len(ids) > 0 {
					_, _, err = tx.Inbox().Acknowledge(agent, ids)
				}
				return err
			default:
				task, err := tx.Tasks().Lock(tasks[random.IntN(len(tasks))].ID)
				if err != nil {
					return err
				}
				before := task
				task.AgentID, task.Attempt, task.MessageID = agent, task.Attempt+1, ""
				if random.IntN(3) > 0 {
					task.MessageID = fmt.Sprintf("m%04d", random.IntN(10_000))
				}
				return tx.Tasks().Save(before, &task)
			}
		}
		for n := range 200 {
			failing := random.IntN(5) == 0
			err := db.Write(t.Context(), func(tx *store.Tx) error {
				if err := errors.Join(change(tx), change(tx)); err != nil || !failing {
					return err
				}
				return context.Canceled
			})
			if failing {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.NoError(t, err)
			}
			if n == 150 {
				require.NoError(t, db.Close())
				again, err := store.Open(t.Context(), db.Options)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, again.Close()) })
				db = &storetest.DB{Store: again, Options: db.Options, Clock: db.Clock}
			}
			for _, agent := range agents {
				for _, limit := range []int{2, 100} {
					var want []models.InboxMessage
					write(t, db, func(tx *store.Tx) (err error) {
						want, err = tx.Inbox().List(agent, limit)
						return err
					})
					got, err := db.Inbox(t.Context()).List(agent, limit)
					require.NoError(t, err)
					require.Len(t, got, len(want))
					for i := range want {
						require.Equal(t, want[i], got[i])
					}
				}
			}
		}
	})
}

func TestAMessage(t *testing.T) {
	t.Parallel()

	rule(t, "IsProcessedOnceByEachAgent", func(t *testing.T, db *storetest.DB) {
		const callers = 16
		fresh := make(chan bool, callers)
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				var first bool
				err := db.Write(context.Background(), func(tx *store.Tx) (err error) {
					first, err = tx.Inbox().MarkProcessed("finance", "m1")
					return err
				})
				fresh <- first && err == nil
			})
		}
		all.Wait()
		n := 0
		for range callers {
			if <-fresh {
				n++
			}
		}
		require.Equal(t, 1, n)
		write(t, db, func(tx *store.Tx) error {
			for _, other := range []string{"health m1", "finance m2"} {
				agent, message, _ := strings.Cut(other, " ")
				first, err := tx.Inbox().MarkProcessed(agent, message)
				require.NoError(t, err)
				require.True(t, first, other)
			}
			return nil
		})
	})
}
