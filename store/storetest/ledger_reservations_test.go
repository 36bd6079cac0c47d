package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/ledgercheck"
	"comet/store/storetest"
)

func TestStoredReservations(t *testing.T) {
	t.Parallel()
	held := func(db *storetest.DB, id string, tokens int64, term time.Duration) models.Reservation {
		return models.Reservation{
			ID: id, AgentID: "bills", Tokens: tokens, State: models.ReservationHeld, CreatedAt: db.Now(), ExpiresAt: db.Now().Add(term),
			Path: "nova/orch-a/finance/bills",
		}
	}
	save := func(t *testing.T, db *storetest.DB, at time.Time, list ...models.Reservation) {
		t.Helper()
		write(t, db, func(tx *store.Tx) error { return tx.Ledger().SaveReservations(list, at) })
	}

	rule(t, "StoreEveryField", func(t *testing.T, db *storetest.DB) {
		a, b := held(db, "a", 5, time.Minute), held(db, "b", 6, time.Hour)
		save(t, db, db.Now(), a, b)
		settled := a
		settled.State, settled.SettledTokens, settled.Digest = models.ReservationSettled, new(int64(0)), [32]byte{7}
		settled.EndedAt = new(db.Now())
		save(t, db, db.Now(), settled)
		write(t, db, func(tx *store.Tx) error {
			got, err := tx.Ledger().NamedReservations([]store.LedgerKey{{AgentID: "bills", ID: "a"}, {AgentID: "bills", ID: "b"}, {AgentID: "bills", ID: "c"}, {AgentID: "x", ID: "a"}})
			require.Equal(t, map[store.LedgerKey]models.Reservation{{AgentID: "bills", ID: "a"}: settled, {AgentID: "bills", ID: "b"}: b}, got)
			return err
		})
		one, err := db.Ledger(t.Context()).Reservation("bills", "a")
		require.NoError(t, err)
		require.Equal(t, settled, one)
	})

	rule(t, "ChangeOnlyTheirTokensAndTheirEnd", func(t *testing.T, db *storetest.DB) {
		a := held(db, "a", 5, time.Minute)
		save(t, db, db.Now(), a)
		changed := a
		changed.Tokens, changed.Path, changed.ExpiresAt, changed.State = 500, "elsewhere", db.Now(), models.ReservationReleased
		save(t, db, db.Now(), changed)
		got, err := db.Ledger(t.Context()).Reservation("bills", "a")
		require.NoError(t, err)
		a.Tokens, a.State, a.EndedAt = 500, models.ReservationReleased, new(db.Now())
		require.Equal(t, a, got)
	})

	rule(t, "RequireAKnownState", func(t *testing.T, db *storetest.DB) {
		bad := held(db, "a", 5, time.Minute)
		bad.State = "lost"
		err := db.Write(t.Context(), func(tx *store.Tx) error { return tx.Ledger().SaveReservations([]models.Reservation{bad}, db.Now()) })
		require.Equal(t, errs.Conflict, errs.CodeOf(err))
	})

	rule(t, "ReturnTheLongestOverdueFirst", func(t *testing.T, db *storetest.DB) {
		ended := held(db, "ended", 5, 0)
		ended.State = models.ReservationExpired
		save(t, db, db.Now(), held(db, "later", 1, time.Minute), held(db, "now", 2, time.Second), held(db, "first", 3, 0), ended)
		at, ok, err := db.Ledger(t.Context()).NextReservationDue()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, db.Now(), at)
		overdue := func(at time.Time, limit int) (ids []string) {
			write(t, db, func(tx *store.Tx) error {
				list, err := tx.Ledger().OverdueReservations(at, limit)
				ids = nil
				for _, r := range list {
					ids = append(ids, r.ID)
				}
				return err
			})
			return ids
		}
		require.Equal(t, []string{"first"}, overdue(db.Now().Add(time.Second-time.Microsecond), 10))
		require.Equal(t, []string{"first", "now"}, overdue(db.Now().Add(time.Second), 10))
		require.Equal(t, []string{"first", "now"}, overdue(db.Now().Add(time.Hour), 2))
	})

	rule(t, "AreNotDueWhenNoneIsHeld", func(t *testing.T, db *storetest.DB) {
		ended := held(db, "ended", 5, 0)
		ended.State = models.ReservationReleased
		save(t, db, db.Now(), ended)
		_, ok, err := db.Ledger(t.Context()).NextReservationDue()
		require.NoError(t, err)
		require.False(t, ok)
	})

	rule(t, "AreSummedUpOnThePathsThroughAnAgent", func(t *testing.T, db *storetest.DB) {
		other := held(db, "b", 20, 0)
		other.Path = "nova/orch-a/finance-2/bills"
		ended := held(db, "c", 300, 0)
		ended.State = models.ReservationReleased
		save(t, db, db.Now(), held(db, "a", 1, time.Hour), other, ended)
		write(t, db, func(tx *store.Tx) error {
			for id, want := range map[string]int64{"nova": 21, "orch-a": 21, "finance": 1, "finance-2": 20, "bills": 21, "fin": 0} {
				got, err := tx.Ledger().HeldBelow(id)
				if err != nil {
					return err
				}
				require.Equal(t, want, got, id)
			}
			return nil
		})
	})

	rule(t, "AreWrittenAndFoundInListsOfAnyLength", func(t *testing.T, db *storetest.DB) {
		for _, n := range []int{1, 3, 127, 128, 129, 300} {
			var list []models.Reservation
			var keys []store.LedgerKey
			for i := range n {
				list = append(list, held(db, fmt.Sprintf("%d-%d", n, i), int64(i+1), time.Hour))
				keys = append(keys, store.LedgerKey{AgentID: "bills", ID: list[i].ID})
			}
			save(t, db, db.Now(), list...)
			write(t, db, func(tx *store.Tx) error {
				got, err := tx.Ledger().NamedReservations(keys)
				require.Len(t, got, n)
				return err
			})
		}
	})
}

func TestSnapshots(t *testing.T) {
	t.Parallel()

	// Verify reads several tables. Between two of its statements another charge is
	// committed, whole.
	rule(t, "SeeOneMoment", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		at := db.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 200 {
				f := usedFact(db, "", int64(i+1))
				f.ReservationID = ""
				err := db.Write(context.Background(), func(tx *store.Tx) error {
					a, err := tx.Ledger().LockAccounts([]string{"bills"})
					if err != nil {
						return err
					}
					account := a["bills"]
					account.AgentID, account.Level, account.Day, account.Used = "bills", 3, at.Unix()/86_400, account.Used+f.Tokens
					if err := tx.Ledger().SaveAccounts([]store.Account{account}); err != nil {
						return err
					}
					if err := tx.Ledger().InsertFacts([]models.Fact{f}); err != nil {
						return err
					}
					return tx.Ledger().AddToWindows([]models.Fact{f})
				})
				if err != nil {
					t.Errorf("charge: %v", err)
				}
			}
		}()
		for more := true; more; {
			select {
			case <-done:
				more = false
			default:
			}
			v, err := ledgercheck.Verify(t.Context(), db.Store)
			require.NoError(t, err)
			require.Empty(t, v.Differences)
		}
	})

	rule(t, "LeaveTheirConnectionUsableWhenTheContextEnds", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		write(t, db, func(tx *store.Tx) error { return storetest.AddUsage(tx, "bills", "nova", db.Now(), 1) })
		for range 20 { // more than there are connections
			ctx, cancel := context.WithCancel(t.Context())
			_, err := db.Ledger(ctx).UsageByPath(db.Now().Unix()/86_400, func(string, string, int64) { cancel() })
			require.Error(t, err)
			_, err = ledgercheck.Verify(ctx, db.Store)
			require.ErrorIs(t, err, context.Canceled)
		}
		_, err := ledgercheck.Verify(t.Context(), db.Store)
		require.NoError(t, err)
		write(t, db, func(tx *store.Tx) error { return storetest.AddUsage(tx, "bills", "nova", db.Now(), 1) })
	})
}
