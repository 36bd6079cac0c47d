package v5_test

import (
	"slices"
	"strconv"
	"sync"
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
			sessions, err := f.work.Sessions(t.Context(), store.SessionQuery{Limit: 10})
			require.NoError(t, err)
			require.Empty(t, sessions)
			_, err = shortid.SessionID(t.Context(), f.db.Store, 1)
			require.True(t, errs.Is(err, errs.NotFound), err)
			for _, tid := range []int{1, 7} {
				_, err = shortid.NewCache(f.db.Store).TaskID(t.Context(), shortid.ID{Context: 1, Task: tid})
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

func TestResolvedTextIsFinal(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "a value that looks like a reference is not resolved again", func(t *testing.T, f *fixture) {
		f.agent(t, "reader", "read")
		f.send(t, "reader", "M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=read", 0)
		f.send(t, "user", "M1|User>O1|R|-|-|N|-|0|-|-|call=read;ctx.secret=s3;keep", 0)
		f.receive(t, "reader")
		f.send(t, "reader", "M2|W1>O1|S|T1|P1|D|-|0|S1|-|found=#CTX:secret;text=#REF:T9:raw", 0)
		f.send(t, "user", "M2|User>O1|R|T2|-|N|-|0|S1|-|call=read;a=#REF:T1:found;b=#REF:T1:text;c=#CTX:secret", 0)
		id, err := shortid.NewCache(f.db.Store).TaskID(t.Context(), shortid.ID{Context: 1, Task: 2})
		require.NoError(t, err)
		order, err := f.work.TaskWithInput(t.Context(), id)
		require.NoError(t, err)
		require.JSONEq(t, `{"a": "#CTX:secret", "b": "#REF:T9:raw", "c": "s3"}`, string(order.Input.Parameters))
	})
}

func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "requests without CTX at the same time are all accepted, each in a session of its own", func(t *testing.T, f *fixture) {
		const count = 64
		f.agent(t, "ada", "search")
		contexts := make([]string, count)
		var senders sync.WaitGroup
		for i := range count {
			senders.Go(func() {
				line := "M" + strconv.Itoa(i+1) + "|User>O1|R|-|P1|N|-|0|-|-|call=search;n=" + strconv.Itoa(i)
				reply := f.Receive(t.Context(), peer("user"), []byte(line), 0)
				if m, err := parse(string(reply.Body)); err == nil && !reply.IsError {
					contexts[i] = m.Context
				}
			})
		}
		senders.Wait()
		require.NotContains(t, contexts, "", "a request was refused")
		slices.Sort(contexts)
		require.Len(t, slices.Compact(contexts), count, "the sessions are distinct")
	})
}
