package outline_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/workflow/outline"
)

// TestGraphsEscapeNames checks that names of tools, which upstreams choose freely, are escaped.
func TestGraphsEscapeNames(t *testing.T) {
	t.Parallel()
	tasks := []outline.Task{
		{ID: "end", Tool: `fs:"]--><script>\` + "\n\x1b", Status: "success"},
		{ID: "b", Capability: "é#1", DependsOn: []string{"end"}, Approval: true},
		{ID: "c", Type: "agent_task", DependsOn: []string{"end", "b"}},
	}
	drawn := outline.Mermaid(tasks)
	require.True(t, strings.HasPrefix(drawn, `flowchart LR
  n0["end<br/>fs:#34;#93;--#62;#60;script#62;#92;#10;#27;<br/>success"]:::success
  n1["b<br/>é#35;1<br/>approval"]:::approval
  n2["c<br/>agent_task"]
  n0 --> n1
  n0 --> n2
  n1 --> n2
  classDef pending fill:#ffffff,`), drawn)
	require.Equal(t, `digraph workflow {
  rankdir=LR
  node [shape=box, style="rounded,filled", fillcolor="#ffffff"]
  "end" [label="end\nfs:\"]--><script>\\ ESC\nsuccess", fillcolor="#b2f2bb"]
  "b" [label="b\né#1\napproval", fillcolor="#ffec99"]
  "c" [label="c\nagent_task"]
  "end" -> "b"
  "end" -> "c"
  "b" -> "c"
}
`, strings.ReplaceAll(outline.Dot(tasks), "\x1b", "ESC"))
}
