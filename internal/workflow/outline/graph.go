// Package outline shows workflows to people: their graphs, and their steps as they begin and end. It has no I/O.
package outline

import (
	"cmp"
	"fmt"
	"strings"
)

// Task is a task of a workflow, or of a plan, in a graph.
type Task struct {
	ID         string   `json:"id"`
	Type       string   `json:"type"`
	Tool       string   `json:"tool"`
	AgentID    string   `json:"agent_id"`
	Capability string   `json:"capability"`
	DependsOn  []string `json:"depends_on"`
	// Status is the state of a task of a workflow, and Approval is set for one of a plan that needs approval.
	Status   string `json:"status"`
	Approval bool   `json:"approval"`
}

// label returns the label of the task. Each line is escaped.
func (t Task) label(escape func(string) string, separator string) string {
	lines := []string{escape(t.ID), escape(cmp.Or(t.Tool, t.AgentID, t.Capability, t.Type))}
	if state := t.state(); state != "" {
		lines = append(lines, escape(state))
	}
	return strings.Join(lines, separator)
}

// state returns the state of the task, or "approval" if it will need one.
func (t Task) state() string {
	if t.Approval {
		return "approval"
	}
	return t.Status
}

// colors returns the fill colours of tasks by their states.
func colors() [][2]string {
	return [][2]string{
		{"pending", "#ffffff"}, {"running", "#a5d8ff"}, {"success", "#b2f2bb"}, {"error", "#ffc9c9"}, {"skipped", "#dee2e6"},
		{"uncertain", "#ffd8a8"}, {"approval", "#ffec99"},
	}
}

// Mermaid returns a flowchart of Mermaid.
func Mermaid(tasks []Task) string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	numbers := map[string]int{}
	for i, t := range tasks {
		numbers[t.ID] = i
		_, _ = fmt.Fprintf(&b, "  n%d[\"%s\"]", i, t.label(mermaidText, "<br/>"))
		if state := t.state(); state != "" {
			b.WriteString(":::" + state)
		}
		b.WriteByte('\n')
	}
	for i, t := range tasks {
		for _, to := range t.DependsOn {
			_, _ = fmt.Fprintf(&b, "  n%d --> n%d\n", numbers[to], i)
		}
	}
	for _, c := range colors() {
		_, _ = fmt.Fprintf(&b, "  classDef %s fill:%s,stroke:#495057,color:#000000\n", c[0], c[1])
	}
	return b.String()
}

// mermaidText returns a text for a quoted label: other characters than letters, digits and some signs are entities.
func mermaidText(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < 0x80 && !strings.ContainsRune(" _-.:/", r) && !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			_, _ = fmt.Fprintf(&b, "#%d;", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Dot returns a graph for Graphviz.
func Dot(tasks []Task) string {
	var b strings.Builder
	b.WriteString("digraph workflow {\n  rankdir=LR\n  node [shape=box, style=\"rounded,filled\", fillcolor=\"#ffffff\"]\n")
	for _, t := range tasks {
		_, _ = fmt.Fprintf(&b, "  \"%s\" [label=\"%s\"", dotText(t.ID), t.label(dotText, `\n`))
		for _, c := range colors() {
			if c[0] == t.state() {
				_, _ = fmt.Fprintf(&b, ", fillcolor=%q", c[1])
			}
		}
		b.WriteString("]\n")
	}
	for _, t := range tasks {
		for _, to := range t.DependsOn {
			_, _ = fmt.Fprintf(&b, "  \"%s\" -> \"%s\"\n", dotText(to), dotText(t.ID))
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// dotText returns a text for a quoted string of Graphviz.
func dotText(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ").Replace(text)
}
