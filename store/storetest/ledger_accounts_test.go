package storetest_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// accounts makes accounts and returns them as they are stored.
func accounts(t *testing.T, db *storetest.DB, of ...store.Spender) map[string]store.Account {
	t.Helper()
	ids := make([]string, 0, len(of))
	for _, s := range of {
		ids = append(ids, s.ID)
	}
	var out map[string]store.Account
	write(t, db, func(tx *store.Tx) (err error) {
		if _, err := tx.Ledger().CreateAccounts(of); err != nil {
			return err
		}
		out, err = tx.Ledger().LockAccounts(ids)
		return err
	})
	return out
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	finance, bills := store.Spender{ID: "finance", Level: 2}, store.Spender{ID: "bills", Level: 3}
	fresh := func(s store.Spender) store.Account {
		return store.Account{AgentID: s.ID, Level: s.Level, WarnedDay: -1, ExceededDay: -1}
	}

	rule(t, "StartEmptyAndAreCreatedOnce", func(t *testing.T, db *storetest.DB) {
		want := map[string]store.Account{"finance": fresh(finance), "bills": fresh(bills)}
		require.Equal(t, want, accounts(t, db, finance, bills, finance))
		write(t, db, func(tx *store.Tx) error {
			created, err := tx.Ledger().CreateAccounts([]store.Spender{bills, {ID: "help", Level: 3}})
			require.Equal(t, map[string]store.Account{"help": fresh(store.Spender{ID: "help", Level: 3})}, created, "only the new account is created")
			return err
		})
		spent := fresh(bills)
		spent.Used = 5
		write(t, db, func(tx *store.Tx) error { return tx.Ledger().SaveAccounts([]store.Account{spent}) })
		require.EqualValues(t, 5, accounts(t, db, bills)["bills"].Used, "an account that is there stays as it is")
		require.Empty(t, accounts(t, db))
	})

	rule(t, "StoreEveryField", func(t *testing.T, db *storetest.DB) {
		accounts(t, db, bills, finance)
		full := store.Account{
			AgentID: "bills", Level: 3, Day: 20_463, Used: 1, Forgiven: 2, Reserved: 3, Subtree: true, SubtreeUsed: 4, SubtreeForgiven: 5,
			SubtreeReserved: 6, Extra: 7, ExtraUntil: db.Now(), WarnedDay: 8, ExceededDay: 9,
		}
		write(t, db, func(tx *store.Tx) error { return tx.Ledger().SaveAccounts([]store.Account{full}) })
		write(t, db, func(tx *store.Tx) error {
			got, err := tx.Ledger().LockAccounts([]string{"bills", "finance", "missing", "bills"})
			require.Equal(t, map[string]store.Account{"bills": full, "finance": fresh(finance)}, got)
			return err
		})
	})

	rule(t, "AreFoundByListsOfAnyLength", func(t *testing.T, db *storetest.DB) {
		var all []store.Spender
		for i := range 300 {
			all = append(all, store.Spender{ID: fmt.Sprintf("a-%d", i), Level: models.Level(1 + i%3)})
		}
		accounts(t, db, all...)
		for _, n := range []int{1, 2, 3, 127, 128, 129, 255, 256, 257, 300} {
			require.Len(t, accounts(t, db, all[:n]...), n)
		}
	})

	overlapping(t, "AreLockedUntilTheTransactionEnds", func(t *testing.T, db *storetest.DB) {
		accounts(t, db, bills, finance)
		first := hold(t, db, func(tx *store.Tx) error {
			got, err := tx.Ledger().LockAccounts([]string{"bills"})
			if err == nil {
				a := got["bills"]
				a.Used = 7
				err = tx.Ledger().SaveAccounts([]store.Account{a})
			}
			return err
		})
		var seen map[string]store.Account
		second := behind(t, db, func(tx *store.Tx) (err error) {
			seen, err = tx.Ledger().LockAccounts([]string{"finance", "bills"})
			return err
		})
		require.Empty(t, second, "it has not ended")
		first.commit(t)
		require.NoError(t, <-second)
		require.EqualValues(t, 7, seen["bills"].Used, "what it waited for is what it sees")
	})

	// A waiting transaction holds only accounts that come earlier in the order, so no two
	// wait for each other.
	overlapping(t, "AreLockedFromTheLowestLevelUpAndByID", func(t *testing.T, db *storetest.DB) {
		a, b, top := store.Spender{ID: "a", Level: 3}, store.Spender{ID: "b", Level: 3}, store.Spender{ID: "0", Level: 1}
		accounts(t, db, a, b, top)
		lock := func(ids ...string) func(tx *store.Tx) error {
			return func(tx *store.Tx) error { _, err := tx.Ledger().LockAccounts(ids); return err }
		}
		middle := hold(t, db, lock("b"))
		all := behind(t, db, lock("0", "b", "a"))
		write(t, db, lock("0"))
		behindA := behind(t, db, lock("a"))
		requireWaiting(t, db, 2) // the first in the order is taken
		require.Empty(t, all)
		middle.commit(t)
		require.NoError(t, <-all)
		require.NoError(t, <-behindA)
	})
}

// requireWaiting requires that in the end so many transactions wait for locks.
func requireWaiting(t *testing.T, db *storetest.DB, n int) {
	t.Helper()
	watch, err := sql.Open("pgx", db.Options.DatabaseURL)
	require.NoError(t, err)
	defer func() { require.NoError(t, watch.Close()) }()
	require.Eventually(t, func() bool {
		var waiting int
		err := watch.QueryRowContext(context.Background(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting)
		return err == nil && waiting == n
	}, time.Minute, 5*time.Millisecond)
}

func TestSpenders(t *testing.T) {
	t.Parallel()

	rule(t, "AreTheAgentsAndTheirAncestors", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		write(t, db, func(tx *store.Tx) error {
			for _, c := range []struct {
				ids, want []string
			}{
				{[]string{"bills"}, []string{"bills", "finance", "nova", "orch-a"}},
				{[]string{"bills", "health", "bills"}, []string{"bills", "finance", "health", "nova", "orch-a"}},
				{[]string{"nova"}, []string{"nova"}},
				{[]string{"orch-b", "missing"}, []string{"nova", "orch-b"}},
				{[]string{"missing"}, nil},
				{nil, nil},
			} {
				got, err := tx.Ledger().Spenders(c.ids)
				if err != nil {
					return err
				}
				require.Equal(t, c.want, slices.Sorted(maps.Keys(got)), "%v", c.ids)
			}
			got, err := tx.Ledger().Spenders([]string{"bills"})
			require.Equal(t, store.Spender{
				ID: "bills", Level: 3, ParentID: "finance", TokenBudget: new(int64(5000)), BudgetScope: models.ScopeOwn, IsActive: true, Version: 1,
			}, got["bills"])
			require.Equal(t, store.Spender{ID: "nova", BudgetScope: models.ScopeOwn, IsActive: true, Version: 1}, got["nova"])
			require.Equal(t, "nova/orch-a/finance/bills", store.Path(got, "bills"))
			require.Empty(t, store.Path(got, "missing"))
			return err
		})
	})

	rule(t, "AreFoundByListsOfAnyLength", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		var ids []string
		write(t, db, func(tx *store.Tx) error {
			for i := range 300 {
				ids = append(ids, fmt.Sprintf("s-%d", i))
				if err := tx.Agents().Insert(specialist(db, ids[i], "orch-a")); err != nil {
					return err
				}
			}
			return nil
		})
		for _, n := range []int{127, 128, 129, 300} {
			write(t, db, func(tx *store.Tx) error {
				got, err := tx.Ledger().Spenders(ids[:n])
				require.Len(t, got, n+2)
				return err
			})
		}
	})
}

func TestActiveAdditions(t *testing.T) {
	t.Parallel()
	rule(t, "AreSummedUpUntilTheFirstOfThemEnds", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		now := db.Now()
		write(t, db, func(tx *store.Tx) error {
			for i, a := range []models.BudgetAddition{
				{AgentID: "bills", Tokens: 1, ExpiresAt: now},
				{AgentID: "bills", Tokens: 20, ExpiresAt: now.Add(time.Microsecond)},
				{AgentID: "bills", Tokens: 300, ExpiresAt: now.Add(time.Hour)},
				{AgentID: "health", Tokens: 4000, ExpiresAt: now.Add(time.Minute)},
			} {
				a.ID, a.CreatedAt = fmt.Sprint(i), now
				if err := tx.Ledger().InsertAddition(a); err != nil {
					return err
				}
			}
			for at, want := range map[time.Duration][2]int64{0: {320, 1}, time.Microsecond: {300, 3_600_000_000}, time.Hour: {0, 0}} {
				tokens, until, err := tx.Ledger().ActiveAdditions("bills", now.Add(at))
				if err != nil {
					return err
				}
				require.Equal(t, want[0], tokens, at)
				if want[1] == 0 {
					require.Zero(t, until)
				} else {
					require.Equal(t, now.Add(time.Duration(want[1])*time.Microsecond), until)
				}
			}
			return nil
		})
	})
}
