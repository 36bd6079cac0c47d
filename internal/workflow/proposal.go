package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"comet/internal/tools"
	"comet/internal/toolsearch"
	"comet/internal/workflow/intent"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store/workflows"
)

const (
	// candidates is the number of tools that a search finds for a step of an intent.
	candidates = 10
	// maxHops is the longest path in the usage graph that makes one step depend on another.
	maxHops = 3
)

// Ready is the status of a plan that can start.
const Ready = "ready"

// Proposal is a workflow that was checked and not started.
type Proposal struct {
	// `ready` if the workflow can start. The other values are only for an intent: `suggestion` if its plan is not complete or
	// not certain, `explicit_required` if its confidence is low.
	Status string `json:"status" enums:"ready,suggestion,explicit_required" example:"suggestion"`

	Tasks            []PlannedTask `json:"tasks,omitempty"`                         // The tasks, in the order of the request; absent if it cannot start.
	TotalLayers      int           `json:"total_layers,omitempty" example:"2"`      // Number of layers; absent if it cannot start.
	ParallelBranches int           `json:"parallel_branches,omitempty" example:"2"` // The largest number of tasks in a layer; absent if it cannot start.

	Confidence   *float64             `json:"confidence,omitempty" example:"0.64"`                      // The confidence of the weakest task, 0 to 1; only for an intent.
	Workflow     *Graph               `json:"workflow,omitempty"`                                       // The plan, as far as the intent determines it; only for an intent with tasks.
	Missing      []intent.Missing     `json:"missing,omitzero"`                                         // The required arguments without a value; only for an intent.
	Unclear      []string             `json:"unclear,omitzero" example:"either mail:send or chat:send"` // The parts of the sentence that no task expresses; only for an intent.
	Alternatives []intent.Alternative `json:"alternatives,omitzero"`                                    // Other tools for the tasks; only for an intent.
	NextAction   string               `json:"next_action,omitempty" example:"Nothing was executed."`    // The next call for an MCP client.
} // @name WorkflowPlan

// propose returns the plan for a sentence, with the tools of upstreams that the caller may call. It
// sets the search functions of r. It returns errs.InvalidRequest for a sentence that is empty or too long.
func (e *Engine) propose(ctx context.Context, by tools.Caller, r intent.Request) (out Proposal, err error) {
	catalogue, err := e.Tools.Catalogue(ctx, by)
	if err != nil {
		return out, err
	}
	allowed := func(id string) bool {
		t := catalogue.Find(id)
		return t != nil && !t.IsBuiltin()
	}
	var failed error // of a search
	r.Hops = func(from, to string) int { return e.Index.Hops(from, to, maxHops) }
	r.Find = func(text string) (out []intent.Tool) {
		if len(text) > toolsearch.MaxText {
			return nil
		}
		found, err := e.Index.Search(ctx, toolsearch.Query{Text: text, Limit: candidates, Allowed: allowed})
		if err != nil {
			failed = err
			return nil
		}
		r.Density = found.Meta.Density
		for _, hit := range found.Hits {
			if !e.Index.Ranked(hit.ID) { // a rank of 0 would lower the confidence
				r.Density = 0
			}
			t := catalogue.Find(hit.ID)
			schema, _ := json.Marshal(t.Definition.InputSchema) // it was decoded from JSON
			out = append(out, intent.Tool{
				ID: t.ID, Description: t.Definition.Description, InputSchema: schema, Class: t.Class, Score: hit.Score, PageRank: e.Index.PageRank(t.ID),
			})
		}
		return out
	}
	r.Find(r.Sentence) // the density of the graph
	p, err := intent.Propose(r)
	if err = cmp.Or(err, failed); err != nil {
		return out, err
	}
	out = Proposal{Status: Ready, Confidence: &p.Confidence, Missing: p.Missing, Unclear: p.Unclear, Alternatives: p.Alternatives}
	if p.Verdict != intent.Execute {
		out.Status = string(p.Verdict)
		out.NextAction = "Nothing was executed. Call agentcards:execute_dag with workflow instead of intent; agentcards:search_tools finds tools"
	}
	if len(p.Steps) > 0 {
		out.Workflow = &Graph{p.Steps}
	}
	return out, nil
}

// Node is a step and the steps that it depends on.
type Node struct {
	ID        string    `json:"id" example:"t1"`                                                                         // The task's id in the workflow.
	Type      plan.Kind `json:"type" swaggertype:"string" enums:"mcp_tool,code_execution,agent_task" example:"mcp_tool"` // The type of the task.
	Tool      string    `json:"tool,omitempty" example:"filesystem:write_file"`                                          // The tool; absent for agent_task.
	Agent     string    `json:"agent_id,omitempty" example:"research-web-01"`                                            // The requested agent.
	Ability   string    `json:"capability,omitempty" example:"web_search"`                                               // The required capability of the agent.
	Layer     int       `json:"layer" example:"2"`                                                                       // Its layer, from 1.
	DependsOn []string  `json:"depends_on" example:"t0"`                                                                 // Ids of the tasks that must succeed first, including those that its arguments refer to.
}

// node returns a step and the steps that it depends on.
func (x *execution) node(i int) Node {
	s := x.plan.Steps[i]
	n := Node{ID: s.ID, Type: s.Type, Tool: s.Tool, Agent: s.AgentID, Ability: s.Capability, Layer: s.Layer, DependsOn: []string{}}
	if s.Type == plan.KindCode {
		n.Tool = codeTool
	}
	for _, to := range s.Needs {
		n.DependsOn = append(n.DependsOn, x.plan.Steps[to].ID)
	}
	return n
}

// PlannedTask is a step that was checked.
type PlannedTask struct {
	Node
	Class    models.ToolClass `json:"class" swaggertype:"string" enums:"read,write,destructive" example:"write"` // The class of the task: what it may do.
	Approval bool             `json:"approval" example:"true"`                                                   // Whether the task needs approval before it begins.
} // @name WorkflowPlannedTask

// describe adds the steps, whose tools are targets, to the plan of a workflow that can start.
func (x *execution) describe(p *Proposal, targets []tools.Target) {
	p.TotalLayers, p.ParallelBranches = x.plan.Layers, x.plan.Width
	for i, s := range x.plan.Steps {
		t := PlannedTask{Node: x.node(i), Class: models.ToolDestructive}
		if s.Type != plan.KindAgent {
			t.Tool, t.Class = targets[i].ID, targets[i].Class
		}
		t.Approval = x.classNeedsApproval(i, t.Class)
		p.Tasks = append(p.Tasks, t)
	}
}

// StateGraph is the graph of a stored workflow with the states of its steps.
type StateGraph struct {
	WorkflowID string      `json:"workflow_id" example:"wf_034530bbngmsf6j6dh3xtmbr4g"`                   // The workflow's id.
	Status     string      `json:"status" enums:"running,paused,complete,aborted,error" example:"paused"` // The state of the workflow.
	Tasks      []StateNode `json:"tasks"`                                                                 // The tasks, in the order of the request.
	Version    int64       `json:"-"`
} // @name WorkflowStateGraph

// StateNode is a step of a stored workflow with its state.
type StateNode struct {
	Node
	Status    string     `json:"status" enums:"pending,running,success,error,skipped,uncertain" example:"success"` // The state.
	Attempts  int        `json:"attempts" example:"1"`                                                             // Number of attempts that have started.
	StartedAt *time.Time `json:"started_at,omitempty" example:"2026-01-10T15:30:00Z"`                              // When the last attempt started; absent before the first.
	EndedAt   *time.Time `json:"ended_at,omitempty" example:"2026-01-10T15:30:02Z"`                                // When the task ended; absent until then.
	TaskID    string     `json:"task_id,omitempty" example:"01890a5d-ac96-774b-bcce-b302099a8058"`                 // Id of the task of an agent_task, as in `/api/v1/tasks/{task_id}`; absent for other kinds and until it is submitted.
	Worker    string     `json:"worker_id,omitempty" example:"research-web-01"`                                    // The agent that executes the task of an agent_task; absent until one is assigned.
	ErrorCode string     `json:"error_code,omitempty" example:"TOOL_NOT_FOUND"`                                    // Why the task failed, as a code.
	Error     string     `json:"error,omitempty" example:"the disk is full"`                                       // Why the task failed.
	Tokens    int64      `json:"tokens,omitempty" example:"310"`                                                   // Tokens of all attempts; only in a workflow with a budget.
} // @name WorkflowStateNode

// Graph returns the steps of a workflow with their dependencies and states.
func (e *Engine) Graph(ctx context.Context, by models.Principal, id string) (out StateGraph, err error) {
	x, err := e.read(ctx, by, id, 0)
	if err != nil {
		return out, err
	}
	out = StateGraph{WorkflowID: id, Status: status(x.row), Version: x.row.Version}
	var workers map[string]string
	if slices.ContainsFunc(x.steps, func(s workflows.Step) bool { return s.TaskID != "" }) {
		workers, err = workflows.Workers(e.Store.Reads(ctx), id)
	}
	for i, s := range x.steps {
		out.Tasks = append(out.Tasks, StateNode{
			Node: x.node(i), Status: stepStatus(s), Attempts: s.Attempt, StartedAt: timeOrNil(s.StartedAt), EndedAt: timeOrNil(s.EndedAt),
			TaskID: s.TaskID, Worker: workers[s.TaskID], ErrorCode: s.ErrorCode, Error: s.Error, Tokens: s.Tokens,
		})
	}
	return out, err
}

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}
