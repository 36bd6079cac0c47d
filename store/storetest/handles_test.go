package storetest_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestAgentNumbers(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		number := func(id string) (n int64, err error) {
			err = db.Write(t.Context(), func(tx *store.Tx) (err error) { n, err = tx.AgentNumber(id); return err })
			return n, err
		}
		insert(t, db, nova(db), orchestrator(db, "ada", 1), orchestrator(db, "bob", 2))
		_, err := db.AgentNumber(t.Context(), "ada")
		require.True(t, errs.Is(err, errs.NotFound))
		for range 2 { // the second time as the first
			n, err := number("bob")
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			n, err = number("ada")
			require.NoError(t, err)
			require.EqualValues(t, 2, n)
		}
		n, err := db.AgentNumber(t.Context(), "ada")
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		id, err := db.AgentOfNumber(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, "bob", id)
		_, err = db.AgentOfNumber(t.Context(), 3)
		require.True(t, errs.Is(err, errs.NotFound))
		_, err = number("nobody")
		require.True(t, errs.Is(err, errs.Conflict), err)
	})
}

// TestAgentNumbersOfMany are read at once; who has none is not among them.
func TestAgentNumbersOfMany(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		insert(t, db, nova(db), orchestrator(db, "ada", 1), orchestrator(db, "bob", 2), orchestrator(db, "eve", 3))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			_, err := tx.AgentNumber("bob")
			if err == nil {
				_, err = tx.AgentNumber("ada")
			}
			return err
		}))
		got, err := db.AgentNumbers(t.Context(), []string{"ada", "bob", "eve", "nobody"})
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"ada": 2, "bob": 1}, got)
		got, err = db.AgentNumbers(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

// TestAgentNumbersTogether: those that come at the same moment get the next numbers, each
// another one.
func TestAgentNumbersTogether(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		const agents = 16
		insert(t, db, nova(db))
		for n := range agents {
			insert(t, db, orchestrator(db, fmt.Sprint("agent-", n), 1))
		}
		got := make([][2]int64, agents)
		var all sync.WaitGroup
		for n := range agents {
			for twice := range 2 {
				all.Go(func() {
					_ = db.Write(t.Context(), func(tx *store.Tx) (err error) {
						got[n][twice], err = tx.AgentNumber(fmt.Sprint("agent-", n))
						return err
					})
				})
			}
		}
		all.Wait()
		seen := map[int64]bool{}
		for _, n := range got {
			require.Equal(t, n[0], n[1])
			require.Positive(t, n[0])
			require.LessOrEqual(t, n[0], int64(agents))
			seen[n[0]] = true
		}
		require.Len(t, seen, agents)
	})
}

func TestHandles(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		write := func(fn func(tx *store.Tx) error) { t.Helper(); require.NoError(t, db.Write(t.Context(), fn)) }
		task := func(session string) string {
			id := uuid.NewString()
			now := db.Now()
			write(func(tx *store.Tx) error {
				return tx.InsertTask(models.Task{
					ID: id, SessionID: session, Class: "default", Owner: "o", QueueKey: "r", State: models.TaskNew, Deadline: now, CreatedAt: now, UpdatedAt: now, Version: 1,
				}, models.TaskInput{TaskID: id, Parameters: []byte("{}"), Policy: []byte("{}"), Meta: []byte("{}")})
			})
			return id
		}
		name := func(id, session string) (out models.ShortID) {
			write(func(tx *store.Tx) (err error) { out, err = tx.TaskShortID(id, session); return err })
			return out
		}
		now := db.Now()
		write(func(tx *store.Tx) error {
			return tx.InsertSession(models.Session{ID: "talk", Owner: "o", State: models.SessionOpen, Facts: []byte("{}"), CreatedAt: now, UpdatedAt: now})
		})
		first, second, alone := task("talk"), task("talk"), task("")
		require.Equal(t, models.ShortID{Context: 1, Task: 1}, name(first, "talk"))
		require.Equal(t, models.ShortID{Context: 1, Task: 2}, name(second, "talk"))
		require.Equal(t, models.ShortID{Context: 1, Task: 1}, name(first, "talk"), "for good")
		require.Equal(t, models.ShortID{Context: 2, Task: 1}, name(alone, ""))
		require.Equal(t, models.ShortID{Context: 3, Task: 1}, name(task(""), ""), "each that is in none is by itself")

		got, err := db.TaskShortID(t.Context(), second)
		require.NoError(t, err)
		require.Equal(t, models.ShortID{Context: 1, Task: 2}, got)
		id, err := db.TaskByShortID(t.Context(), got)
		require.NoError(t, err)
		require.Equal(t, second, id)
		_, err = db.TaskByShortID(t.Context(), models.ShortID{Context: 1, Task: 3})
		require.True(t, errs.Is(err, errs.NotFound))
		_, err = db.TaskShortID(t.Context(), "nothing")
		require.True(t, errs.Is(err, errs.NotFound))
		session, err := db.SessionOfContext(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, "talk", session)
		session, err = db.SessionOfContext(t.Context(), 2)
		require.NoError(t, err)
		require.Empty(t, session)
		_, err = db.SessionOfContext(t.Context(), 4)
		require.True(t, errs.Is(err, errs.NotFound))
		third := name(task("talk"), "talk")
		require.Equal(t, int64(1), third.Context)

		// The 1,000th of a session begins another context.
		for n := third.Task; n < models.MaxContextTasks; n++ {
			name(task("talk"), "talk")
		}
		require.Equal(t, models.ShortID{Context: 4, Task: 1}, name(task("talk"), "talk"))
		require.Equal(t, models.ShortID{Context: 4, Task: 2}, name(task("talk"), "talk"))

		// Whoever brings a number has it where it is free, and who comes behind gets the next.
		write(func(tx *store.Tx) error { return tx.NameContext(2, "") })
		n := int64(0)
		write(func(tx *store.Tx) (err error) { n, err = tx.OpenContext("other"); return err })
		require.EqualValues(t, 5, n)
		own := task("other")
		write(func(tx *store.Tx) error { return tx.ClaimShortID(own, models.ShortID{Context: n, Task: 7}) })
		require.Equal(t, models.ShortID{Context: n, Task: 7}, name(own, "other"))
		require.Equal(t, models.ShortID{Context: n, Task: 8}, name(task("other"), "other"))
		taken := task("other")
		err = db.Write(t.Context(), func(tx *store.Tx) error { return tx.ClaimShortID(taken, models.ShortID{Context: n, Task: 7}) })
		require.True(t, errs.Is(err, errs.Conflict), err)

		// A context is forgotten with its session and its tasks.
		purge := func(before time.Time) (n int64) {
			write(func(tx *store.Tx) (err error) { n, err = tx.PurgeContexts(before, 100); return err })
			return n
		}
		require.Zero(t, purge(db.Now().Add(time.Hour)), "all have a task, or a session")
		write(func(tx *store.Tx) (err error) { n, err = tx.OpenContext("gone"); return err })
		write(func(tx *store.Tx) error { return tx.ClaimShortID("gone too", models.ShortID{Context: n, Task: 1}) })
		require.Zero(t, purge(db.Now().Add(time.Hour)), "the newest keeps its number from being given again")
		write(func(tx *store.Tx) error { _, err := tx.OpenContext(""); return err })
		require.Zero(t, purge(db.Now()), "it is too new")
		require.EqualValues(t, 1, purge(db.Now().Add(time.Hour)))
		_, err = db.TaskByShortID(t.Context(), models.ShortID{Context: n, Task: 1})
		require.True(t, errs.Is(err, errs.NotFound))
	})
}
