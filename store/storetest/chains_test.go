package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/store"
	"comet/store/storetest"
)

// SQLite has one writer, so the two sides of the lock have nothing to do there.
func TestChains(t *testing.T) {
	t.Parallel()
	share := func(tx *store.Tx) error { return tx.Agents().ShareChains() }
	lock := func(tx *store.Tx) error { return tx.Agents().LockChains() }

	overlapping(t, "AreSharedByDecisions", func(t *testing.T, db *storetest.DB) {
		first := hold(t, db, share)
		write(t, db, share)
		first.commit(t)
	})

	overlapping(t, "AreStillUntilADecisionHasCommitted", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		var before, after string
		decision := hold(t, db, func(tx *store.Tx) error {
			err := tx.Agents().ShareChains()
			if err == nil {
				before, err = parentOf(tx, "bills")
			}
			return err
		})
		move := behind(t, db, func(tx *store.Tx) error {
			if err := tx.Agents().LockChains(); err != nil {
				return err
			}
			a, err := tx.Agents().Lock("bills")
			if err != nil {
				return err
			}
			return tx.Agents().Update(a, assistant(db, "bills", "health"))
		})
		write(t, db, func(tx *store.Tx) (err error) { after, err = parentOf(tx, "bills"); return err })
		require.Equal(t, []string{"finance", "finance"}, []string{before, after}, "the move waits")
		decision.commit(t)
		require.NoError(t, <-move)
		write(t, db, func(tx *store.Tx) (err error) { after, err = parentOf(tx, "bills"); return err })
		require.Equal(t, "health", after)
	})

	for name, other := range map[string]func(*store.Tx) error{"OneChangeAtATime": lock, "NoDecisionDuringAChange": share} {
		overlapping(t, name, func(t *testing.T, db *storetest.DB) {
			change := hold(t, db, lock)
			waiting := behind(t, db, other)
			require.Empty(t, waiting, "it has not ended")
			change.commit(t)
			require.NoError(t, <-waiting)
		})
	}
}

func parentOf(tx *store.Tx, id string) (string, error) {
	above, err := tx.Ledger().Spenders([]string{id})
	return above[id].ParentID, err
}
