package usage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/ledgercheck"
	"comet/store/storetest"
)

// busy makes every sum that Verify compares nonzero: spec counts its subtree, in which some tokens
// are used, written off and held.
func (f *fixture) busy(t *testing.T) {
	t.Helper()
	f.scope(t, "spec", models.ScopeSubtree)
	f.record(t, "help", 1_000)
	f.record(t, "spec", 50)
	f.reset(t, "spec")
	f.record(t, "spec", 4)
	f.hold(t, "help", 300)
}

// account changes a stored account directly.
func (f *fixture) account(t *testing.T, id string, set func(*store.Account)) {
	t.Helper()
	f.write(t, func(tx *store.Tx) error {
		all, err := tx.Ledger().LockAccounts([]string{id})
		if err != nil {
			return err
		}
		a := all[id]
		set(&a)
		return tx.Ledger().SaveAccounts([]store.Account{a})
	})
}

func TestVerify(t *testing.T) {
	t.Parallel()
	const today = 20463 // 2026-01-10
	kept := models.Fact{AgentID: "help", ID: "x", Path: "nova/orch/spec/help", Tokens: 9}

	for _, c := range []struct {
		name    string
		falsify func(t *testing.T, f *fixture)
		want    []ledgercheck.Difference
	}{
		{"AWindow", func(t *testing.T, f *fixture) {
			f.write(t, func(tx *store.Tx) error {
				return storetest.AddUsage(tx, "other", "nova/orch/other", startOf(today).Add(15*time.Hour), 7)
			})
			f.account(t, "other", func(a *store.Account) { a.AgentID, a.Level, a.Day = "other", 2, today })
		}, []ledgercheck.Difference{{AgentID: "other", What: "window", Where: "2026-01-10T15:00:00Z nova/orch/other", Stored: 7}}},
		{"AFactThatNoWindowCounts", func(t *testing.T, f *fixture) {
			lost := kept
			lost.At = time.Date(2026, 1, 10, 3, 0, 0, 0, time.UTC)
			f.write(t, func(tx *store.Tx) error { return tx.Ledger().InsertFacts([]models.Fact{lost}) })
		}, []ledgercheck.Difference{
			{AgentID: "help", What: "window", Where: "2026-01-10T03:00:00Z nova/orch/spec/help", Computed: 9},
			{AgentID: "help", What: "used", Stored: 1_000, Computed: 1_009},
		}},
		{"AFactOfADayBefore", func(t *testing.T, f *fixture) {
			lost := kept
			lost.At = time.Date(2025, 1, 10, 3, 0, 0, 0, time.UTC)
			f.write(t, func(tx *store.Tx) error { return tx.Ledger().InsertFacts([]models.Fact{lost}) })
		}, []ledgercheck.Difference{{AgentID: "help", What: "window", Where: "2025-01-10T03:00:00Z nova/orch/spec/help", Computed: 9}}},
		{"WhatAnAccountUsed", func(t *testing.T, f *fixture) {
			f.account(t, "help", func(a *store.Account) { a.Used-- })
		}, []ledgercheck.Difference{{AgentID: "help", What: "used", Stored: 999, Computed: 1_000}}},
		{"WhatAnAccountForgave", func(t *testing.T, f *fixture) {
			f.account(t, "help", func(a *store.Account) { a.Forgiven = 1 })
		}, []ledgercheck.Difference{{AgentID: "help", What: "forgiven", Stored: 1}}},
		{"WhatAnAccountReserved", func(t *testing.T, f *fixture) {
			f.account(t, "help", func(a *store.Account) { a.Reserved += 5 })
		}, []ledgercheck.Difference{{AgentID: "help", What: "reserved", Stored: 305, Computed: 300}}},
		{"WhatASubtreeUsed", func(t *testing.T, f *fixture) {
			f.account(t, "spec", func(a *store.Account) { a.SubtreeUsed = 0 })
		}, []ledgercheck.Difference{{AgentID: "spec", What: "subtree_used", Computed: 1_054}}},
		{"WhatASubtreeForgave", func(t *testing.T, f *fixture) {
			f.account(t, "spec", func(a *store.Account) { a.SubtreeForgiven++ })
		}, []ledgercheck.Difference{{AgentID: "spec", What: "subtree_forgiven", Stored: 1_051, Computed: 1_050}}},
		{"WhatASubtreeReserved", func(t *testing.T, f *fixture) {
			f.account(t, "spec", func(a *store.Account) { a.SubtreeReserved-- })
		}, []ledgercheck.Difference{{AgentID: "spec", What: "subtree_reserved", Stored: 299, Computed: 300}}},
		{"ASettlementWithoutItsFact", func(t *testing.T, f *fixture) {
			r := models.Reservation{
				AgentID: "help", ID: "x", Path: "nova/orch/spec/help", Tokens: 9, State: models.ReservationSettled,
				ExpiresAt: f.db.Now(), SettledTokens: new(int64(7)),
			}
			f.write(t, func(tx *store.Tx) error { return tx.Ledger().SaveReservations([]models.Reservation{r}, f.db.Now()) })
		}, []ledgercheck.Difference{{AgentID: "help", What: "settled", Where: "x", Stored: 7}}},
		{"AnUnknownAdditionalBudget", func(t *testing.T, f *fixture) {
			f.account(t, "help", func(a *store.Account) { a.Extra, a.ExtraUntil = 500, f.db.Now().Add(time.Hour) })
		}, []ledgercheck.Difference{{AgentID: "help", What: "extra", Stored: 500}}},
		{"AToolCallWithoutItsCharge", func(t *testing.T, f *fixture) {
			call := models.ToolCall{ID: "x", At: f.db.Now().Add(-time.Hour), Source: "mcp", AgentID: "help", Outcome: "success", Tokens: 70}
			ofTask := call
			ofTask.ID, ofTask.Source = "y", "task" // it is charged with the task
			f.write(t, func(tx *store.Tx) error { return tx.Tools().AddCalls([]models.ToolCall{call, ofTask}) })
		}, []ledgercheck.Difference{{AgentID: "help", What: "tool_calls", Where: "2026-01-10", Computed: 70}}},
		{"UseWithoutAnAccount", func(t *testing.T, f *fixture) {
			lost := kept
			lost.AgentID, lost.Path, lost.At = "aid", "nova/orch/other/aid", f.db.Now()
			f.write(t, func(tx *store.Tx) error {
				if err := tx.Ledger().InsertFacts([]models.Fact{lost}); err != nil {
					return err
				}
				return storetest.AddUsage(tx, lost.AgentID, lost.Path, lost.At, 9)
			})
		}, []ledgercheck.Difference{{AgentID: "aid", What: "used", Computed: 9}}},
		{"AReservationWithoutAnAccount", func(t *testing.T, f *fixture) {
			r := models.Reservation{AgentID: "aid", ID: "x", Path: "nova/aid", Tokens: 9, State: models.ReservationHeld, ExpiresAt: f.db.Now()}
			f.write(t, func(tx *store.Tx) error { return tx.Ledger().SaveReservations([]models.Reservation{r}, f.db.Now()) })
		}, []ledgercheck.Difference{{AgentID: "aid", What: "reserved", Computed: 9}}},
	} {
		t.Run("FindsAndRepairs"+c.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T, db *storetest.DB) {
				f := setup(t, db)
				f.busy(t)
				f.sound(t)
				c.falsify(t, f)
				v, err := f.Verify(t.Context())
				require.NoError(t, err)
				for i := range v.Differences {
					require.NotEmpty(t, v.Differences[i].Correction)
					v.Differences[i].Correction = ""
				}
				require.Equal(t, c.want, v.Differences)
				require.EqualValues(t, len(c.want), v.Total)
				f.repair(t, c.want...)
			})
		})
	}

	onEachDatabase(t, "TellsWhatItHasLookedAt", func(t *testing.T, f *fixture) {
		f.busy(t)
		v, err := f.Verify(t.Context())
		require.NoError(t, err)
		require.Equal(t, ledgercheck.Verification{
			CheckedAt: f.db.Now(), FromDay: "1970-01-01", Facts: 3, Windows: 2, Accounts: 2, Reservations: 1, Differences: []ledgercheck.Difference{},
		}, v)
	})

	t.Run("NamesAtMost100OfThem", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			f := setup(t, db)
			f.write(t, func(tx *store.Tx) error {
				var facts []models.Fact
				for i := range int64(150) {
					facts = append(facts, models.Fact{AgentID: "help", At: time.Unix(i*3600, 0), Path: fmt.Sprint(i), Tokens: 1})
				}
				return tx.Ledger().AddToWindows(facts)
			})
			v, err := f.Verify(t.Context())
			require.NoError(t, err)
			require.Len(t, v.Differences, 100)
			require.EqualValues(t, 151, v.Total, "and one for the missing account of help")
		})
	})
}
