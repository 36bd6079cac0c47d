package messagelog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/protocol/v5/shortid"
	"comet/store"
	"comet/store/storetest"
)

// stored returns a message as it is stored. A higher n makes a later id.
func stored(at time.Time, n int, of int64, peer string, number int) Message {
	return Message{
		ID: fmt.Sprintf("%08x-%04x-7%03x-8000-000000000000", at.UnixMilli()>>16, at.UnixMilli()&0xffff, n), At: at, Peer: peer, Context: of, Task: 1,
		Number: number, From: peer, To: "O1", Type: "U", State: "R", Data: "progress=50%",
	}
}

func testStore(t *testing.T, name string, fn func(t *testing.T, db *storetest.DB, write func(...Message))) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			fn(t, db, func(all ...Message) {
				t.Helper()
				require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return insert(tx, all) }))
			})
		})
	})
}

func TestStoredMessages(t *testing.T) {
	t.Parallel()

	testStore(t, "are read by task in their order", func(t *testing.T, db *storetest.DB, write func(...Message)) {
		var all []Message
		for n := range 300 { // more than one statement takes
			m := stored(db.Now(), n, 7, "W1", n+1)
			m.Depth = n % 2
			all = append(all, m)
		}
		all[0].Code, all[0].Parent, all[0].ParentID = "E31", 12, all[1].ID
		write(append([]Message{stored(db.Now(), 999, 8, "W1", 1), all[299]}, all[:299]...)...)
		write(all[0]) // again
		of := shortid.ID{Context: 7, Task: 1}
		page, err := byTask(t.Context(), db.Store, of, 0, "", 200)
		require.NoError(t, err)
		require.Equal(t, all[:200], page)
		page, err = byTask(t.Context(), db.Store, of, 0, page[199].ID, 200)
		require.NoError(t, err)
		require.Equal(t, all[200:], page)
		page, err = byTask(t.Context(), db.Store, of, 1, "", 200)
		require.NoError(t, err)
		require.Len(t, page, 150)
		require.Equal(t, all[1], page[0])
	})

	testStore(t, "are found by number, the newest of a peer in a context", func(t *testing.T, db *storetest.DB, write func(...Message)) {
		older, newer := stored(db.Now(), 1, 7, "W1", 3), stored(db.Now(), 2, 7, "W1", 3)
		other := stored(db.Now(), 4, 8, "W1", 3)
		write(newer, older, stored(db.Now(), 3, 7, "W2", 3), other, stored(db.Now(), 5, 7, "W1", 4))
		got, err := byNumber(t.Context(), db.Store, numberKey{7, "W1", 3})
		require.NoError(t, err)
		require.Equal(t, newer, got)
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			keys := []numberKey{{7, "W1", 3}, {7, "W9", 3}, {7, "W1", 3}, {8, "W1", 3}}
			got, err := newestByNumber(tx, keys)
			require.Equal(t, map[numberKey]string{keys[0]: newer.ID, keys[3]: other.ID}, got)
			return err
		}))
		_, err = byNumber(t.Context(), db.Store, numberKey{7, "W1", 5})
		require.True(t, errs.Is(err, errs.NotFound), err)
	})

	testStore(t, "hold only text that both databases can store", func(t *testing.T, db *storetest.DB, write func(...Message)) {
		odd := stored(db.Now(), 1, 7, "W1", 3)
		odd.Data = "a\x00\xff" + strings.Repeat("é", 1000)
		write(odd)
		got, err := byNumber(t.Context(), db.Store, numberKey{7, "W1", 3})
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(got.Data, "a\uFFFD\uFFFDéé"), got.Data)
		require.LessOrEqual(t, len(got.Data), 800)
	})

	testStore(t, "are purged by time", func(t *testing.T, db *storetest.DB, write func(...Message)) {
		write(stored(db.Now(), 1, 7, "W1", 1), stored(db.Now().Add(time.Second), 1, 7, "W1", 2), stored(db.Now().Add(time.Hour), 1, 7, "W1", 3))
		before, total := db.Now().Add(2*time.Second), int64(0)
		for range 3 {
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
				n, err := Purge(tx, before, 1)
				total += n
				return err
			}))
		}
		require.EqualValues(t, 2, total)
		page, err := byTask(t.Context(), db.Store, shortid.ID{Context: 7, Task: 1}, 0, "", 10)
		require.NoError(t, err)
		require.Len(t, page, 1)
		require.Equal(t, 3, page[0].Number)
	})
}
