package workflow_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/internal/workflow"
	"comet/models"
	"comet/store"
)

// as returns the fixture with another client.
func (f *fixture) as(c *toolstest.Client) *fixture { return &fixture{c, f.tools, f.paper, f.db} }

// decideAs decides on the checkpoint of a view over the engine, and returns the name of the error.
func (f *fixture) decideAs(t *testing.T, by models.Principal, v view, d workflow.Decision) string {
	t.Helper()
	err := f.tools.Workflows.Decide(t.Context(), by, v["workflow_id"].(string), v["checkpoint_id"].(string), d)
	if err == nil {
		return ""
	}
	require.NotEmpty(t, tools.ErrorName(err), "%v", err)
	return tools.ErrorName(err)
}

// approvers returns the principals of the matrix by name. The owner is a token of the agent payer, which is below
// orch-my-team; it has the scope workflows:approve, too.
func (f *fixture) approvers(t *testing.T) map[string]models.Principal {
	t.Helper()
	f.tools.AddAgent(t, "payer", 100_000)
	f.tools.AddAgent(t, "runner", 100_000)
	client := func(agent string, scopes ...models.Scope) models.Principal {
		return f.tools.Client(t, agent, scopes...).Principal
	}
	f.Client = f.tools.Client(t, "payer", models.ScopeToolsCall, models.ScopeMessagesSend, models.ScopeWorkflowsApprove)
	return map[string]models.Principal{
		"owner":         f.Principal,
		"same agent":    client("payer", models.ScopeWorkflowsApprove),
		"manager":       client("orch-my-team", models.ScopeWorkflowsApprove),
		"sibling":       client("runner", models.ScopeWorkflowsApprove),
		"person":        client("", models.ScopeWorkflowsApprove),
		"without scope": client("", models.ScopeToolsCall),
		"bound admin":   client("orch-my-team", models.ScopeAdmin),
		"administrator": client("", models.ScopeAdmin),
	}
}

// TestApprovers decides on approvals with every policy and token.
func TestApprovers(t *testing.T) {
	t.Parallel()
	const hidden, denied = "WORKFLOW_NOT_FOUND", "APPROVAL_DENIED"
	for policy, want := range map[string]map[string]string{
		"caller": {
			"owner": "", "same agent": hidden, "manager": hidden, "sibling": hidden, "person": hidden, "without scope": hidden, "bound admin": hidden, "administrator": "",
		},
		"other": {
			"owner": denied, "same agent": denied, "manager": "", "sibling": hidden, "person": "", "without scope": hidden, "bound admin": "", "administrator": "",
		},
		"human": {
			"owner": denied, "same agent": denied, "manager": denied, "sibling": hidden, "person": "", "without scope": hidden, "bound admin": denied, "administrator": "",
		},
	} {
		testOnDatabases(t, policy, workflow.Options{}, func(t *testing.T, f *fixture) {
			tokens := f.approvers(t)
			require.Len(t, want, len(tokens))
			for name, by := range tokens {
				v := f.dag(t, `[{"id": "a", "tool": "paper:note", "approve": true}]`, "config", map[string]any{"approver": policy})
				require.Equal(t, "approval_required", v["status"], "%v", v)
				id := v["workflow_id"].(string)
				seen, err := f.tools.Workflows.Get(t.Context(), by, id)
				require.Equal(t, want[name] == hidden, errs.Is(err, errs.NotFound), "%s sees it: %v", name, err)
				if err == nil && policy != "caller" {
					require.Equal(t, policy, string(seen.Approver))
				}
				require.Equal(t, want[name], f.decideAs(t, by, v, workflow.Decision{Approved: true}), "%s approves", name)
				require.Equal(t, want[name] == "", f.listed(t, by, id) && f.status(t, id) != "paused", name)
				if want[name] != "" {
					require.False(t, f.decidable(t, by, id), "%s", name)
					require.Empty(t, f.decideAs(t, f.Principal, v, workflow.Decision{}), "the owner may reject")
				}
			}
		})
	}
}

// status returns the state of a workflow.
func (f *fixture) status(t *testing.T, id string) string {
	t.Helper()
	list, err := f.tools.Workflows.List(t.Context(), f.Principal, workflow.Query{Limit: 100})
	require.NoError(t, err)
	for _, w := range list {
		if w.WorkflowID == id {
			return w.Status
		}
	}
	return ""
}

func (f *fixture) listed(t *testing.T, by models.Principal, id string) bool {
	t.Helper()
	list, err := f.tools.Workflows.List(t.Context(), by, workflow.Query{Limit: 100})
	require.NoError(t, err)
	return slices.ContainsFunc(list, func(w workflow.Summary) bool { return w.WorkflowID == id })
}

// decidable reports whether a list of the workflows that wait for a principal has one.
func (f *fixture) decidable(t *testing.T, by models.Principal, id string) bool {
	t.Helper()
	list, err := f.tools.Workflows.List(t.Context(), by, workflow.Query{Limit: 100, Decidable: true})
	require.NoError(t, err)
	return slices.ContainsFunc(list, func(w workflow.Summary) bool { return w.WorkflowID == id })
}

func TestDecidable(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "lists", workflow.Options{}, func(t *testing.T, f *fixture) {
		tokens := f.approvers(t)
		start := func(tasks string, config map[string]any) string {
			return f.dag(t, tasks, "config", config)["workflow_id"].(string)
		}
		const approval, layers = `[{"id": "a", "tool": "paper:note", "approve": true}]`, `[{"id": "a", "tool": "paper:note"}, {"id": "b", "tool": "paper:note", "depends_on": ["a"]}]`
		ids := map[string]string{
			"caller": start(approval, map[string]any{}), "other": start(approval, map[string]any{"approver": "other"}), "human": start(approval, map[string]any{"approver": "human"}),
			"layer": start(layers, map[string]any{"approver": "other", "per_layer_validation": true}), "ended": start(layers, map[string]any{"approver": "other"}),
		}
		for name, want := range map[string][]string{
			"owner": {"caller", "layer"}, "same agent": {}, "manager": {"other"}, "sibling": {}, "person": {"human", "other"}, "without scope": {}, "bound admin": {"other"},
			"administrator": {"caller", "human", "layer", "other"},
		} {
			got := []string{}
			for kind, id := range ids {
				if f.decidable(t, tokens[name], id) {
					got = append(got, kind)
				}
			}
			slices.Sort(got)
			require.Equal(t, want, got, name)
		}
	})
}

// TestOnlyTheOwnerDecidesAboutOthers checks that approvers cannot continue, abort or raise the budget, but can decide about
// lost results.
func TestOnlyTheOwnerDecidesAboutOthers(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "layers and budgets", workflow.Options{}, func(t *testing.T, f *fixture) {
		person := f.approvers(t)["person"]
		v := f.dag(t, `[{"id": "a", "tool": "paper:note"}, {"id": "b", "tool": "paper:note", "depends_on": ["a"]}]`, "config", map[string]any{"approver": "other", "per_layer_validation": true})
		id := v["workflow_id"].(string)
		require.Equal(t, "APPROVAL_DENIED", tools.ErrorName(f.tools.Workflows.Continue(t.Context(), person, id, "", "")))
		require.Equal(t, "APPROVAL_DENIED", tools.ErrorName(f.tools.Workflows.Abort(t.Context(), person, id, "no")))
		require.Equal(t, "APPROVAL_DENIED", f.decideAs(t, person, v, workflow.Decision{Approved: true}))
		require.Equal(t, "APPROVAL_DENIED", f.decideAs(t, person, v, workflow.Decision{}))
		v = f.dag(t, `[{"id": "a", "tool": "paper:note", "arguments": {"text": "more than one token"}}]`, "config", map[string]any{"approver": "other", "budget": 1})
		require.Equal(t, "budget_exhausted", v["status"])
		require.Equal(t, "APPROVAL_DENIED", f.decideAs(t, person, v, workflow.Decision{Approved: true, Resolution: workflow.ResolutionRaise, Budget: 100}))
		require.Equal(t, "complete", f.decide(t, v, true, "resolution", "raise", "budget", 100)["status"])
	})
	testOnDatabases(t, "lost results", workflow.Options{}, func(t *testing.T, f *fixture) {
		person := f.approvers(t)["person"]
		v := f.dag(t, `[{"id": "a", "tool": "paper:held", "timeout_ms": 20}]`, "config", map[string]any{"approver": "human"})
		require.Equal(t, "uncertain", v["status"])
		d := workflow.Decision{Approved: true, Resolution: workflow.ResolutionSkip}
		require.Equal(t, "APPROVAL_DENIED", f.decideAs(t, f.Principal, v, d))
		require.Empty(t, f.decideAs(t, person, v, d))
	})
	testOnDatabases(t, "an elicitation", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.approvers(t)
		for policy, want := range map[string]string{"human": "", "other": "APPROVAL_DENIED"} {
			v := f.dag(t, `[{"id": "a", "tool": "paper:note", "approve": true}]`, "config", map[string]any{"approver": policy})
			require.Equal(t, want, f.decideAs(t, f.Principal, v, workflow.Decision{Approved: true, Via: workflow.ViaElicitation}), policy)
			if want == "" {
				via, err := store.Row[string](f.db.Reads(t.Context()), "SELECT via FROM checkpoints WHERE id = ?", v["checkpoint_id"])
				require.NoError(t, err)
				require.Equal(t, "elicitation", via)
			}
		}
	})
}

// TestAgentsDoNotApproveTheirOwnSteps checks that an agent cannot approve a step that it executes, whatever the policy.
func TestAgentsDoNotApproveTheirOwnSteps(t *testing.T) {
	t.Parallel()
	const named, offered = `[{"id": "a", "type": "agent_task", "agent_id": "orch-my-team", "approve": true}]`, `[{"id": "a", "type": "agent_task", "capability": "custom:x", "approve": true}]`
	testOnDatabases(t, "other", workflow.Options{}, func(t *testing.T, f *fixture) {
		tokens := f.approvers(t)
		for _, tasks := range []string{named, offered} {
			v := f.dag(t, tasks, "config", map[string]any{"approver": "other"})
			require.Equal(t, "APPROVAL_DENIED", f.decideAs(t, tokens["manager"], v, workflow.Decision{Approved: true}))
			require.Empty(t, f.decideAs(t, tokens["manager"], v, workflow.Decision{}), "it may reject the step")
		}
	})
	testOnDatabases(t, "caller", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.Client = f.tools.Client(t, "orch-my-team", models.ScopeToolsCall, models.ScopeMessagesSend)
		v := f.dag(t, named)
		require.Equal(t, "approval_required", v["status"], "%v", v)
		require.Equal(t, "APPROVAL_DENIED", f.decideAs(t, f.Principal, v, workflow.Decision{Approved: true}))
	})
	testOnDatabases(t, "over the tool", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.approvers(t)
		v := f.dag(t, `[{"id": "a", "tool": "paper:note", "approve": true}]`, "config", map[string]any{"approver": "other"})
		f.RequireFails(t, "APPROVAL_DENIED", "agentcards:approval_response", decision(v, true))
		other := f.as(f.tools.Client(t, "", models.ScopeToolsCall, models.ScopeWorkflowsApprove))
		got := other.decide(t, v, true)
		require.Equal(t, "complete", got["status"])
		f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:execute_dag", map[string]any{"workflow": map[string]any{"tasks": []any{}}, "config": map[string]any{"approver": "several"}})
	})
}
