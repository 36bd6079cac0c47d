package roster

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"comet/models"
)

// row is an exported agent: its members in the usual order, without defaults.
type row struct {
	ID           string             `json:"id"`
	Name         string             `json:"name"`
	Level        models.Level       `json:"level"`
	SphereID     *int               `json:"sphere_id"`
	FrequencyHz  int                `json:"frequency_hz"`
	ParentID     *string            `json:"parent_id"`
	TokenBudget  *int64             `json:"token_budget"`
	BudgetScope  models.BudgetScope `json:"budget_scope,omitzero"`
	Description  string             `json:"description,omitzero"`
	Capabilities []string           `json:"capabilities"`
	Type         string             `json:"type,omitzero"`
	IsActive     *bool              `json:"is_active,omitzero"`
}

func rowOf(a models.Agent) row {
	r := row{
		ID: a.ID, Name: a.Name, Level: a.Level, SphereID: a.SphereID, FrequencyHz: a.FrequencyHz,
		ParentID: a.ParentID, TokenBudget: a.TokenBudget, Description: a.Description,
		Capabilities: a.Capabilities, Type: a.Type,
	}
	if a.BudgetScope != models.ScopeOwn {
		r.BudgetScope = a.BudgetScope
	}
	if !a.IsActive {
		r.IsActive = new(false)
	}
	return r
}

// MarshalJSON writes the agents as a JSON roster that ParseJSON reads back.
func MarshalJSON(w io.Writer, agents []models.Agent) error {
	enc := jsontext.NewEncoder(w, jsontext.Multiline(true), jsontext.WithIndent("  "))
	for _, t := range []jsontext.Token{
		jsontext.BeginObject, jsontext.String("version"), jsontext.Int(Version), jsontext.String("agents"), jsontext.BeginArray,
	} {
		if err := enc.WriteToken(t); err != nil {
			return fmt.Errorf("write roster: %w", err)
		}
	}
	for _, a := range agents {
		if err := json.MarshalEncode(enc, rowOf(a)); err != nil {
			return fmt.Errorf("write agent %s: %w", a.ID, err)
		}
	}
	for _, t := range []jsontext.Token{jsontext.EndArray, jsontext.EndObject} {
		if err := enc.WriteToken(t); err != nil {
			return fmt.Errorf("write roster: %w", err)
		}
	}
	return nil
}

// MarshalYAML writes the agents as a YAML roster that Parse reads back. Text that any version of
// YAML could interpret differently is quoted. The agents are encoded one by one, which needs less
// memory.
func MarshalYAML(w io.Writer, agents []models.Agent) error {
	head := fmt.Sprintf("version: %d\nagents:", Version)
	if len(agents) == 0 {
		head += " []"
	}
	if _, err := io.WriteString(w, head+"\n"); err != nil {
		return fmt.Errorf("write roster: %w", err)
	}
	var out bytes.Buffer
	for _, a := range agents {
		out.Reset()
		enc := yaml.NewEncoder(&out)
		enc.SetIndent(2)
		item := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{rowOf(a).node()}}
		if err := enc.Encode(item); err != nil {
			return fmt.Errorf("write agent %s: %w", a.ID, err)
		}
		// No scalar spans lines, so indenting lines changes no value.
		for line := range bytes.Lines(out.Bytes()) {
			if _, err := fmt.Fprintf(w, "  %s", line); err != nil {
				return fmt.Errorf("write roster: %w", err)
			}
		}
	}
	return nil
}

func (r row) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	add := func(name string, value *yaml.Node) {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
	}
	add("id", textNode(r.ID))
	add("name", textNode(r.Name))
	add("level", intNode(int64(r.Level)))
	add("sphere_id", optional(r.SphereID, func(v int) *yaml.Node { return intNode(int64(v)) }))
	add("frequency_hz", intNode(int64(r.FrequencyHz)))
	add("parent_id", optional(r.ParentID, textNode))
	add("token_budget", optional(r.TokenBudget, intNode))
	if r.BudgetScope != "" {
		add("budget_scope", textNode(string(r.BudgetScope)))
	}
	if r.Description != "" {
		add("description", textNode(r.Description))
	}
	capabilities := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, c := range r.Capabilities {
		capabilities.Content = append(capabilities.Content, textNode(c))
	}
	add("capabilities", capabilities)
	if r.Type != "" {
		add("type", textNode(r.Type))
	}
	if r.IsActive != nil {
		add("is_active", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(*r.IsActive)})
	}
	return n
}

func optional[T any](v *T, write func(T) *yaml.Node) *yaml.Node {
	if v == nil {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	}
	return write(*v)
}

func intNode(v int64) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v, 10)}
}

// harmless matches words that every version of YAML reads as a string. reserved are the words that
// YAML 1.1 has another meaning for.
var (
	harmless = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.,()/:-]*( [A-Za-z0-9_.,()/-]+)*$`)
	reserved = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$|:( |$)`)
)

func textNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if !harmless.MatchString(s) || reserved.MatchString(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
