package registry_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/input"
	"comet/internal/registry/roster"
	"comet/models"
)

// rendered is a roster with one member a line, and the lines they stand on.
type rendered struct {
	text  string
	lines []map[string]int // by member; "" is the entry itself
}

// line is where a violation at a member of an entry is reported.
func (r rendered) line(entry int, member string) int {
	if line, ok := r.lines[entry][member]; ok {
		return line
	}
	return r.lines[entry][""]
}

func render(entries []rosterEntry) rendered {
	var r rendered
	var b strings.Builder
	b.WriteString("version: 1\nagents:\n")
	line := 2
	for _, e := range entries {
		lines := map[string]int{"": line + 1}
		r.lines = append(r.lines, lines)
		add := func(member string, value any) {
			line++
			lines[member] = line
			mark := "    "
			if member == "id" {
				mark = "  - "
			}
			text, err := json.Marshal(value)
			if err != nil {
				panic(err)
			}
			_, _ = fmt.Fprintf(&b, "%s%s: %s\n", mark, member, text)
		}
		add("id", *e.ID)
		members(e, add)
	}
	r.text = b.String()
	return r
}

func members(e rosterEntry, add func(string, any)) {
	if e.Name != nil {
		add("name", *e.Name)
	}
	add("level", *e.Level)
	if e.SphereID != nil {
		add("sphere_id", *e.SphereID)
	}
	add("frequency_hz", *e.FrequencyHz)
	if e.ParentID != nil {
		add("parent_id", *e.ParentID)
	}
	if e.TokenBudget.Set {
		add("token_budget", e.TokenBudget.Value)
	}
	if e.BudgetScope.Set {
		add("budget_scope", e.BudgetScope.Value)
	}
	if e.Capabilities != nil {
		add("capabilities", e.Capabilities)
	}
	if e.Description != "" {
		add("description", e.Description)
	}
	if e.Type != "" {
		add("type", e.Type)
	}
	if e.active != nil {
		add("is_active", *e.active)
	}
}

// entryOf describes an agent as it is.
func entryOf(a models.Agent) rosterEntry {
	e := rosterEntry{
		AgentDraft: models.AgentDraft{
			ID: &a.ID, Name: &a.Name, Level: &a.Level, SphereID: a.SphereID, FrequencyHz: &a.FrequencyHz, Capabilities: a.Capabilities,
			Description: a.Description, Type: a.Type, ParentID: a.ParentID,
		},
		active: &a.IsActive,
	}
	if a.BudgetScope == models.ScopeSubtree {
		e.BudgetScope = models.Some(a.BudgetScope)
	}
	if a.TokenBudget != nil {
		e.TokenBudget = models.Some(*a.TokenBudget)
	}
	return e
}

// TestRender proves that the model knows the lines of its documents.
func TestRender(t *testing.T) {
	t.Parallel()
	g := newGenerator(1, 1)
	for range 200 {
		entries := []rosterEntry{{AgentDraft: g.draft(10)}, {AgentDraft: g.draft(10), active: new(false)}}
		r := render(entries)
		doc, _ := roster.Parse([]byte(r.text), input.YAML)
		require.Len(t, doc.Agents, 2)
		for i, lines := range r.lines {
			for member, line := range lines {
				pointer := fmt.Sprintf("/agents/%d", i)
				if member != "" {
					pointer += "/" + member
				}
				require.Equal(t, line, doc.Line(pointer), "%s\n%s", pointer, r.text)
			}
			require.Equal(t, r.line(i, "nothing"), doc.Line(fmt.Sprintf("/agents/%d/nothing", i)))
		}
	}
}
