package storetest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestInsertAgent(t *testing.T) {
	t.Parallel()

	rule(t, "KeepsEveryField", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		a := assistant(db, "everything", "finance")
		a.Name, a.Description = "Économie «日本» 🦊", "línea 1\nline 2\t%_'\";--\\"
		a.Type, a.Capabilities = "research", []string{"zeta", "custom:alpha", "<b>&\"quoted\"\\", "plan"}
		a.TokenBudget, a.BudgetScope, a.SphereID = new(int64(50_000)), models.ScopeSubtree, new(9)
		a.IsActive, a.Version = false, 7
		a.CreatedAt = time.Date(2024, 2, 29, 23, 59, 59, 999_999_000, time.UTC)
		a.UpdatedAt = a.CreatedAt.Add(time.Microsecond)
		insert(t, db, a)
		got, err := db.Agents(t.Context()).Get("everything")
		require.NoError(t, err)
		require.Equal(t, a, got)
	})

	rule(t, "StoresNulls", func(t *testing.T, db *storetest.DB) {
		insert(t, db, nova(db))
		got, err := db.Agents(t.Context()).Get(models.RootAgentID)
		require.NoError(t, err)
		require.Equal(t, nova(db), got)
		require.Nil(t, got.ParentID)
		require.Nil(t, got.SphereID)
		require.Nil(t, got.TokenBudget)
		require.NotNil(t, got.Capabilities)
	})

	rule(t, "ReturnsAnEmptyListForNoCapabilities", func(t *testing.T, db *storetest.DB) {
		a := nova(db)
		a.Capabilities = nil
		insert(t, db, a)
		got, err := db.Agents(t.Context()).Get(models.RootAgentID)
		require.NoError(t, err)
		require.Equal(t, []string{}, got.Capabilities)
	})

	rule(t, "HasTheBudgetScopeOwnByDefault", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		a := assistant(db, "unsaid", "finance")
		a.BudgetScope = ""
		insert(t, db, a)
		got, err := db.Agents(t.Context()).Get("unsaid")
		require.NoError(t, err)
		require.Equal(t, models.ScopeOwn, got.BudgetScope)
	})

	rule(t, "RefusesATakenID", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		other := assistant(db, "finance", "health")
		other.Name = "another"
		require.Equal(t, errs.AgentExists, tryInsert(db, other))
		got, err := db.Agents(t.Context()).Get("finance")
		require.NoError(t, err)
		require.Equal(t, specialist(db, "finance", "orch-a"), got, "the first one stays")
	})

	rule(t, "RefusesViolationsOfTheSchema", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		for name, change := range map[string]func(*models.Agent){
			"an unknown parent":             func(a *models.Agent) { a.ParentID = new("missing") },
			"no parent":                     func(a *models.Agent) { a.ParentID = nil },
			"no sphere":                     func(a *models.Agent) { a.SphereID = nil },
			"sphere 10":                     func(a *models.Agent) { a.SphereID = new(10) },
			"no budget":                     func(a *models.Agent) { a.TokenBudget = nil },
			"another budget scope":          func(a *models.Agent) { a.BudgetScope = "everything" },
			"a frequency of another level":  func(a *models.Agent) { a.FrequencyHz = 555 },
			"level 4":                       func(a *models.Agent) { a.Level = 4 },
			"a second root":                 func(a *models.Agent) { *a = nova(db); a.ID = "nova-2" },
			"a parent for the only L0":      func(a *models.Agent) { *a = nova(db); a.ID, a.ParentID = "nova-3", new("nova") },
			"an L2 frequency in the middle": func(a *models.Agent) { a.Level, a.FrequencyHz = 2, 600 },
		} {
			a := assistant(db, "odd", "finance")
			change(&a)
			require.Equal(t, errs.Conflict, tryInsert(db, a), name)
			requireAgent(t, db, a.ID, false)
		}
	})
}

func TestUpdateAgent(t *testing.T) {
	t.Parallel()

	rule(t, "ChangesEveryMutableField", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		want := assistant(db, "bills", "health")
		want.Name, want.Description, want.Type = "Bills", "pays", "infra"
		want.SphereID, want.TokenBudget, want.BudgetScope = new(4), new(int64(1000)), models.ScopeSubtree
		want.Capabilities, want.IsActive, want.Version = []string{"email"}, false, 2
		want.UpdatedAt = db.Now().Add(time.Hour)
		update(t, db, want)
		got, err := db.Agents(t.Context()).Get("bills")
		require.NoError(t, err)
		require.Equal(t, want, got)
	})

	rule(t, "DoesNotChangeImmutableFields", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		changed := assistant(db, "bills", "finance")
		changed.Level, changed.FrequencyHz, changed.CreatedAt = 2, 555, db.Now().Add(time.Hour)
		update(t, db, changed)
		got, err := db.Agents(t.Context()).Get("bills")
		require.NoError(t, err)
		require.Equal(t, assistant(db, "bills", "finance"), got)
	})

	rule(t, "ClearsTheRollUpWithAnotherBudgetScope", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		rolledUp := func(ids ...string) (out map[string]bool) {
			t.Helper()
			out = map[string]bool{}
			write(t, db, func(tx *store.Tx) error {
				accounts, err := tx.Ledger().LockAccounts(ids)
				for id, a := range accounts {
					require.EqualValues(t, 70, a.SubtreeUsed, "the sums are the ledger's to replace")
					require.EqualValues(t, 7, a.Used)
					out[id] = a.Subtree
				}
				return err
			})
			return out
		}
		write(t, db, func(tx *store.Tx) error {
			var accounts []store.Account
			for _, id := range []string{"finance", "health"} {
				accounts = append(accounts, store.Account{AgentID: id, Level: 2, Day: 20_463, Used: 7, Subtree: true, SubtreeUsed: 70})
			}
			return tx.Ledger().SaveAccounts(accounts)
		})

		a := specialist(db, "finance", "orch-b")
		a.Name, a.TokenBudget, a.IsActive = "renamed", new(int64(9000)), false
		update(t, db, a)
		require.Equal(t, map[string]bool{"finance": true, "health": true}, rolledUp("finance", "health"), "the scope is as it was")
		for _, scope := range []models.BudgetScope{models.ScopeSubtree, models.ScopeOwn} {
			a.BudgetScope = scope
			update(t, db, a)
			require.Equal(t, map[string]bool{"finance": false, "health": true}, rolledUp("finance", "health"), "now it is %s", scope)
			write(t, db, func(tx *store.Tx) error {
				return tx.Ledger().SaveAccounts([]store.Account{{AgentID: "finance", Level: 2, Day: 20_463, Used: 7, Subtree: true, SubtreeUsed: 70}})
			})
		}
		a.BudgetScope = ""
		update(t, db, a)
		require.Equal(t, map[string]bool{"finance": true, "health": true}, rolledUp("finance", "health"), "own by another name")
	})

	rule(t, "ReturnsNotFoundForAnUnknownID", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		ghost := assistant(db, "ghost", "finance")
		err := db.Write(t.Context(), func(tx *store.Tx) error { return tx.Agents().Update(ghost, ghost) })
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
	})

	rule(t, "ReturnsConflictForAnUnknownParent", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		moved := assistant(db, "bills", "missing")
		err := db.Write(t.Context(), func(tx *store.Tx) error { return tx.Agents().Update(moved, moved) })
		require.Equal(t, errs.Conflict, errs.CodeOf(err))
	})

	rule(t, "UpdatesTheCapabilityIndex", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		a := assistant(db, "bills", "finance")
		for _, capabilities := range [][]string{{"email", "custom:x"}, {"x"}, {}, {"custom:x", "x"}, {"chat"}} {
			a.Capabilities = capabilities
			update(t, db, a)
			for _, name := range []string{"plan", "email", "custom:email", "x", "custom:x", "chat"} {
				page, err := db.Agents(t.Context()).List(store.AgentQuery{Capabilities: []string{name}, ParentID: new("finance"), Limit: 10, Count: true})
				require.NoError(t, err)
				want := []string{}
				if offers(a, name) {
					want = []string{"bills"}
				}
				require.Equal(t, want, ids(page.Agents), "%s with %v", name, capabilities)
				require.EqualValues(t, len(want), *page.Total)
			}
		}
	})
}

// update stores a over the row that has its id.
func update(t *testing.T, db *storetest.DB, a models.Agent) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		before, err := tx.Agents().Lock(a.ID)
		if err != nil {
			return err
		}
		return tx.Agents().Update(before, a)
	})
}

func TestAgentInATransaction(t *testing.T) {
	t.Parallel()

	rule(t, "ReadsItsOwnWrites", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		write(t, db, func(tx *store.Tx) error {
			require.NoError(t, tx.Agents().Insert(assistant(db, "mine", "finance")))
			got, err := tx.Agents().Lock("mine")
			require.NoError(t, err)
			require.Equal(t, "mine", got.ID)
			shared, err := tx.Agents().LockShared("mine")
			require.NoError(t, err)
			require.Equal(t, got, shared)
			return nil
		})
	})

	rule(t, "ReturnsNotFoundAndTheTransactionGoesOn", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		write(t, db, func(tx *store.Tx) error {
			_, err := tx.Agents().Lock("missing")
			require.Equal(t, errs.NotFound, errs.CodeOf(err))
			_, err = tx.Agents().LockShared("missing")
			require.Equal(t, errs.NotFound, errs.CodeOf(err))
			return tx.Agents().Insert(assistant(db, "after", "finance"))
		})
		requireAgent(t, db, "after", true)
	})

	rule(t, "ReportsActiveChildren", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		retired := assistant(db, "retired", "health")
		retired.IsActive = false
		insert(t, db, retired)
		write(t, db, func(tx *store.Tx) error {
			for id, want := range map[string]bool{"nova": true, "finance": true, "health": false, "bills": false, "missing": false} {
				got, err := tx.Agents().HasActiveChildren(id)
				require.NoError(t, err)
				require.Equal(t, want, got, id)
			}
			return nil
		})
	})

	rule(t, "ALockedRowIsNotChangedByAnother", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		const writers, rounds = 8, 10
		results := make(chan error, writers)
		for range writers {
			go func() {
				results <- func() error {
					for range rounds {
						err := db.Write(t.Context(), func(tx *store.Tx) error {
							before, err := tx.Agents().Lock("finance")
							if err != nil {
								return err
							}
							after := before
							after.Version++
							return tx.Agents().Update(before, after)
						})
						if err != nil {
							return err
						}
					}
					return nil
				}()
			}()
		}
		for range writers {
			require.NoError(t, <-results)
		}
		got, err := db.Agents(t.Context()).Get("finance")
		require.NoError(t, err)
		require.EqualValues(t, 1+writers*rounds, got.Version, "no increment was lost")
	})
}

func TestUnknownAgent(t *testing.T) {
	t.Parallel()
	rule(t, "IsNotFound", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		for _, id := range []string{"", "missing", "Nova", "nova ", "%", "no_a", "' OR 1=1 --", strings.Repeat("x", 10_000)} {
			_, err := db.Agents(t.Context()).Get(id)
			require.Equal(t, errs.NotFound, errs.CodeOf(err), "%.20q", id)
			_, err = db.Agents(t.Context()).Detail(id, db.Now())
			require.Equal(t, errs.NotFound, errs.CodeOf(err), "%.20q", id)
			_, err = db.Agents(t.Context()).Ancestors(id)
			require.Equal(t, errs.NotFound, errs.CodeOf(err), "%.20q", id)
			_, err = db.Agents(t.Context()).Subtree(id, 3, false, 100)
			require.Equal(t, errs.NotFound, errs.CodeOf(err), "%.20q", id)
		}
	})
}
