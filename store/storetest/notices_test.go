package storetest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestNotices(t *testing.T) {
	t.Parallel()

	rule(t, "AreProcessedOnceByEachAndTheNewestAreKept", func(t *testing.T, db *storetest.DB) {
		const many = 300 // more than one statement takes
		smallTree(t, db)
		var ids []string
		var agents []models.Agent
		for n := range many {
			ids = append(ids, fmt.Sprintf("agent-%03d", n))
			agents = append(agents, specialist(db, ids[n], "orch-a"))
		}
		insert(t, db, agents...)
		write(t, db, func(tx *store.Tx) error {
			fresh, err := tx.Inbox().MarkEachProcessed(ids[:2], "one")
			require.ElementsMatch(t, ids[:2], fresh)
			return err
		})
		write(t, db, func(tx *store.Tx) error {
			fresh, err := tx.Inbox().MarkEachProcessed(ids, "one")
			require.ElementsMatch(t, ids[2:], fresh)
			if err != nil {
				return err
			}
			fresh, err = tx.Inbox().MarkEachProcessed(ids, "another")
			require.Len(t, fresh, many)
			return err
		})
		for n := range 4 {
			write(t, db, func(tx *store.Tx) error {
				return tx.Inbox().EnqueueAll(ids, models.InboxMessage{Kind: models.MessageNotice, Priority: n % 2, Data: fmt.Appendf(nil, "%d", n)})
			})
		}
		write(t, db, func(tx *store.Tx) error { return tx.Inbox().KeepNotices(ids[1:], 2) })
		// wait are the notices that wait for an agent, in the order in which they came.
		wait := func(id string) (out []string) {
			all, err := db.Inbox(t.Context()).List(id, 10)
			require.NoError(t, err)
			slices.SortFunc(all, func(a, b models.InboxMessage) int { return strings.Compare(a.ID, b.ID) })
			for _, m := range all {
				require.Equal(t, models.MessageNotice, m.Kind)
				require.Empty(t, m.TaskID)
				out = append(out, string(m.Data))
			}
			return out
		}
		require.Equal(t, []string{"0", "1", "2", "3"}, wait(ids[0]), "another's are not looked at")
		require.Equal(t, []string{"2", "3"}, wait(ids[1]))
		require.Equal(t, []string{"2", "3"}, wait(ids[many-1]))
	})
}
