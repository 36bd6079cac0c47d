package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

var errStop = errors.New("stop here")

func TestAgentDetail(t *testing.T) {
	t.Parallel()

	rule(t, "OfAnUnusedAgent", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		got, err := db.Agents(t.Context()).Detail("bills", db.Now())
		require.NoError(t, err)
		require.Equal(t, models.AgentDetail{Agent: assistant(db, "bills", "finance"), Children: []models.AgentRef{}}, got)
		require.Nil(t, got.Stats.SuccessRate, "there is nothing to divide")
	})

	rule(t, "ListsActiveChildrenByID", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		retired := assistant(db, "a-retired", "finance")
		retired.IsActive = false
		insert(t, db, assistant(db, "z-last", "finance"), retired, assistant(db, "a-first", "finance"))
		got, err := db.Agents(t.Context()).Detail("finance", db.Now())
		require.NoError(t, err)
		require.Equal(t, []models.AgentRef{{ID: "a-first", Level: 3}, {ID: "bills", Level: 3}, {ID: "z-last", Level: 3}}, got.Children)
		require.False(t, got.ChildrenTruncated)
	})

	rule(t, "ListsUpTo1000Children", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		var many []models.Agent
		for i := range 1000 {
			many = append(many, assistant(db, fmt.Sprintf("child-%04d", i), "health"))
		}
		insert(t, db, many...)
		got, err := db.Agents(t.Context()).Detail("health", db.Now())
		require.NoError(t, err)
		require.Len(t, got.Children, 1000)
		require.False(t, got.ChildrenTruncated)
		insert(t, db, assistant(db, "child-9999", "health"))
		got, err = db.Agents(t.Context()).Detail("health", db.Now())
		require.NoError(t, err)
		require.Len(t, got.Children, 1000)
		require.Equal(t, "child-0999", got.Children[999].ID)
		require.True(t, got.ChildrenTruncated)
	})

	rule(t, "CountsTheTokensOfTheUTCDay", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		midnight := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				storetest.AddUsage(tx, "bills", "nova/orch-a/finance/bills", midnight.Add(-time.Microsecond), 1_000_000),
				storetest.AddUsage(tx, "bills", "nova/orch-a/finance/bills", midnight, 1),
				storetest.AddUsage(tx, "bills", "nova/orch-a/finance/bills", midnight.Add(30*time.Minute), 10),
				storetest.AddUsage(tx, "bills", "nova/orch-a/health/bills", midnight.Add(15*time.Hour), 100),
				storetest.AddUsage(tx, "health", "nova/orch-a/health", midnight.Add(15*time.Hour), 5000),
			)
		})
		got, err := db.Agents(t.Context()).Detail("bills", db.Now())
		require.NoError(t, err)
		require.EqualValues(t, 111, got.TokensUsedToday, "the whole day, on every path, and no other agent's")
		got, err = db.Agents(t.Context()).Detail("bills", midnight.Add(-time.Hour).In(time.FixedZone("UTC+9", 9*3600)))
		require.NoError(t, err)
		require.EqualValues(t, 1_000_000, got.TokensUsedToday, "the day before, whatever the zone")
	})

	rule(t, "SubtractsTheResetsOfTheDay", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		today := db.Now().Unix() / 86_400
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				storetest.AddUsage(tx, "bills", "nova/orch-a/finance/bills", db.Now(), 100),
				storetest.AddUsage(tx, "finance", "nova/orch-a/finance", db.Now(), 1000),
				tx.Ledger().InsertReset("bills", today, 60, 0),
				tx.Ledger().InsertReset("bills", today, 30, 500),
				tx.Ledger().InsertReset("bills", today-1, 7, 0),
			)
		})
		requireUsedToday(t, db, map[string]int64{"bills": 10, "finance": 1000, "orch-a": 0})
		db.Clock.Advance(9 * time.Hour)
		requireUsedToday(t, db, map[string]int64{"bills": 0, "finance": 0}, "the next day begins with nothing")
	})

	rule(t, "CountsTheDayOfTheAccountWhenTheClockWentBack", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		today := db.Now().Unix() / 86_400
		yesterday, tomorrow := db.Now().Add(-24*time.Hour), db.Now().Add(24*time.Hour)
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				storetest.AddUsage(tx, "bills", "nova/orch-a/finance/bills", db.Now(), 1000),
				storetest.AddUsage(tx, "bills", "nova/orch-a/finance/bills", tomorrow, 100),
				tx.Ledger().InsertReset("bills", today, 500, 0),
				tx.Ledger().InsertReset("bills", today+1, 40, 0),
				storetest.AddUsage(tx, "finance", "nova/orch-a/finance", yesterday, 1000),
				storetest.AddUsage(tx, "finance", "nova/orch-a/finance", db.Now(), 5),
				tx.Ledger().InsertReset("finance", today-1, 900, 0),
				tx.Ledger().SaveAccounts([]store.Account{{AgentID: "bills", Level: 3, Day: today + 1}, {AgentID: "finance", Level: 2, Day: today - 1}}),
			)
		})
		requireUsedToday(t, db, map[string]int64{"bills": 60, "finance": 5}, "the later of the two days")
		db.Clock.Advance(48 * time.Hour)
		requireUsedToday(t, db, map[string]int64{"bills": 0, "finance": 0})
	})

	rule(t, "UsageAndOutcomesOfAnUnknownAgentAreRefused", func(t *testing.T, db *storetest.DB) {
		for _, fn := range []func(*store.Tx) error{
			func(tx *store.Tx) error { return storetest.AddUsage(tx, "missing", "nova/missing", tx.Now(), 1) },
			func(tx *store.Tx) error {
				return tx.Agents().AddOutcomes([]store.OutcomeRow{{AgentID: "missing", SessionID: "s", Status: "success", At: tx.Now()}})
			},
		} {
			require.Equal(t, errs.Conflict, errs.CodeOf(db.Write(t.Context(), fn)))
		}
	})
}

// requireUsedToday compares tokens_used_today, outside and inside a transaction.
func requireUsedToday(t *testing.T, db *storetest.DB, want map[string]int64, why ...any) {
	t.Helper()
	for id, tokens := range want {
		got, err := db.Agents(t.Context()).Detail(id, db.Now())
		require.NoError(t, err)
		require.Equal(t, tokens, got.TokensUsedToday, append(why, id))
		write(t, db, func(tx *store.Tx) error {
			inside, err := tx.Agents().Detail(id, tx.Now())
			require.Equal(t, got, inside)
			return err
		})
	}
}

func TestAncestors(t *testing.T) {
	t.Parallel()
	rule(t, "AreOrderedFromTheParentToNova", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		for id, want := range map[string][]string{
			"nova": {}, "orch-b": {"nova"}, "health": {"orch-a", "nova"}, "bills": {"finance", "orch-a", "nova"},
		} {
			got, err := db.Agents(t.Context()).Ancestors(id)
			require.NoError(t, err)
			require.Equal(t, want, ids(got))
		}
		got, err := db.Agents(t.Context()).Ancestors("orch-a")
		require.NoError(t, err)
		require.Equal(t, []models.Agent{nova(db)}, got, "each is whole")
	})
}

func TestSubtree(t *testing.T) {
	t.Parallel()
	rule(t, "IsOrderedByDepthAndID", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		for _, c := range []struct {
			root  string
			depth int
			want  []string
		}{
			{"nova", 0, []string{"nova"}},
			{"nova", 1, []string{"nova", "orch-a", "orch-b"}},
			{"nova", 2, []string{"nova", "orch-a", "orch-b", "finance", "health"}},
			{"nova", 3, []string{"nova", "orch-a", "orch-b", "finance", "health", "bills"}},
			{"orch-a", 99, []string{"orch-a", "finance", "health", "bills"}},
			{"bills", 3, []string{"bills"}},
		} {
			got, err := db.Agents(t.Context()).Subtree(c.root, c.depth, false, 100)
			require.NoError(t, err)
			require.Equal(t, c.want, ids(got), "%s down %d", c.root, c.depth)
		}
	})

	rule(t, "WithoutInactiveAgentsEndsAtThem", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		retired := specialist(db, "finance", "orch-a")
		retired.IsActive = false
		update(t, db, retired)
		got, err := db.Agents(t.Context()).Subtree("nova", 3, true, 100)
		require.NoError(t, err)
		require.Equal(t, []string{"nova", "orch-a", "orch-b", "health"}, ids(got))
		got, err = db.Agents(t.Context()).Subtree("finance", 3, true, 100)
		require.NoError(t, err)
		require.Equal(t, []string{"finance", "bills"}, ids(got), "the root itself was asked for")
	})
}

func TestLockAgents(t *testing.T) {
	t.Parallel()
	rule(t, "KeepsOthersFromChangingTheTree", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		const writers, rounds = 6, 8
		results := make(chan error, 2*writers)
		for w := range 2 * writers {
			whole := w%2 == 0
			go func() {
				var err error
				for i := 0; i < rounds && err == nil; i++ {
					if whole {
						err = db.Write(context.Background(), judgeAndInsert(db))
					} else {
						err = db.Write(context.Background(), func(tx *store.Tx) error {
							return tx.Agents().Insert(assistant(db, fmt.Sprintf("single-%d-%d", w, i), "health"))
						})
					}
				}
				results <- err
			}()
		}
		for range 2 * writers {
			require.NoError(t, <-results)
		}
	})
}

// judgeAndInsert inserts an agent whose id is the number of agents, which is
// taken already unless the tree stood still.
func judgeAndInsert(db *storetest.DB) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		if err := tx.Agents().LockAll(); err != nil {
			return err
		}
		all, err := tx.Agents().All()
		if err != nil {
			return err
		}
		return tx.Agents().Insert(assistant(db, fmt.Sprintf("number-%d", len(all)), "finance"))
	}
}
