package storetest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// said is a line as it is kept. n makes its id, which is later for a higher one.
func said(at time.Time, n int, of int64, peer string, number int) models.LoggedMessage {
	return models.LoggedMessage{
		ID: fmt.Sprintf("%08x-%04x-7%03x-8000-000000000000", at.UnixMilli()>>16, at.UnixMilli()&0xffff, n), At: at, Peer: peer, Context: of, Task: 1,
		Number: number, From: peer, To: "O1", Type: "U", State: "R", Data: "progress=50%",
	}
}

func TestLines(t *testing.T) {
	t.Parallel()

	rule(t, "AreReadByTaskInTheOrderInWhichTheyWereSaid", func(t *testing.T, db *storetest.DB) {
		var all []models.LoggedMessage
		for n := range 300 { // more than one statement takes
			l := said(db.Now(), n, 7, "W1", n+1)
			l.Depth = n % 2
			all = append(all, l)
		}
		all[0].Code, all[0].Parent, all[0].ParentID = "E31", 12, all[1].ID
		other := said(db.Now(), 999, 8, "W1", 1)
		write(t, db, func(tx *store.Tx) error {
			return tx.AddLoggedMessages(append([]models.LoggedMessage{other, all[299]}, all[:299]...))
		})
		write(t, db, func(tx *store.Tx) error { return tx.AddLoggedMessages(all[:1]) }) // again
		q := models.LoggedMessageQuery{ShortID: models.ShortID{Context: 7, Task: 1}, Limit: 200}
		page, err := db.LoggedMessages(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, all[:200], page)
		q.After = page[199].ID
		page, err = db.LoggedMessages(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, all[200:], page)
		q.After, q.Depth = "", 1
		page, err = db.LoggedMessages(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, page, 150)
		require.Equal(t, all[1], page[0])
	})

	rule(t, "AreFoundByTheirNumberTheNewestOfAPeerInAContext", func(t *testing.T, db *storetest.DB) {
		older, newer := said(db.Now(), 1, 7, "W1", 3), said(db.Now(), 2, 7, "W1", 3)
		write(t, db, func(tx *store.Tx) error {
			return tx.AddLoggedMessages([]models.LoggedMessage{newer, older, said(db.Now(), 3, 7, "W2", 3), said(db.Now(), 4, 8, "W1", 3), said(db.Now(), 5, 7, "W1", 4)})
		})
		got, err := db.LoggedMessageByNumber(t.Context(), 7, "W1", 3)
		require.NoError(t, err)
		require.Equal(t, newer, got)
		write(t, db, func(tx *store.Tx) error {
			keys := []store.LineKey{{Context: 7, Peer: "W1", Number: 3}, {Context: 7, Peer: "W9", Number: 3}, {Context: 7, Peer: "W1", Number: 3}, {Context: 8, Peer: "W1", Number: 3}}
			got, err := tx.LoggedMessagesByNumber(keys)
			require.Equal(t, map[store.LineKey]string{keys[0]: newer.ID, keys[3]: said(db.Now(), 4, 8, "W1", 3).ID}, got)
			return err
		})
		_, err = db.LoggedMessageByNumber(t.Context(), 7, "W1", 5)
		require.True(t, errs.Is(err, errs.NotFound), err)
	})

	rule(t, "KeepWhatBothDatabasesCan", func(t *testing.T, db *storetest.DB) {
		odd := said(db.Now(), 1, 7, "W1", 3)
		odd.Data = "a\x00\xff" + strings.Repeat("é", 1000)
		write(t, db, func(tx *store.Tx) error { return tx.AddLoggedMessages([]models.LoggedMessage{odd}) })
		got, err := db.LoggedMessageByNumber(t.Context(), 7, "W1", 3)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(got.Data, "a\uFFFD\uFFFDéé"), got.Data)
		require.LessOrEqual(t, len(got.Data), 800)
	})

	rule(t, "ArePurgedByWhenTheyWereSaid", func(t *testing.T, db *storetest.DB) {
		write(t, db, func(tx *store.Tx) error {
			return tx.AddLoggedMessages([]models.LoggedMessage{said(db.Now(), 1, 7, "W1", 1), said(db.Now().Add(time.Second), 1, 7, "W1", 2), said(db.Now().Add(time.Hour), 1, 7, "W1", 3)})
		})
		require.EqualValues(t, 2, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.PurgeLoggedMessages(db.Now().Add(2*time.Second), 1) }))
		page, err := db.LoggedMessages(t.Context(), models.LoggedMessageQuery{ShortID: models.ShortID{Context: 7, Task: 1}, Limit: 10})
		require.NoError(t, err)
		require.Len(t, page, 1)
		require.Equal(t, 3, page[0].Number)
	})
}
