package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestWriteStoresNothingOfAClosureThat(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		fail func(*store.Tx) error
		want func(t *testing.T, err error)
	}{
		"ReturnsAnError": {
			func(*store.Tx) error { return errStop },
			func(t *testing.T, err error) { require.ErrorIs(t, err, errStop) },
		},
		"Panics": {
			func(*store.Tx) error { panic("boom") },
			func(t *testing.T, err error) {
				require.Equal(t, errs.Internal, errs.CodeOf(err))
				require.ErrorContains(t, err, "boom")
			},
		},
		"EndsItsGoroutine": {
			func(*store.Tx) error { runtime.Goexit(); return nil },
			func(t *testing.T, err error) { require.Equal(t, errs.Internal, errs.CodeOf(err)) },
		},
		"BreaksARule": {
			func(tx *store.Tx) error { return storetest.AddUsage(tx, "missing", "x", tx.Now(), 1) },
			func(t *testing.T, err error) { require.Equal(t, errs.Conflict, errs.CodeOf(err)) },
		},
		"SwallowsAStatementsError": {
			func(tx *store.Tx) error { _ = storetest.AddUsage(tx, "missing", "x", tx.Now(), 1); return nil },
			func(t *testing.T, err error) { require.Equal(t, errs.Conflict, errs.CodeOf(err)) },
		},
		"SwallowsAnErrorOfTheObjectMapper": {
			func(tx *store.Tx) error {
				_ = tx.Tokens().Save(models.Token{ID: "x", AgentID: new("missing")})
				return nil
			},
			func(t *testing.T, err error) { require.Equal(t, errs.Conflict, errs.CodeOf(err)) },
		},
		"WritesOnAfterAFailedStatement": {
			func(tx *store.Tx) error {
				_ = storetest.AddUsage(tx, "missing", "x", tx.Now(), 1)
				return tx.Events().Emit("x", "x", nil)
			},
			func(t *testing.T, err error) { require.Error(t, err) },
		},
	}
	for name, c := range cases {
		rule(t, name, func(t *testing.T, db *storetest.DB) {
			smallTree(t, db)
			err := db.Write(t.Context(), func(tx *store.Tx) error {
				if err := tx.Agents().Insert(assistant(db, "broken", "finance")); err != nil {
					return err
				}
				if err := tx.Events().Emit(events.AgentCreated, "broken", nil); err != nil {
					return err
				}
				if _, err := tx.Jobs().Enqueue(store.Job{Kind: "work"}); err != nil {
					return err
				}
				return c.fail(tx)
			})
			c.want(t, err)
			requireAgent(t, db, "broken", false)
			require.Zero(t, effects(t, db))
			require.Empty(t, claim(t, db, 10))
			insert(t, db, assistant(db, "next", "finance")) // and the store works on
		})
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()

	rule(t, "DoesNotStartUnderAnEndedContext", func(t *testing.T, db *storetest.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ran := false
		err := db.Write(ctx, func(*store.Tx) error { ran = true; return nil })
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, ran)
	})

	rule(t, "IsNotCutOffOnceItHasStarted", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, db.Write(ctx, func(tx *store.Tx) error {
			cancel()
			return tx.Agents().Insert(assistant(db, "whole", "finance"))
		}))
		requireAgent(t, db, "whole", true)
	})

	rule(t, "HasOneTimeForEverythingItWrites", func(t *testing.T, db *storetest.DB) {
		write(t, db, func(tx *store.Tx) error {
			before := tx.Now()
			db.Clock.Advance(1)
			require.Equal(t, before, tx.Now())
			require.Equal(t, "UTC", before.Location().String())
			return nil
		})
	})

	rule(t, "MakesItsTransactionUnusableAfterwards", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		var leaked *store.Tx
		write(t, db, func(tx *store.Tx) error { leaked = tx; return nil })
		require.Error(t, leaked.Agents().Insert(assistant(db, "ghost", "finance")))
		require.Error(t, leaked.Tokens().Save(token(db, "ghost")))
		requireAgent(t, db, "ghost", false)
	})

	rule(t, "RunsAgainAfterADeadlockThatTheCommitReports", func(t *testing.T, db *storetest.DB) {
		if db.Alone() {
			return // SQLite has one writer
		}
		runs := 0
		write(t, db, func(tx *store.Tx) error {
			if runs++; runs > 1 {
				return tx.Events().Emit("x", "x", nil)
			}
			return tx.Run("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'deadlock_detected'; END $$")
		})
		require.Equal(t, 2, runs)
	})

	rule(t, "IsolatesConcurrentWriters", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		const writers, rounds = 8, 12
		var mu sync.Mutex
		acknowledged := map[string]bool{}
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range rounds {
					id := fmt.Sprintf("agent-%d-%d", w, i)
					err := db.Write(context.Background(), misbehave(db, id, (w+i)%5))
					mu.Lock()
					acknowledged[id] = err == nil
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Len(t, acknowledged, writers*rounds)
		for id, want := range acknowledged {
			requireAgent(t, db, id, want)
		}
	})

	rule(t, "IsDurable", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		first, err := store.Open(t.Context(), db.Options)
		require.NoError(t, err)
		require.NoError(t, first.Write(t.Context(), func(tx *store.Tx) error {
			return errors.Join(tx.Agents().Insert(assistant(db, "durable", "finance")), tx.Events().Emit("x", "durable", nil))
		}))
		require.NoError(t, first.Close())
		require.Error(t, first.Write(t.Context(), func(*store.Tx) error { return nil }), "a closed store takes no writes")
		second, err := store.Open(t.Context(), db.Options)
		require.NoError(t, err)
		defer func() { require.NoError(t, second.Close()) }()
		got, err := second.Agents(t.Context()).Get("durable")
		require.NoError(t, err)
		require.Equal(t, assistant(db, "durable", "finance"), got)
		waiting, err := second.Events(t.Context()).Pending()
		require.NoError(t, err)
		require.True(t, waiting)
	})
}

// misbehave is an insert that fails in one of several ways after its statement.
func misbehave(db *storetest.DB, id string, how int) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		if err := tx.Agents().Insert(assistant(db, id, "finance")); err != nil {
			return err
		}
		switch how {
		case 1:
			return errStop
		case 2:
			panic("boom")
		case 3:
			_ = storetest.AddUsage(tx, "missing", "x", tx.Now(), 1)
		}
		return nil
	}
}

// TestStatementsOfTheObjectMapperReturnTheirErrors checks that they return their own errors, unlike statements of Run, whose
// errors the commit may return.
func TestStatementsOfTheObjectMapperReturnTheirErrors(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]func(*store.Tx) error{
		"Create": func(tx *store.Tx) error {
			return tx.Ledger().InsertAddition(models.BudgetAddition{ID: "x", AgentID: "missing"})
		},
		"Update": func(tx *store.Tx) error { return tx.Tokens().Save(models.Token{ID: "x", AgentID: new("missing")}) },
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T, db *storetest.DB) {
				require.ErrorIs(t, db.Write(t.Context(), func(tx *store.Tx) error {
					require.Equal(t, errs.Conflict, errs.CodeOf(statement(tx)))
					return errStop
				}), errStop)
			})
		})
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	rule(t, "EndWithTheirContext", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		reads := map[string]func() error{
			"Agent":          func() error { _, err := db.Agents(ctx).Get("nova"); return err },
			"AgentDetail":    func() error { _, err := db.Agents(ctx).Detail("nova", db.Now()); return err },
			"Agents":         func() error { _, err := db.Agents(ctx).List(store.AgentQuery{Limit: 1}); return err },
			"Ancestors":      func() error { _, err := db.Agents(ctx).Ancestors("nova"); return err },
			"Subtree":        func() error { _, err := db.Agents(ctx).Subtree("nova", 1, false, 100); return err },
			"EachAgent":      func() error { return db.Agents(ctx).Each(func(models.Agent) error { return nil }) },
			"AuditTrail":     func() error { _, err := db.Agents(ctx).AuditTrail("nova", 0, 1); return err },
			"Token":          func() error { _, err := db.Tokens(ctx).Get("x"); return err },
			"TokenByHash":    func() error { _, _, err := db.Tokens(ctx).ByHash([32]byte{}); return err },
			"Tokens":         func() error { _, err := db.Tokens(ctx).List("", "", 1); return err },
			"Events.After":   func() error { _, err := db.Events(ctx).After(0, 1); return err },
			"Events.Pending": func() error { _, err := db.Events(ctx).Pending(); return err },
			"LastPosition":   func() error { _, err := db.Events(ctx).LastPosition(); return err },
			"Jobs.NextAt":    func() error { _, _, err := db.Jobs(ctx).NextAt([]string{"x"}); return err },
			"Jobs.OtherDue":  func() error { _, _, err := db.Jobs(ctx).OtherDue(nil); return err },
			"Ping":           func() error { return db.Ping(ctx) },
		}
		for name, read := range reads {
			require.ErrorIs(t, read(), context.Canceled, name)
		}
		require.NoError(t, db.Ping(t.Context()))
	})
}
