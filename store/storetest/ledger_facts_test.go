package storetest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// usedFact is a fact of bills.
func usedFact(db *storetest.DB, requestID string, tokens int64) models.Fact {
	return models.Fact{
		ID: uuid.NewString(), AgentID: "bills", At: db.Now(), Tokens: tokens, RequestID: requestID, Path: "nova/orch-a/finance/bills",
		FactLabels: models.FactLabels{TaskID: "t", Model: "m", Kind: "k"}, ReservationID: "r", Digest: [32]byte{1, 2, 3},
	}
}

func TestStoredFacts(t *testing.T) {
	t.Parallel()

	rule(t, "AreFoundByRequestID", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		named, nameless, other := usedFact(db, "r-1", 5), usedFact(db, "", 6), usedFact(db, "r-1", 7)
		other.AgentID = "health"
		write(t, db, func(tx *store.Tx) error { return tx.Ledger().InsertFacts([]models.Fact{named, nameless, other}) })
		write(t, db, func(tx *store.Tx) error {
			got, err := tx.Ledger().RecordedFacts([]store.LedgerKey{{AgentID: "bills", ID: "r-1"}, {AgentID: "bills", ID: "r-2"}, {AgentID: "bills"}})
			require.Equal(t, map[store.LedgerKey]models.Fact{{AgentID: "bills", ID: "r-1"}: named}, got, "whole, and by a name only")
			return err
		})
	})

	rule(t, "HaveUniqueRequestIDsPerAgent", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		insert := func(facts ...models.Fact) error {
			return db.Write(t.Context(), func(tx *store.Tx) error { return tx.Ledger().InsertFacts(facts) })
		}
		require.NoError(t, insert(usedFact(db, "r-1", 5), usedFact(db, "", 5), usedFact(db, "", 5)))
		require.Equal(t, errs.Conflict, errs.CodeOf(insert(usedFact(db, "r-2", 5), usedFact(db, "r-1", 5))))
		require.NoError(t, insert(usedFact(db, "r-2", 5)), "nothing of the other try is there")
		require.Equal(t, errs.Conflict, errs.CodeOf(insert(usedFact(db, "", 0))), "a fact has tokens")
	})

	rule(t, "AreWrittenAndFoundInListsOfAnyLength", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		for _, n := range []int{1, 2, 3, 127, 128, 129, 200, 1000} {
			var facts []models.Fact
			var keys []store.LedgerKey
			for i := range n {
				facts = append(facts, usedFact(db, fmt.Sprintf("r-%d-%d", n, i), int64(i+1)))
				keys = append(keys, store.LedgerKey{AgentID: "bills", ID: facts[i].RequestID})
			}
			write(t, db, func(tx *store.Tx) error { return tx.Ledger().InsertFacts(facts) })
			write(t, db, func(tx *store.Tx) error {
				got, err := tx.Ledger().RecordedFacts(keys)
				require.Len(t, got, n)
				for i, k := range keys {
					require.Equal(t, facts[i], got[k])
				}
				return err
			})
		}
		write(t, db, func(tx *store.Tx) error {
			got, err := tx.Ledger().RecordedFacts(nil)
			require.Empty(t, got)
			return errors.Join(err, tx.Ledger().InsertFacts(nil), tx.Ledger().AddToWindows(nil), tx.Ledger().SaveReservations(nil, db.Now()), tx.Ledger().SaveAccounts(nil))
		})
	})
}

func TestRollUps(t *testing.T) {
	t.Parallel()
	const day = 20_463 // 2026-01-10

	// The ids are each other's neighbours in the order of paths.
	rule(t, "SumThePathsThroughAnAgent", func(t *testing.T, db *storetest.DB) {
		insert(t, db, nova(db), orchestrator(db, "o", 1), orchestrator(db, "o-2", 2), orchestrator(db, "o0", 3),
			specialist(db, "s", "o"), specialist(db, "s-2", "o"), specialist(db, "s0", "o"), assistant(db, "a", "s"))
		use := func(tx *store.Tx, agent string, hour int64, path string, tokens int64) error {
			return storetest.AddUsage(tx, agent, path, time.Unix(hour*3600, 0), tokens)
		}
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				use(tx, "nova", day*24, "nova", 1),
				use(tx, "o", day*24, "nova/o", 2),
				use(tx, "o", day*24+23, "nova/o", 4),
				use(tx, "s", day*24, "nova/o/s", 8),
				use(tx, "a", day*24, "nova/o/s/a", 16),
				use(tx, "a", day*24+23, "nova/o-2/s/a", 32), // s stood under another then
				use(tx, "a", day*24, "nova/o/s-2/a", 64),
				use(tx, "s-2", day*24, "nova/o/s-2", 128),
				use(tx, "s0", day*24, "nova/o/s0", 256),
				use(tx, "o0", day*24, "nova/o0", 512),
				use(tx, "o-2", day*24, "nova/o-2", 1024),
				use(tx, "a", day*24-1, "nova/o/s/a", 1<<20), // the day before
				use(tx, "a", day*24+24, "nova/o/s/a", 1<<21),
				use(tx, "s", day*24, "nova/o/s", 1<<12), // adds to what is there
			)
		})
		write(t, db, func(tx *store.Tx) error {
			for _, c := range []struct {
				id    string
				level models.Level
				want  int64
			}{
				{"nova", 0, 1<<11 - 1 + 1<<12}, {"o", 1, 2 + 4 + 8 + 16 + 64 + 128 + 256 + 1<<12}, {"o-2", 1, 32 + 1024}, {"o0", 1, 512},
				{"s", 2, 8 + 16 + 32 + 1<<12}, {"s-2", 2, 64 + 128}, {"s0", 2, 256}, {"a", 3, 16 + 32 + 64},
			} {
				got, err := tx.Ledger().SubtreeUsed(store.Spender{ID: c.id, Level: c.level}, day)
				if err != nil {
					return err
				}
				require.Equal(t, c.want, got, c.id)
			}
			return nil
		})
	})

	rule(t, "ReturnTheLatestDayOfUseBelow", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		write(t, db, func(tx *store.Tx) error {
			err := errors.Join(
				storetest.AddUsage(tx, "bills", "nova/orch-a/finance/bills", time.Unix((day+2)*86_400, 0), 5),
				storetest.AddUsage(tx, "health", "nova/orch-a/health", time.Unix((day+5)*86_400, 0), 5),
			)
			if err != nil {
				return err
			}
			for id, want := range map[string]int64{"finance": day + 2, "bills": day + 2, "orch-a": day + 5, "nova": day + 5, "orch-b": day, "fin": day} {
				got, err := tx.Ledger().LatestDayBelow(id, day, 1<<40)
				if err != nil {
					return err
				}
				require.Equal(t, want, got, id)
			}
			got, err := tx.Ledger().LatestDayBelow("orch-a", day+9, 1<<40)
			require.EqualValues(t, day+9, got, "never before the day that is asked of")
			return err
		})
	})

	rule(t, "AreListedByPathForADay", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		at := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				storetest.AddUsage(tx, "bills", "nova/orch-a/finance/bills", at, 1), storetest.AddUsage(tx, "bills", "nova/orch-a/finance/bills", at.Add(24*time.Hour-1), 2),
				storetest.AddUsage(tx, "bills", "nova/orch-a/health/bills", at, 4), storetest.AddUsage(tx, "bills", "nova/orch-a/finance/bills", at.Add(-1), 8),
				tx.Ledger().InsertReset("bills", day, 3, 100), tx.Ledger().InsertReset("bills", day, 1, 0), tx.Ledger().InsertReset("bills", day-1, 50, 0),
			)
		})
		got := map[string]int64{}
		forgiven, err := db.Ledger(t.Context()).UsageByPath(day, func(agentID, path string, tokens int64) { got[agentID+" "+path] += tokens })
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"bills nova/orch-a/finance/bills": 3, "bills nova/orch-a/health/bills": 4}, got)
		require.Equal(t, map[string]int64{"bills": 4}, forgiven)
	})
}
