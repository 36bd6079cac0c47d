// Package roster is the codec of a roster, a YAML or JSON document that lists agents for import and
// export. It reports every violation that the document alone shows, with its line. The rules of the
// agents' tree belong to package registry.
package roster

import (
	"bytes"
	"slices"
	"strconv"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// Version is the version of the document's format.
const Version = 1

// Limits of a document.
const (
	// MaxAgents is the maximum number of agents.
	MaxAgents = 10_000
	// MaxParts is the maximum number of lines (in YAML) and commas. MaxAgents need far fewer.
	MaxParts = 300_000
)

// Document is a roster. Line and the other methods of input.Document refer to its text.
type Document struct {
	Version int
	Agents  []Entry

	*input.Document
}

// Entry is one agent of a roster: the members of a create request, and is_active.
type Entry struct {
	models.AgentDraft
	// IsActive is nil if it is missing, which means true.
	IsActive *bool `json:"is_active"`
}

// Active reports whether the entry describes an active agent.
func (e Entry) Active() bool { return e.IsActive == nil || *e.IsActive }

// Parse parses a document and returns its violations in the order of the document: syntax; unknown,
// repeated, missing and mistyped members; the validate tags of models.AgentDraft; repeated ids.
// Members with a violation are left out of the document, which is never nil. If there are more
// violations than a response may have, the last one counts the rest and all entries are empty. The
// codes are errs.MalformedYAML, MalformedJSON and InvalidRequest.
func Parse(data []byte, format input.Format) (*Document, errs.Violations) {
	d := &Document{Document: &input.Document{}}
	if tooManyParts(data, format) {
		var v errs.Violations
		v.Add(errs.InvalidRequest, "", "max", "the document has more than %d lines and entries; import it in parts", MaxParts)
		v[0].Line = 1
		return d, v
	}
	d.Document = input.Parse(data, format)
	switch {
	case d.Root == nil && len(d.Violations()) == 0:
		d.Report(1, errs.MalformedYAML, "", "required", "the document is empty")
	case d.Root != nil:
		d.decode()
		for i := range d.Agents {
			d.validate(i)
		}
		d.checkIDs()
	}
	if d.Truncated() {
		clear(d.Agents)
	}
	return d, d.Violations()
}

func tooManyParts(data []byte, format input.Format) bool {
	parts := bytes.Count(data, []byte(","))
	if format == input.YAML {
		parts += bytes.Count(data, []byte("\n"))
	}
	return parts > MaxParts
}

// reject records a violation of a member and leaves the member out.
func (d *Document) reject(m *input.Member, pointer, rule, detail string) {
	d.Report(m.Line, errs.InvalidRequest, pointer, rule, "%s %s", input.Field(pointer), detail)
	m.Value.Kind = input.Invalid
}

// decode decodes the document into d.Version and d.Agents.
func (d *Document) decode() {
	if m := d.Root.Member("agents"); m != nil && m.Value.Kind == input.Array {
		if n := len(m.Value.Members); n > MaxAgents {
			d.reject(m, "/agents", "max", "must have at most "+strconv.Itoa(MaxAgents)+" entries, not "+strconv.Itoa(n))
		}
		for i := range m.Value.Members {
			d.checkNulls(&m.Value.Members[i].Value, "/agents/"+strconv.Itoa(i))
		}
	}
	var document struct {
		Version int     `json:"version"`
		Agents  []Entry `json:"agents"`
	}
	if err := d.Decode(&document); err != nil {
		d.Report(d.Root.Line, errs.InvalidRequest, "", "type", "the document is not a roster: %v", err)
	}
	d.Version, d.Agents = document.Version, document.Agents
	for _, name := range []string{"version", "agents"} {
		if d.Root.Kind == input.Object && d.Root.Member(name) == nil {
			d.Report(d.Root.Line, errs.InvalidRequest, "/"+name, "required", "%s is required", name)
		}
	}
	if m := d.Root.Member("version"); m != nil && m.Value.Kind == input.Number && d.Version != Version {
		d.reject(m, "/version", "version", "must be "+strconv.Itoa(Version)+", not "+m.Value.Text)
	}
}

// checkNulls rejects null members of an agent, which would otherwise mean the default. Only the
// parent, the sphere and the budget of the L0 agent are null.
func (d *Document) checkNulls(agent *input.Node, pointer string) {
	if agent.Kind != input.Object {
		return
	}
	level := agent.Member("level")
	for i := range agent.Members {
		m := &agent.Members[i]
		if m.Value.Kind != input.Null {
			continue
		}
		isRoot := slices.Contains([]string{"sphere_id", "parent_id", "token_budget"}, m.Name)
		switch {
		case isRoot && level != nil && level.Value.Text == "0":
			m.Value.Kind = input.Invalid // absent
		case isRoot:
			d.reject(m, pointer+"/"+m.Name, "not_null", "must not be null; only the L0 agent has none")
		default:
			d.reject(m, pointer+"/"+input.Escape(m.Name), "not_null", "must not be null; leave it out or give it a value")
		}
	}
}

// validate applies the validate tags to an entry. It skips values with another violation.
func (d *Document) validate(i int) {
	pointer := "/agents/" + strconv.Itoa(i)
	if d.HasViolation(pointer) {
		return
	}
	for _, v := range input.Validate(&d.Agents[i].AgentDraft) {
		if at := pointer + v.Pointer; !d.HasViolation(at) {
			d.Report(d.Line(at), v.Code, at, v.Rule, "%s.%s", input.Field(pointer), v.Detail)
		}
	}
}

// checkIDs reports ids that another agent of the document has.
func (d *Document) checkIDs() {
	lines := map[string]int{}
	for i, entry := range d.Agents {
		if entry.ID == nil {
			continue
		}
		agent := "/agents/" + strconv.Itoa(i)
		if line, taken := lines[*entry.ID]; taken {
			d.Report(d.Line(agent+"/id"), errs.InvalidRequest, agent+"/id", "unique", "%s repeats the agent %s of line %d",
				input.Field(agent+"/id"), input.Clip(*entry.ID), line)
			continue
		}
		lines[*entry.ID] = d.Line(agent)
	}
}
