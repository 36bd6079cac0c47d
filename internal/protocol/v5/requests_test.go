package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/protocol/v5/shortid"
	"comet/store"
)

// TestRejectedRequest leaves neither the session that was opened for it, nor its name, nor a used
// message number.
func TestRejectedRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ line, code string }{
		"no agent has the capability":      {"M1|User>O1|R|-|P1|N|-|0|-|-|call=fly", "E19"},
		"no budget covers it":              {"M1|User>O1|R|-|P1|N|-|0|-|B600|call=dig", "E17"},
		"a reference refers to nothing":    {"M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;at=#REF:T7:raw", "E43"},
		"a fact does not exist":            {"M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;at=#CTX:place;keep", "E43"},
		"the requester has chosen the TID": {"M1|User>O1|R|T7|P1|N|-|0|-|-|call=fly", "E19"},
	} {
		testOnDatabases(t, name, func(t *testing.T, f *fixture) {
			f.agent(t, "digger", "dig")
			f.send(t, "digger", "M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=dig", 0)
			require.NoError(t, f.db.Write(t.Context(), func(tx *store.Tx) error {
				before, err := tx.Agents().Lock("digger")
				if err != nil {
					return err
				}
				after := before
				after.TokenBudget = new(int64(500))
				return tx.Agents().Update(before, after)
			}))
			require.Contains(t, f.send(t, "user", c.line, 0)[0], "|F|"+c.code+"|0|")
			sessions, err := f.work.Sessions(t.Context(), "", store.TaskCursor{}, 10)
			require.NoError(t, err)
			require.Empty(t, sessions)
			_, err = shortid.SessionID(t.Context(), f.db.Store, 1)
			require.True(t, errs.Is(err, errs.NotFound), err)
			for _, tid := range []int{1, 7} {
				_, err = shortid.TaskID(t.Context(), f.db.Store, shortid.ID{Context: 1, Task: tid})
				require.True(t, errs.Is(err, errs.NotFound), err)
			}
			require.Contains(t, f.send(t, "user", "M2|User>O1|R|-|P1|N|-|0|-|-|call=dig", 0)[0], "|A|T1|P1|N|-|0|S1|-|accepted")
		})
	}
	testOnDatabases(t, "an existing session stays", func(t *testing.T, f *fixture) {
		f.agent(t, "digger", "dig")
		f.send(t, "digger", "M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=dig", 0)
		require.Contains(t, f.send(t, "user", "M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;keep", 0)[0], "|S1|-|accepted")
		require.Contains(t, f.send(t, "user", "M2|User>O1|R|-|P1|N|-|0|S1|-|call=fly", 0)[0], "|F|E19|")
		require.Contains(t, f.send(t, "user", "M3|User>O1|R|-|P1|N|-|0|S1|-|call=dig", 0)[0], "|A|T2|P1|N|-|0|S1|-|accepted", "and the TID is free again")
	})
}
