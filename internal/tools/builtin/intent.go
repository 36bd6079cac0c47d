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
)

const (
	// candidates is the number of tools that a search finds for a step of an intent.
	candidates = 10
	// maxHops is the longest path in the usage graph that makes one step depend on another.
	maxHops = 3
)

// suggestion is the response of agentcards:execute_dag to an intent that is not executed.
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
	p, err := b.propose(ctx, c, sentence)
	if err != nil {
		return nil, err
	}
	if p.Verdict == intent.Execute {
		begun, err := b.Workflows.Begin(ctx, c.Caller, workflow.Draft{Steps: p.Steps, Settings: settings}, "/intent", nil)
		return b.awaitWorkflow(ctx, c, begun.WorkflowID, err)
	}
	out := suggestion{
		Status: p.Verdict, Confidence: p.Confidence, Missing: p.Missing, Unclear: p.Unclear, Alternatives: p.Alternatives,
		NextAction: "Nothing was executed. Call agentcards:execute_dag with workflow instead of intent; agentcards:search_tools finds tools",
	}
	if len(p.Steps) > 0 {
		out.Workflow = &dag{p.Steps}
	}
	return jsonResult(out)
}

// propose returns the plan for an intent over the tools of upstreams that the caller may call.
func (b *builtins) propose(ctx context.Context, c *tools.Invocation, sentence string) (intent.Proposal, error) {
	allowed := func(id string) bool {
		t := c.Find(id)
		return t != nil && !t.IsBuiltin()
	}
	density := 0.0
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
		density = found.Meta.Density
		for _, hit := range found.Hits {
			t := c.Find(hit.ID)
			schema, _ := json.Marshal(t.Definition.InputSchema) // it was decoded from JSON
			out = append(out, intent.Tool{
				ID: t.ID, Description: t.Definition.Description, InputSchema: schema, Class: t.Class, Score: hit.Score, PageRank: b.Index.PageRank(t.ID),
			})
		}
		return out
	}
	find(sentence) // the density of the graph
	p, err := intent.Propose(intent.Request{
		Sentence: sentence, Find: find, Density: density, Hops: func(from, to string) int { return b.Index.Hops(from, to, maxHops) },
	})
	switch {
	case errs.Is(err, errs.InvalidRequest):
		return p, c.Invalid("%s", tools.Detail(err))
	case err == nil:
		err = failed
	}
	return p, err
}
