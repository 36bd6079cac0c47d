package shortid_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/protocol/v5/shortid"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// fixture is a database whose clock the test advances.
type fixture struct{ *storetest.DB }

func (f fixture) write(t *testing.T, fn func(tx *store.Tx) error) {
	t.Helper()
	require.NoError(t, f.Write(t.Context(), fn))
}

// task inserts a task of an owner, in a session or, with "", in none.
func (f fixture) task(t *testing.T, owner, session string) string {
	t.Helper()
	id, now := uuid.NewString(), f.Now()
	f.write(t, func(tx *store.Tx) error {
		return tx.Tasks().Insert(models.Task{
			ID: id, SessionID: session, Class: "default", Owner: owner, QueueKey: "r", State: models.TaskNew, Deadline: now, CreatedAt: now, UpdatedAt: now, Version: 1,
		}, models.TaskInput{TaskID: id, Parameters: []byte("{}"), Policy: []byte("{}"), Meta: []byte("{}")}, store.TaskRequest{})
	})
	return id
}

func (f fixture) session(t *testing.T, id string) {
	t.Helper()
	now := f.Now()
	f.write(t, func(tx *store.Tx) error {
		return tx.Sessions().Insert(models.Session{ID: id, Owner: "o", State: models.SessionOpen, Facts: []byte("{}"), CreatedAt: now, UpdatedAt: now})
	})
}

// openSession opens a session in a context of its own, and returns the number of the context.
func (f fixture) openSession(t *testing.T) (n int64) {
	t.Helper()
	f.write(t, func(tx *store.Tx) (err error) {
		id, err := shortid.OpenSession(tx, func(int64) int { return 1 })
		n = id.Context
		return err
	})
	f.session(t, shortid.ContextName(n))
	return n
}

func (f fixture) idOf(t *testing.T, taskID, session string) shortid.ID {
	t.Helper()
	id, err := shortid.NewCache(f.Store).OfTask(t.Context(), taskID, session)
	require.NoError(t, err)
	return id
}

func TestShortIDs(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "the tasks of a session are numbered in its context", func(t *testing.T, f fixture) {
		f.session(t, "talk")
		first, second, alone := f.task(t, "o", "talk"), f.task(t, "o", "talk"), f.task(t, "o", "")
		require.Equal(t, shortid.ID{Context: 1, Task: 1}, f.idOf(t, first, "talk"))
		require.Equal(t, shortid.ID{Context: 1, Task: 2}, f.idOf(t, second, "talk"))
		require.Equal(t, shortid.ID{Context: 1, Task: 1}, f.idOf(t, first, "talk"), "it never changes")
		require.Equal(t, shortid.ID{Context: 2, Task: 1}, f.idOf(t, alone, ""))
		require.Equal(t, shortid.ID{Context: 3, Task: 1}, f.idOf(t, f.task(t, "o", ""), ""), "a task without a session has a context of its own")

		got, err := shortid.Find(t.Context(), f.Store, second)
		require.NoError(t, err)
		require.Equal(t, shortid.ID{Context: 1, Task: 2}, got)
		id, err := shortid.NewCache(f.Store).TaskID(t.Context(), got)
		require.NoError(t, err)
		require.Equal(t, second, id)
		_, err = shortid.NewCache(f.Store).TaskID(t.Context(), shortid.ID{Context: 1, Task: 3})
		require.True(t, errs.Is(err, errs.NotFound))
		_, err = shortid.Find(t.Context(), f.Store, "unknown")
		require.True(t, errs.Is(err, errs.NotFound))
		session, err := shortid.SessionID(t.Context(), f.Store, 1)
		require.NoError(t, err)
		require.Equal(t, "talk", session)
		session, err = shortid.SessionID(t.Context(), f.Store, 2)
		require.NoError(t, err)
		require.Empty(t, session)
		_, err = shortid.SessionID(t.Context(), f.Store, 4)
		require.True(t, errs.Is(err, errs.NotFound))
	})

	testOnDatabases(t, "a session with more tasks than a context has several", func(t *testing.T, f fixture) {
		f.session(t, "talk")
		for n := range shortid.MaxTask {
			require.Equal(t, shortid.ID{Context: 1, Task: n + 1}, f.idOf(t, uuid.NewString(), "talk"))
		}
		require.Equal(t, shortid.ID{Context: 2, Task: 1}, f.idOf(t, uuid.NewString(), "talk"))
		require.Equal(t, shortid.ID{Context: 2, Task: 2}, f.idOf(t, uuid.NewString(), "talk"))
	})

	testOnDatabases(t, "a claimed number is followed by the next one", func(t *testing.T, f fixture) {
		n := f.openSession(t)
		session, err := shortid.SessionID(t.Context(), f.Store, n)
		require.NoError(t, err)
		require.Equal(t, shortid.ContextName(n), session)
		own := f.task(t, "o", session)
		f.write(t, func(tx *store.Tx) error { return shortid.Claim(tx, own, shortid.ID{Context: n, Task: 7}) })
		require.Equal(t, shortid.ID{Context: n, Task: 7}, f.idOf(t, own, session))
		require.Equal(t, shortid.ID{Context: n, Task: 8}, f.idOf(t, f.task(t, "o", session), session))
		taken := f.task(t, "o", session)
		err = f.Write(t.Context(), func(tx *store.Tx) error { return shortid.Claim(tx, taken, shortid.ID{Context: n, Task: 7}) })
		require.True(t, errs.Is(err, errs.Conflict), err)
	})

	testOnDatabases(t, "transactions do not wait for each other's new contexts", func(t *testing.T, f fixture) {
		if f.Store.Alone() {
			return // there is one writer
		}
		open := func(tx *store.Tx) (shortid.ID, error) {
			if _, err := tx.Exec("SET LOCAL lock_timeout = '1ms'"); err != nil {
				return shortid.ID{}, err
			}
			return shortid.OpenSession(tx, func(int64) int { return 1 })
		}
		f.write(t, func(tx *store.Tx) error {
			first, err := open(tx)
			require.NoError(t, err)
			f.write(t, func(other *store.Tx) error { // while the first context is not committed
				second, err := open(other)
				require.NoError(t, err)
				require.NotEqual(t, first.Context, second.Context)
				return nil
			})
			return nil
		})
	})

	testOnDatabases(t, "a context is deleted after its session and tasks", func(t *testing.T, f fixture) {
		f.idOf(t, f.task(t, "o", ""), "")
		f.openSession(t)
		purge := func(before time.Time) (n int64) {
			f.write(t, func(tx *store.Tx) (err error) { n, err = shortid.Purge(tx, before, 100); return err })
			return n
		}
		require.Zero(t, purge(f.Now().Add(time.Hour)), "each has a task or a session")
		deleted := f.idOf(t, "deleted", "")
		require.Zero(t, purge(f.Now().Add(time.Hour)), "the newest stays, so that its number is not used twice")
		f.idOf(t, "newest", "")
		require.Zero(t, purge(f.Now()), "it is too new")
		require.EqualValues(t, 1, purge(f.Now().Add(time.Hour)))
		_, err := shortid.NewCache(f.Store).TaskID(t.Context(), deleted)
		require.True(t, errs.Is(err, errs.NotFound))
	})

	testOnDatabases(t, "tasks are found by number, the newest of the owner first", func(t *testing.T, f fixture) {
		tasks := map[string]string{}
		for _, c := range []struct {
			name, owner string
			id          shortid.ID
		}{{"a", "mine", shortid.ID{Context: 1, Task: 1}}, {"b", "mine", shortid.ID{Context: 2, Task: 1}}, {"c", "mine", shortid.ID{Context: 2, Task: 2}}, {"d", "others", shortid.ID{Context: 3, Task: 1}}} {
			f.Clock.Advance(time.Second)
			tasks[c.name] = f.task(t, c.owner, "")
			if c.id.Task == 1 {
				require.Equal(t, c.id, f.idOf(t, tasks[c.name], ""))
				continue
			}
			f.write(t, func(tx *store.Tx) error { return shortid.Claim(tx, tasks[c.name], c.id) })
		}
		for _, c := range []struct {
			owner         string
			number, limit int
			want          []string
		}{
			{"mine", 1, 9, []string{tasks["b"], tasks["a"]}}, {"mine", 1, 1, []string{tasks["b"]}}, {"mine", 2, 9, []string{tasks["c"]}},
			{"mine", 3, 9, []string{}}, {"others", 1, 9, []string{tasks["d"]}}, {"unknown", 1, 9, []string{}},
		} {
			got, err := shortid.TaskIDsByNumber(t.Context(), f.Store, c.owner, c.number, c.limit)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		}
	})
}

// testOnDatabases runs a subtest on a fresh database of every kind.
func testOnDatabases(t *testing.T, name string, fn func(t *testing.T, f fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, fixture{db}) })
	})
}
