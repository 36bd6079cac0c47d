package registry_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/internal/registry/roster"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// chainChange is a change on which decisions of the ledger depend.
type chainChange struct {
	name string
	make func(ctx context.Context, r *registry.Registry) error
}

func chainChanges(t *testing.T) []chainChange {
	t.Helper()
	patch := func(p registry.AgentPatch) func(context.Context, *registry.Registry) error {
		return func(ctx context.Context, r *registry.Registry) error {
			_, err := r.Update(ctx, admin(), "help", p, nil)
			return err
		}
	}
	doc, found := parse(t, document(entry("help", 3, "next", "budget_scope: subtree, token_budget: 4000")))
	return []chainChange{
		{"AnotherBudgetScope", patch(registry.AgentPatch{BudgetScope: models.Some(models.ScopeSubtree)})},
		{"AnotherParent", patch(registry.AgentPatch{ParentID: models.Some("next")})},
		{"AnotherBudget", patch(registry.AgentPatch{TokenBudget: models.Some(int64(4000))})},
		{"APatchThatDeactivates", patch(registry.AgentPatch{IsActive: models.Some(false)})},
		{"ADeactivation", func(ctx context.Context, r *registry.Registry) error { return r.Deactivate(ctx, admin(), "help", nil) }},
		{"ARestoration", func(ctx context.Context, r *registry.Registry) error {
			_, err := r.Update(ctx, admin(), "rest", registry.AgentPatch{IsActive: models.Some(true)}, nil)
			return err
		}},
		{"AnImport", func(ctx context.Context, r *registry.Registry) error {
			_, err := r.Import(ctx, admin(), doc, found, false, nil)
			return err
		}},
	}
}

// family has an agent with everything the changes are about.
func family(t *testing.T, f *fixture) {
	t.Helper()
	f.create(t, specialist("spec", "orch-social"), specialist("next", "orch-business"), assistant("help", "spec"), assistant("rest", "spec"))
	f.deactivate(t, "rest")
}

// TestChangesOfChainsWait holds a decision of the ledger open and proves of each
// change that it waits for the decision's end, and that meanwhile it holds no agent
// that the decision, or any other, may need. SQLite has one writer, so
// nothing overlaps there.
func TestChangesOfChainsWait(t *testing.T) {
	t.Parallel()
	for _, c := range chainChanges(t) {
		onPostgres(t, c.name, func(t *testing.T, f *fixture) {
			family(t, f)
			before := f.all(t)
			end := f.decide(t)
			change := make(chan error, 1)
			go func() { change <- c.make(context.Background(), f.Registry) }()
			f.requireWaiting(t, 1, change)
			probe := make(chan error, 1)
			go func() { probe <- f.db.Write(context.Background(), lockFamily) }()
			f.requireWaiting(t, 2, probe)
			require.Len(t, probe, 1, "the change waits with an agent in its hands")
			require.NoError(t, <-probe)
			require.Empty(t, change, "the change has not waited")
			require.Equal(t, before, f.all(t))
			end()
			require.NoError(t, <-change)
			require.NotEqual(t, before, f.all(t))
		})
	}

	for name, p := range map[string]registry.AgentPatch{
		"AName": {Name: models.Some("New")}, "ADescription": {Description: models.Some("text")}, "ACapability": {Capabilities: models.Some([]string{"email"})},
	} {
		onPostgres(t, name+"DoesNot", func(t *testing.T, f *fixture) {
			family(t, f)
			end := f.decide(t)
			require.NoError(t, f.patch(t, "help", p))
			_, err := f.Create(t.Context(), writer(), assistant("fresh", "spec"), nil)
			require.NoError(t, err, "a new agent is on no chain yet")
			end()
		})
	}
}

// decide begins a decision of the ledger; end lets it commit.
func (f *fixture) decide(t *testing.T) (end func()) {
	t.Helper()
	deciding, release, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	unblock := sync.OnceFunc(func() { close(release) })
	t.Cleanup(unblock)
	go func() {
		result <- f.db.Write(context.Background(), func(tx *store.Tx) error {
			err := tx.Agents().ShareChains()
			close(deciding)
			<-release
			return err
		})
	}()
	<-deciding
	return func() { unblock(); require.NoError(t, <-result) }
}

// lockFamily locks the agents in the order in which agents are locked.
func lockFamily(tx *store.Tx) error {
	for _, id := range []string{"help", "rest", "next", "spec", "orch-business", "orch-social"} {
		if _, err := tx.Agents().Lock(id); err != nil {
			return err
		}
	}
	return nil
}

// requireWaiting returns once so many sessions wait for a lock, or the result is there.
func (f *fixture) requireWaiting(t *testing.T, sessions int, result chan error) {
	t.Helper()
	watch := connect(t, f.db)
	require.Eventually(t, func() bool {
		var waiting int
		err := watch.QueryRowContext(context.Background(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting)
		return err == nil && (waiting >= sessions || len(result) > 0)
	}, time.Minute, 5*time.Millisecond)
}

// onPostgres runs a case on the database whose transactions overlap.
func onPostgres(t *testing.T, name string, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	for _, database := range storetest.Databases() {
		if database == "postgres" {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				fn(t, setup(t, storetest.Open(t, database), nil))
			})
		}
	}
}

func connect(t *testing.T, db *storetest.DB) *sql.DB {
	t.Helper()
	conn, err := sql.Open("pgx", db.Options.DatabaseURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestTheLedgerAndTheRegistryNeverLockEachOtherOut runs transactions with the locks of the
// ledger concurrently with every change of the agents they depend on. The store would repeat
// the victim of a deadlock, so the test reads the number of deadlocks from the database.
func TestTheLedgerAndTheRegistryNeverLockEachOtherOut(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
		family(t, setup(t, db, nil))
		s, done := replica(t, db)
		reg := registry.New(s, nil)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range scaled(80) {
					if err := s.Write(t.Context(), charge); err != nil {
						t.Errorf("a charge: %v", err)
					}
				}
			})
		}
		for i := range uint64(4) {
			g := newGenerator(7, i)
			wg.Go(func() {
				for range scaled(80) {
					if err := changeChains(t.Context(), reg, g); err != nil && !errs.Is(err, errs.ParentInactive) && !errs.Is(err, errs.ActiveChildren) {
						t.Errorf("a change: %v", err)
					}
				}
			})
		}
		wg.Wait()
		require.Empty(t, (&fixture{reg, db}).snapshot(t).broken())
		done()
	})
}

// replica opens the database once more where it can be. done closes it and proves
// that its sessions have met no deadlock.
func replica(t *testing.T, db *storetest.DB) (s *store.Store, done func()) {
	t.Helper()
	if db.Options.DatabaseURL == "" {
		return db.Store, func() {}
	}
	s, err := store.Open(t.Context(), db.Options)
	require.NoError(t, err)
	watch := connect(t, db)
	return s, func() {
		require.NoError(t, s.Close()) // a session hands its figures over when it ends
		require.NoError(t, db.Close())
		var others, deadlocks int
		require.Eventually(t, func() bool {
			err := watch.QueryRowContext(context.Background(), `SELECT deadlocks, (SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid()) FROM pg_stat_database WHERE datname = current_database()`).
				Scan(&deadlocks, &others)
			return err == nil && others == 0
		}, time.Minute, 5*time.Millisecond)
		require.Zero(t, deadlocks)
	}
}

// charge locks and writes as the ledger does for a charge of help.
func charge(tx *store.Tx) error {
	if err := tx.Agents().ShareChains(); err != nil {
		return err
	}
	spenders, err := tx.Ledger().Spenders([]string{"help"})
	if err != nil {
		return err
	}
	path := store.Path(spenders, "help")
	chain := strings.Split(path, "/")
	links := make([]store.Spender, 0, len(chain))
	for _, id := range chain {
		links = append(links, spenders[id])
	}
	if _, err := tx.Ledger().CreateAccounts(links); err != nil {
		return err
	}
	accounts, err := tx.Ledger().LockAccounts(chain)
	if err != nil {
		return err
	}
	saved := make([]store.Account, 0, len(accounts))
	for id, a := range accounts {
		a.Subtree = spenders[id].BudgetScope == models.ScopeSubtree
		a.SubtreeUsed += 5
		saved = append(saved, a)
	}
	return errors.Join(
		tx.Ledger().SaveAccounts(saved),
		storetest.AddUsage(tx, "help", path, tx.Now(), 5),
		tx.Agents().AddOutcomes([]store.OutcomeRow{{AgentID: "help", SessionID: "s", Status: "success", At: tx.Now()}}),
	)
}

// changeChains makes one random change.
func changeChains(ctx context.Context, r *registry.Registry, g generator) error {
	id := []string{"help", "spec", "next", "orch-social"}[g.IntN(4)]
	scope := []models.BudgetScope{models.ScopeOwn, models.ScopeSubtree}[g.IntN(2)]
	p := registry.AgentPatch{BudgetScope: models.Some(scope)}
	switch n := g.IntN(6); {
	case n == 0:
		p = registry.AgentPatch{Name: models.Some("Agent " + string(scope))}
	case n == 1 && id == "help":
		return r.Deactivate(ctx, admin(), id, nil)
	case n == 2 && id == "help":
		p = registry.AgentPatch{ParentID: models.Some([]string{"spec", "next"}[g.IntN(2)]), IsActive: models.Some(true)}
	case n == 3:
		p = registry.AgentPatch{TokenBudget: models.Some(1000 + g.Int64N(40_000))}
	case n == 4:
		entries := []rosterEntry{{AgentDraft: assistant("help", []string{"spec", "next"}[g.IntN(2)])}, {AgentDraft: specialist("spec", "orch-social")}}
		entries[0].BudgetScope = p.BudgetScope
		doc, found := roster.Parse([]byte(render(entries).text), input.YAML)
		_, err := r.Import(ctx, admin(), doc, found, false, nil)
		return err
	}
	_, err := r.Update(ctx, admin(), id, p, nil)
	return err
}
