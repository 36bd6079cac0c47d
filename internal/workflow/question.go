package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"comet/internal/input"
)

// maxQuoted limits the arguments and the code of a step in a question, in bytes.
const maxQuoted = 4000

// clipped returns a text for a question.
func clipped(text string) string {
	if len(text) <= maxQuoted {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes in total)", strings.ToValidUTF8(text[:maxQuoted], ""), len(text))
}

// Choices returns the decisions on the open checkpoint of a workflow, empty if it is not paused. "replan" is none: it leaves the
// checkpoint open.
func (v View) Choices() []string {
	return slices.DeleteFunc(slices.Clone(v.Options), func(option string) bool { return option == "replan" })
}

// AsksForBudget reports whether the open checkpoint of a workflow asks for a higher budget.
func (v View) AsksForBudget() bool {
	return v.Budget != nil && slices.Contains(v.Options, string(ResolutionRaise))
}

// Question returns a text that asks for a decision on the open checkpoint of a workflow.
func (v View) Question() string {
	var text strings.Builder
	if text.WriteString(v.Description); v.Description == "" {
		fmt.Fprintf(&text, "Layer %d of %d is complete. Next: %s", v.CurrentLayer, v.TotalLayers, strings.Join(v.NextLayer, ", "))
	}
	if v.Context != nil {
		for _, s := range v.Context.Steps {
			what, _ := json.Marshal(map[string]any{"tool": s.Tool, "agent_id": s.Agent, "capability": s.Ability, "code": clipped(s.Code)}) // texts cannot fail
			if s.Tool != "" && s.Code == "" {
				what = []byte(s.Tool)
			}
			fmt.Fprintf(&text, "\n%s: %s (%s) %s\ndigest %s", s.ID, what, s.Class, clipped(string(s.Arguments)), s.Digest)
			if s.Error != "" {
				fmt.Fprintf(&text, "\n%s", input.Clip(s.Error))
			}
		}
	}
	if v.AsksForBudget() {
		fmt.Fprintf(&text, "\nBudget: %d tokens, of which %d are used and %d are reserved", v.Budget.Total, v.Budget.Used, v.Budget.Reserved)
	}
	return text.String()
}

// Decision returns the decision that a choice expresses. It covers what the view shows.
func (v View) Decision(choice string) Decision {
	d := Decision{Approved: choice != "reject" && choice != "abort"}
	if v.Context != nil {
		d.Digest = v.Context.Digest
	}
	switch resolution := Resolution(choice); resolution {
	case ResolutionRaise, ResolutionRetry, ResolutionSkip, ResolutionAccept:
		d.Resolution = resolution
	}
	return d
}
