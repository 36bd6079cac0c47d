// Package plan checks the steps of a workflow, resolves references to results, and decides which
// step is next. It has no I/O and no clock.
package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/input"
)

// Kind is the type of a step.
type Kind string

// Values of Kind, as AgentCards spells them (“DAGStructure”); agent_task is an addition.
const (
	KindTool  Kind = "mcp_tool"
	KindCode  Kind = "code_execution"
	KindAgent Kind = "agent_task"
)

// Step is a step of a workflow, called a task in AgentCards (“DAGTask”).
type Step struct {
	// Unique in the workflow: a letter or `_`, then up to 63 letters, digits, `_` and `-`.
	ID   string `json:"id" validate:"required" example:"t1" maxLength:"64"`
	Type Kind   `json:"type,omitempty" swaggertype:"string" enums:"mcp_tool,code_execution,agent_task" example:"mcp_tool" default:"mcp_tool"` // What executes it.
	// Name of the tool, for mcp_tool.
	Tool string `json:"tool,omitempty" example:"filesystem:read_file" maxLength:"256"`
	// An object, in which `$t1.result`, with a path such as `.items[0]`, stands for the result of another task. For code
	// it is the context, for an agent the parameters.
	Arguments json.RawMessage `json:"arguments,omitempty" swaggertype:"object"`
	// Ids of tasks that must succeed first. References add theirs.
	DependsOn []string `json:"depends_on,omitempty" example:"t0"`
	Code      string   `json:"code,omitempty" example:"return deps.t0" maxLength:"102400"` // The code, for code_execution.
	// Capability of the agent, for agent_task; or agent_id.
	Capability string `json:"capability,omitempty" example:"web_search"`
	AgentID    string `json:"agent_id,omitempty" example:"research-web-01" maxLength:"64"` // The agent, for agent_task.
	Budget     *int64 `json:"budget,omitempty" example:"4000" minimum:"1"`                 // Maximum number of tokens, for agent_task.
	// Timeout of an attempt in milliseconds; 0 and the default are the timeout of the workflow. For agent_task it is how
	// long an attempt may be silent, at least 100; the default is that of the class of the task.
	TimeoutMS int64 `json:"timeout_ms,omitempty" example:"30000" minimum:"0" maximum:"86400000"`
	Approve   bool  `json:"approve,omitempty" example:"true"` // Whether to ask for approval before it begins.
	// FirstLayer is the lowest layer of the step, for a step that is added after layers were confirmed.
	FirstLayer int `json:"-"`
} // @name WorkflowTask

// Limits of workflows.
const (
	MaxSteps      = 500
	MaxEdges      = 5_000
	MaxReferences = 1_000
	// MaxArguments limits the arguments of a step, MaxAllArguments those of a workflow, MaxCode the code
	// of a step (AgentCards, “Limites”), in bytes.
	MaxArguments    = 1 << 20
	MaxAllArguments = 8 << 20
	MaxCode         = 102_400
	// MaxTimeoutMS is 24 hours.
	MaxTimeoutMS = 24 * 60 * 60 * 1000
)

// Plan is a set of valid steps without cycles.
type Plan struct {
	// Steps are in the order of the request.
	Steps []Node
	// Layers is the number of layers, and Width the largest number of steps in one.
	Layers, Width int

	index    map[string]int // of steps by id
	inLayers []int          // the steps in the order of their layers
	template bool           // whether arguments may refer to input
	input    any            // of a template
}

// Node is a step with what was derived from the other steps.
type Node struct {
	Step
	// Needs are the indexes of the steps that must succeed first, in order.
	Needs []int
	// Layer is 1 for a step without dependencies, otherwise one more than that of its last dependency.
	Layer int
}

var idPattern = regexp.MustCompile(`^` + idExpression + `$`)

// New checks steps. The error lists every violation with a JSON pointer below at.
func New(steps []Step, at string) (*Plan, error) {
	return newPlan(0, steps, at, false)
}

// Extend returns the plan with further steps, which may depend on all steps. The error lists every violation with a JSON
// pointer below at, the pointer of the added steps.
func (p *Plan) Extend(steps []Step, at string) (*Plan, error) {
	if len(steps) == 0 {
		return nil, input.Violated(at, "range", "at least one step must be added")
	}
	all := make([]Step, 0, len(p.Steps)+len(steps))
	for _, n := range p.Steps {
		all = append(all, n.Step)
	}
	out, err := newPlan(len(p.Steps), append(all, steps...), at, p.template)
	if err == nil {
		out.input = p.input
	}
	return out, err
}

// newPlan checks steps, of which the first ones, up to added, are those of a valid plan.
func newPlan(added int, steps []Step, at string, template bool) (*Plan, error) {
	c := checker{at: at, added: added, template: template, index: make(map[string]int, len(steps))}
	c.checkSteps(steps)
	if err := c.violations.Err(); err != nil {
		return nil, err
	}
	p := &Plan{Steps: c.nodes, index: c.index, template: template}
	if cycle := p.order(); cycle != nil {
		c.fail(cycle[0], "/depends_on", "cycle", "the dependencies of the steps form a cycle: %s", p.names(cycle))
	}
	return p, c.violations.Err()
}

type checker struct {
	at         string
	added      int // the first step below at
	template   bool
	index      map[string]int // of steps by id
	nodes      []Node
	violations errs.Violations

	edges, references, arguments int
}

func (c *checker) fail(step int, at, rule, format string, args ...any) {
	c.violations.Add(errs.InvalidRequest, fmt.Sprintf("%s/%d%s", c.at, step-c.added, at), rule, format, args...)
}

func (c *checker) checkSteps(steps []Step) {
	if len(steps) == 0 || len(steps) > MaxSteps {
		c.violations.Add(errs.InvalidRequest, c.at, "range", "a workflow must have 1 to %d steps, not %d", MaxSteps, len(steps))
		return
	}
	for i, s := range steps {
		first, taken := c.index[s.ID]
		switch {
		case !idPattern.MatchString(s.ID):
			c.fail(i, "/id", "pattern", "id must be a letter or \"_\", then at most 63 letters, digits, \"_\" and \"-\", not %q", input.Clip(s.ID))
		case c.template && s.ID == inputName:
			c.fail(i, "/id", "reserved", "the id %q stands for the input of the workflow", inputName)
		case taken:
			c.fail(i, "/id", "unique", "the id %q is already used by step %d", s.ID, first+1)
		default:
			c.index[s.ID] = i
		}
	}
	for i, s := range steps {
		c.nodes = append(c.nodes, Node{Step: s})
		c.checkType(i, &c.nodes[i].Step)
		c.checkDependencies(i, &c.nodes[i], c.checkArguments(i, &c.nodes[i].Step))
	}
	c.limit(c.edges, MaxEdges, "a workflow must have at most %d dependencies, not %d")
	c.limit(c.references, MaxReferences, "a workflow must have at most %d references, not %d")
	c.limit(c.arguments, MaxAllArguments, "the arguments of a workflow must have at most %d bytes, not %d")
}

func (c *checker) limit(n, most int, format string) {
	if n > most {
		c.violations.Add(errs.InvalidRequest, c.at, "max", format, most, n)
	}
}

// checkType checks the members that depend on the type, and sets the default type.
func (c *checker) checkType(i int, s *Step) {
	if s.Type == "" {
		s.Type = KindTool
	}
	switch {
	case s.Type == KindTool && s.Tool == "":
		c.fail(i, "/tool", "required", "tool is required for the type mcp_tool, in the form serverId:toolName")
	case s.Type == KindCode && strings.TrimSpace(s.Code) == "":
		c.fail(i, "/code", "required", "code is required for the type code_execution")
	case s.Type == KindAgent && s.Capability == "" && s.AgentID == "":
		c.fail(i, "/capability", "required", "capability or agent_id is required for the type agent_task")
	case s.Type != KindTool && s.Type != KindCode && s.Type != KindAgent:
		c.fail(i, "/type", "enum", "type must be mcp_tool, code_execution or agent_task, not %q", input.Clip(string(s.Type)))
		return
	}
	for _, member := range []struct {
		name           string
		given, allowed bool
	}{
		{"tool", s.Tool != "", s.Type != KindAgent}, // AgentCards shows tool with code
		{"code", s.Code != "", s.Type == KindCode},
		{"capability", s.Capability != "", s.Type == KindAgent},
		{"agent_id", s.AgentID != "", s.Type == KindAgent},
		{"budget", s.Budget != nil, s.Type == KindAgent},
	} {
		if member.given && !member.allowed {
			c.fail(i, "/"+member.name, "unexpected", "%s is not allowed for the type %s", member.name, s.Type)
		}
	}
	if len(s.Code) > MaxCode {
		c.fail(i, "/code", "max", "code must have at most %d bytes, not %d", MaxCode, len(s.Code))
	}
	if s.Budget != nil && *s.Budget < 1 {
		c.fail(i, "/budget", "min", "budget must be at least 1 token, not %d", *s.Budget)
	}
	if s.TimeoutMS < 0 || s.TimeoutMS > MaxTimeoutMS {
		c.fail(i, "/timeout_ms", "range", "timeout_ms must be at most %d, or 0 for the default, not %d", MaxTimeoutMS, s.TimeoutMS)
	}
}

// checkArguments checks that the arguments are an object. It returns the steps that they refer to, each with
// the JSON pointer of a reference.
func (c *checker) checkArguments(i int, s *Step) (referenced map[int]string) {
	switch text := strings.TrimSpace(string(s.Arguments)); {
	case text == "" || text == "null":
		s.Arguments = json.RawMessage("{}")
		return nil
	case text[0] != '{' || !jsontext.Value(s.Arguments).IsValid(): // rejects duplicate names
		c.fail(i, "/arguments", "object", "arguments must be a JSON object without duplicate names, not %s", input.Clip(text))
		return nil
	}
	if len(s.Arguments) > MaxArguments {
		c.fail(i, "/arguments", "max", "arguments must have at most %d bytes, not %d", MaxArguments, len(s.Arguments))
		return nil
	}
	referenced = map[int]string{}
	c.arguments += len(s.Arguments)
	for at, text := range textsOf(s.Arguments) {
		for _, r := range referencesIn(text, c.template) {
			to, known := c.index[r.step]
			switch {
			case r.typo && known && i < c.added && to >= c.added:
				c.fail(to, "/id", "unique", "this id would turn the text %q of the step %q into a reference; choose another id", input.Clip(r.text), s.ID)
			case r.input && !r.escaped:
				c.references++
			case r.escaped, r.typo && !known: // a text
			case r.typo:
				c.fail(i, "/arguments"+at, "reference", "%q is not a reference: write $%s.result to refer to the result, or $$%s for the literal text", input.Clip(r.text), r.step, r.step)
			case !known:
				c.fail(i, "/arguments"+at, "reference", "%q refers to a step that does not exist%s (write $%s for the literal text)", input.Clip(r.text), c.suggestion(r.step, "$%s.result"), input.Clip(r.text))
			default:
				c.references++
				referenced[to] = at
			}
		}
	}
	return referenced
}

// suggestion returns a clause with the most similar id, "" if no id is similar.
func (c *checker) suggestion(id, format string) string {
	if found, ok := input.Nearest(id, slices.Sorted(maps.Keys(c.index))); ok {
		return "; did you mean " + fmt.Sprintf(format, found) + "?"
	}
	return ""
}

// checkDependencies merges the given dependencies with those of references.
func (c *checker) checkDependencies(i int, n *Node, referenced map[int]string) {
	needs := map[int]bool{}
	for k, id := range n.DependsOn {
		at := fmt.Sprintf("/depends_on/%d", k)
		to, known := c.index[id]
		switch {
		case !known:
			c.fail(i, at, "reference", "there is no step %q%s", input.Clip(id), c.suggestion(id, "%q"))
		case to == i:
			c.fail(i, at, "cycle", "the step %q depends on itself", id)
		default:
			needs[to] = true
		}
	}
	for to, at := range referenced {
		if to == i {
			c.fail(i, "/arguments"+at, "cycle", "the step %q refers to its own result", n.ID)
			continue
		}
		needs[to] = true
	}
	n.Needs = slices.Sorted(maps.Keys(needs))
	c.edges += len(n.Needs)
}

// order sets the layers of the steps, or returns the steps of a cycle.
func (p *Plan) order() (cycle []int) {
	waiting, dependents := make([]int, len(p.Steps)), make([][]int, len(p.Steps))
	var ready []int
	for i := range p.Steps {
		n := &p.Steps[i]
		if waiting[i] = len(n.Needs); waiting[i] == 0 {
			ready = append(ready, i)
		}
		for _, to := range n.Needs {
			dependents[to] = append(dependents[to], i)
		}
	}
	width := make(map[int]int)
	for next := 0; next < len(ready); next++ {
		n := &p.Steps[ready[next]]
		n.Layer = max(1, n.FirstLayer)
		for _, to := range n.Needs {
			n.Layer = max(n.Layer, p.Steps[to].Layer+1)
		}
		width[n.Layer]++
		p.Layers, p.Width = max(p.Layers, n.Layer), max(p.Width, width[n.Layer])
		for _, i := range dependents[ready[next]] {
			if waiting[i]--; waiting[i] == 0 {
				ready = append(ready, i)
			}
		}
	}
	if len(ready) == len(p.Steps) {
		slices.SortStableFunc(ready, func(a, b int) int { return p.Steps[a].Layer - p.Steps[b].Layer }) // of first layers
		p.inLayers = ready
		return nil
	}
	return p.findCycle(slices.IndexFunc(waiting, func(n int) bool { return n > 0 }), waiting)
}

// findCycle follows dependencies without a layer, from the step at, until a step repeats.
func (p *Plan) findCycle(at int, waiting []int) []int {
	var path []int
	for !slices.Contains(path, at) {
		path = append(path, at)
		needs := p.Steps[at].Needs
		at = needs[slices.IndexFunc(needs, func(to int) bool { return waiting[to] > 0 })]
	}
	return append(path[slices.Index(path, at):], at)
}

// maxNamed limits the steps that an error names.
const maxNamed = 10

// names joins the ids of steps with arrows.
func (p *Plan) names(steps []int) string {
	var ids []string
	for _, i := range steps[:min(len(steps), maxNamed)] {
		ids = append(ids, p.Steps[i].ID)
	}
	if len(steps) > maxNamed {
		ids = append(ids, "…")
	}
	return strings.Join(ids, " → ")
}
