package v5_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
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
				before, err := tx.Agent("digger")
				if err != nil {
					return err
				}
				after := before
				after.TokenBudget = new(int64(500))
				return tx.UpdateAgent(before, after)
			}))
			require.Contains(t, f.send(t, "user", c.line, 0)[0], "|F|"+c.code+"|0|")
			sessions, err := f.work.Sessions(t.Context(), "", models.TaskCursor{}, 10)
			require.NoError(t, err)
			require.Empty(t, sessions)
			_, err = f.work.SessionOfContext(t.Context(), 1)
			require.True(t, errs.Is(err, errs.NotFound), err)
			for _, tid := range []int{1, 7} {
				_, err = f.work.TaskByShortID(t.Context(), models.ShortID{Context: 1, Task: tid})
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

// TestDeleteSession: only the owner deletes a session, and only an empty one.
func TestDeleteSession(t *testing.T) {
	t.Parallel()
	name := func(n int64) string { return fmt.Sprintf("S%d", n) }
	testOnDatabases(t, "an empty session is deleted with its context", func(t *testing.T, f *fixture) {
		n, err := f.work.OpenContext(t.Context(), principal("user"), nil, name)
		require.NoError(t, err)
		err = f.work.DeleteSession(t.Context(), principal("user2"), name(n))
		require.True(t, errs.Is(err, errs.NotFound), err)
		require.NoError(t, f.work.DeleteSession(t.Context(), principal("user"), name(n)))
		_, err = f.work.Session(t.Context(), name(n))
		require.True(t, errs.Is(err, errs.NotFound), err)
		_, err = f.work.SessionOfContext(t.Context(), n)
		require.True(t, errs.Is(err, errs.NotFound), err)
		err = f.work.DeleteSession(t.Context(), principal("user"), name(n))
		require.True(t, errs.Is(err, errs.NotFound), err)
	})
	testOnDatabases(t, "a session with a name or a task stays", func(t *testing.T, f *fixture) {
		f.agent(t, "digger", "dig")
		n, err := f.work.OpenContext(t.Context(), principal("user"), nil, name)
		require.NoError(t, err)
		requireStays := func() {
			t.Helper()
			err := f.work.DeleteSession(t.Context(), principal("user"), name(n))
			require.True(t, errs.Is(err, errs.TaskState), err)
			_, err = f.work.SessionOfContext(t.Context(), n)
			require.NoError(t, err)
		}
		const id = "01890a5d-ac96-774b-bcce-b302099a8060"
		require.NoError(t, f.work.ClaimShortID(t.Context(), id, models.ShortID{Context: n, Task: 1}))
		requireStays()
		require.NoError(t, f.work.DeleteShortID(t.Context(), id))
		_, err = f.work.Submit(t.Context(), principal("user"), orchestrator.Submission{SessionID: name(n), Capabilities: []string{"dig"}}, nil)
		require.NoError(t, err)
		requireStays()
	})
}
