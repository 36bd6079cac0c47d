package builtin

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/tools"
	"comet/internal/toolsearch"
	"comet/internal/workflow"
	"comet/internal/workflow/intent"
	"comet/internal/workflow/plan"
)

const (
	// candidates is the number of tools that a search finds for a step of an intent.
	candidates = 10
	// maxHops is the longest path in the usage graph that makes one step depend on another.
	maxHops = 3
)

// suggestion is the response to an intent that is not executed, and to a requirement that is not added.
type suggestion struct {
	// Status is suggestion or explicit_required.
	Status     intent.Verdict `json:"status"`
	Confidence float64        `json:"confidence"`
	// Workflow is the plan as far as the intent states it, absent without steps.
	Workflow     *dag                 `json:"workflow,omitempty"`
	Missing      []intent.Missing     `json:"missing"`
	Unclear      []string             `json:"unclear"`
	Alternatives []intent.Alternative `json:"alternatives"`
	NextAction   string               `json:"next_action"`
}

// executeIntent executes the plan for an intent, or returns the plan if it is not complete or not certain.
func (b *builtins) executeIntent(ctx context.Context, c *tools.Invocation, sentence string, settings workflow.Settings) (*mcp.CallToolResult, error) {
	p, err := b.propose(ctx, c, intent.Request{Sentence: sentence})
	if err != nil {
		return nil, err
	}
	if p.Verdict == intent.Execute {
		begun, err := b.Workflows.Begin(ctx, c.Caller, workflow.Draft{Steps: p.Steps, Settings: settings}, "/intent", nil)
		return b.awaitWorkflow(ctx, c, begun.WorkflowID, err)
	}
	return suggest(p, "Nothing was executed. Call agentcards:execute_dag with workflow instead of intent; agentcards:search_tools finds tools")
}

// replanWorkflow executes agentcards:replan.
func (b *builtins) replanWorkflow(ctx context.Context, c *tools.Invocation) (*mcp.CallToolResult, error) {
	var d struct {
		WorkflowID       string          `json:"workflow_id" validate:"required,max=64"`
		NewRequirement   string          `json:"new_requirement" validate:"required,max=8000"`
		AvailableContext json.RawMessage `json:"available_context"`
		Workflow         *dag            `json:"workflow"`
	}
	if err := c.Decode(&d); err != nil {
		return nil, err
	}
	add := workflow.Requirement{Text: d.NewRequirement, At: "/workflow/tasks"}
	var p intent.Proposal
	if d.Workflow != nil {
		add.Steps = d.Workflow.Tasks
	} else {
		add.At = "/new_requirement"
		add.Plan = func(taken func(string) bool) (steps []plan.Step, err error) {
			if p, err = b.propose(ctx, c, intent.Request{Sentence: d.NewRequirement, Context: d.AvailableContext, Taken: taken}); p.Verdict == intent.Execute {
				steps = p.Steps
			}
			return steps, err
		}
	}
	out, err := b.Workflows.Replan(ctx, c.Caller.Principal, d.WorkflowID, add)
	switch {
	case err != nil:
		return nil, pointed(c, err)
	case out.Status == "":
		return suggest(p, "Nothing was added. Call agentcards:replan with workflow as well; agentcards:search_tools finds tools")
	}
	return jsonResult(out)
}

// suggest returns a plan that is not executed.
func suggest(p intent.Proposal, next string) (*mcp.CallToolResult, error) {
	out := suggestion{Status: p.Verdict, Confidence: p.Confidence, Missing: p.Missing, Unclear: p.Unclear, Alternatives: p.Alternatives, NextAction: next}
	if len(p.Steps) > 0 {
		out.Workflow = &dag{p.Steps}
	}
	return jsonResult(out)
}

// propose returns the plan for a sentence over the tools of upstreams that the caller may call.
func (b *builtins) propose(ctx context.Context, c *tools.Invocation, r intent.Request) (intent.Proposal, error) {
	allowed := func(id string) bool {
		t := c.Find(id)
		return t != nil && !t.IsBuiltin()
	}
	var failed error
	find := func(text string) (out []intent.Tool) {
		if len(text) > toolsearch.MaxText {
			return nil
		}
		found, err := b.Index.Search(ctx, toolsearch.Query{Text: text, Limit: candidates, Allowed: allowed})
		if err != nil {
			failed = err
			return nil
		}
		r.Density = found.Meta.Density
		for _, hit := range found.Hits {
			t := c.Find(hit.ID)
			schema, _ := json.Marshal(t.Definition.InputSchema) // it was decoded from JSON
			out = append(out, intent.Tool{
				ID: t.ID, Description: t.Definition.Description, InputSchema: schema, Class: t.Class, Score: hit.Score, PageRank: b.Index.PageRank(t.ID),
			})
		}
		return out
	}
	find(r.Sentence) // the density of the graph
	r.Find, r.Hops = find, func(from, to string) int { return b.Index.Hops(from, to, maxHops) }
	p, err := intent.Propose(r)
	switch {
	case errs.Is(err, errs.InvalidRequest):
		return p, c.Invalid("%s", tools.Detail(err))
	case err == nil:
		err = failed
	}
	return p, err
}
