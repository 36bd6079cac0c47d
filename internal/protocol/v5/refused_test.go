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

// TestARefusedRequestLeavesNothing: neither the session that was made for it, nor its
// name, nor a number that nobody has heard of.
func TestARefusedRequestLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ line, code string }{
		"where nobody offers it":            {"M1|User>O1|R|-|P1|N|-|0|-|-|call=fly", "E19"},
		"where no budget covers it":         {"M1|User>O1|R|-|P1|N|-|0|-|B600|call=dig", "E17"},
		"where a reference leads nowhere":   {"M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;at=#REF:T7:raw", "E43"},
		"where there is no such fact":       {"M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;at=#CTX:place;keep", "E43"},
		"where its asker has named it, too": {"M1|User>O1|R|T7|P1|N|-|0|-|-|call=fly", "E19"},
	} {
		rule(t, name, func(t *testing.T, h *house) {
			h.agent(t, "digger", "dig")
			h.says(t, "digger", "M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=dig", 0)
			require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
				before, err := tx.Agent("digger")
				if err != nil {
					return err
				}
				after := before
				after.TokenBudget = new(int64(500))
				return tx.UpdateAgent(before, after)
			}))
			require.Contains(t, h.says(t, "user", c.line, 0)[0], "|F|"+c.code+"|0|")
			sessions, err := h.work.Sessions(t.Context(), "", models.TaskCursor{}, 10)
			require.NoError(t, err)
			require.Empty(t, sessions)
			_, err = h.work.SessionOfContext(t.Context(), 1)
			require.True(t, errs.Is(err, errs.NotFound), err)
			for _, tid := range []int{1, 7} {
				_, err = h.work.TaskByShortID(t.Context(), models.ShortID{Context: 1, Task: tid})
				require.True(t, errs.Is(err, errs.NotFound), err)
			}
			require.Contains(t, h.says(t, "user", "M2|User>O1|R|-|P1|N|-|0|-|-|call=dig", 0)[0], "|A|T1|P1|N|-|0|S1|-|accepted")
		})
	}
	rule(t, "and a session that was there stays", func(t *testing.T, h *house) {
		h.agent(t, "digger", "dig")
		h.says(t, "digger", "M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=dig", 0)
		require.Contains(t, h.says(t, "user", "M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;keep", 0)[0], "|S1|-|accepted")
		require.Contains(t, h.says(t, "user", "M2|User>O1|R|-|P1|N|-|0|S1|-|call=fly", 0)[0], "|F|E19|")
		require.Contains(t, h.says(t, "user", "M3|User>O1|R|-|P1|N|-|0|S1|-|call=dig", 0)[0], "|A|T2|P1|N|-|0|S1|-|accepted", "the TID too")
	})
}

// TestDropSession is for whoever made it, and while nothing is in it.
func TestDropSession(t *testing.T) {
	t.Parallel()
	named := func(n int64) string { return fmt.Sprintf("S%d", n) }
	rule(t, "one that is empty goes, with its context", func(t *testing.T, h *house) {
		n, err := h.work.OpenContext(t.Context(), principal("user"), nil, named)
		require.NoError(t, err)
		err = h.work.DeleteSession(t.Context(), principal("stranger"), named(n))
		require.True(t, errs.Is(err, errs.NotFound), err)
		require.NoError(t, h.work.DeleteSession(t.Context(), principal("user"), named(n)))
		_, err = h.work.Session(t.Context(), named(n))
		require.True(t, errs.Is(err, errs.NotFound), err)
		_, err = h.work.SessionOfContext(t.Context(), n)
		require.True(t, errs.Is(err, errs.NotFound), err)
		err = h.work.DeleteSession(t.Context(), principal("user"), named(n))
		require.True(t, errs.Is(err, errs.NotFound), err)
	})
	rule(t, "one in which a name is taken, or a task is, stays", func(t *testing.T, h *house) {
		h.agent(t, "digger", "dig")
		n, err := h.work.OpenContext(t.Context(), principal("user"), nil, named)
		require.NoError(t, err)
		stays := func() {
			t.Helper()
			err := h.work.DeleteSession(t.Context(), principal("user"), named(n))
			require.True(t, errs.Is(err, errs.TaskState), err)
			_, err = h.work.SessionOfContext(t.Context(), n)
			require.NoError(t, err)
		}
		const id = "01890a5d-ac96-774b-bcce-b302099a8060"
		require.NoError(t, h.work.ClaimShortID(t.Context(), id, models.ShortID{Context: n, Task: 1}))
		stays()
		require.NoError(t, h.work.DeleteShortID(t.Context(), id))
		_, err = h.work.Submit(t.Context(), principal("user"), orchestrator.Submission{SessionID: named(n), Capabilities: []string{"dig"}}, nil)
		require.NoError(t, err)
		stays()
	})
}
