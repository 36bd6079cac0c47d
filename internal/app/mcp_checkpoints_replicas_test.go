package app_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/workflow"
	"comet/store/storetest"
)

// asksTwice is a workflow with two steps that need approval, one after the other.
const asksTwice = `{"workflow":{"tasks":[
	{"id":"a","tool":"paper:echo","arguments":{"n":1},"approve":true},{"id":"b","tool":"paper:echo","arguments":{"n":2},"depends_on":["a"],"approve":true}]}}`

// TestMCPAnswersAtAnotherReplica checks that a question in the result of a call (2026-07-28) can be answered at another
// replica while the replica that asked is alive, and that only the first answer counts.
func TestMCPAnswersAtAnotherReplica(t *testing.T) {
	t.Parallel()
	if slices.Contains(storetest.Databases(), "postgres") { // which replicas share
		testAnswersAtAnotherReplica(t)
	}
}

func testAnswersAtAnotherReplica(t *testing.T) {
	t.Helper()
	const dag = "agentcards:execute_dag"
	paper := mcptest.NewPaper(t, "paper")
	h := openHub(t, "postgres", nil, paper)
	cfg := h.cfg
	cfg.Data, cfg.SecretKeyFile = t.TempDir(), filepath.Join(h.cfg.Data, "secret.key")
	other := started(t, cfg)
	t.Cleanup(func() { require.NoError(t, other.Stop(context.WithoutCancel(t.Context()))) })
	(&hub{client: newClient(t, other.URL(), h.Token)}).awaitTools(t, "paper")
	who := h.holder(t, "")
	first, second := who.asking(elicits), newClient(t, other.URL(), who.Token).asking(elicits)
	ask := func(t *testing.T, args string) taskReply {
		t.Helper()
		asked := first.call(t, dag, json.RawMessage(args))
		require.Equal(t, "input_required", asked.ResultType)
		return asked
	}
	answer := func(t *testing.T, asked taskReply, args, decision string) map[string]any {
		t.Helper()
		return callOf(dag, json.RawMessage(args), "requestState", asked.RequestState,
			"inputResponses", map[string]any{asked.key(t): accepts(map[string]any{"decision": decision})})
	}
	refused := func(t *testing.T, at taskClient, params map[string]any) {
		t.Helper()
		_, failed := at.try(t, "tools/call", dag, params)
		require.NotNil(t, failed)
		require.EqualValues(t, -32602, failed.Code)
	}

	t.Run("EachReplicaAcceptsTheAnswerOnce", func(t *testing.T) {
		before := paper.Calls()
		asked := ask(t, asksTwice)
		refused(t, second, answer(t, asked, asksForApproval, "approve")) // another call
		again := second.must(t, "tools/call", dag, answer(t, asked, asksTwice, "approve"))
		require.Equal(t, "input_required", again.ResultType)
		require.NotEqual(t, asked.key(t), again.key(t))
		refused(t, first, answer(t, asked, asksTwice, "approve"))
		refused(t, second, answer(t, asked, asksTwice, "reject"))
		out := first.must(t, "tools/call", dag, answer(t, again, asksTwice, "approve"))
		require.Equal(t, "complete", out.StructuredContent["status"])
		require.EqualValues(t, 2, paper.Calls()-before)
	})

	t.Run("OneOfTwoAnswersCounts", func(t *testing.T) {
		for range 10 {
			before := paper.Calls()
			asked := ask(t, asksForApproval)
			var wg sync.WaitGroup
			for at, decision := range map[*taskClient]string{&first: "approve", &second: "reject"} {
				params := answer(t, asked, asksForApproval, decision)
				wg.Go(func() {
					out, failed := at.try(t, "tools/call", dag, params)
					if failed != nil {
						assert.EqualValues(t, -32602, failed.Code, "the state was used")
					} else { // a replica that does not execute the workflow does not wait for its end
						assert.Contains(t, []any{"complete", "rejected", "running"}, out.StructuredContent["status"])
					}
				})
			}
			wg.Wait()
			id, _, _ := strings.Cut(asked.RequestState, ".")
			var v workflow.View
			eventually(t, func() bool {
				v = get[workflow.View](t, who.client, "/api/v1/workflows/"+id)
				return v.Status == "complete" || v.Status == "rejected"
			}, "the workflow ends")
			decisions := get[struct{ Checkpoints []workflow.CheckpointRecord }](t, who.client, "/api/v1/workflows/"+id+"/checkpoints").Checkpoints
			require.Len(t, decisions, 1)
			want, calls := "rejected", 0
			if v.Status == "complete" {
				want, calls = "approved", 1
			}
			require.Equal(t, want, decisions[0].State)
			require.EqualValues(t, calls, paper.Calls()-before, v.Status)
		}
	})
}
