// Package viewtext formats responses for the terminal: as YAML, and with functions of templates.
package viewtext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"comet/internal/input"
)

// Funcs returns the functions by name.
func Funcs() map[string]any {
	return map[string]any{
		"join": Join, "json": JSON, "budget": budgetText, "upper": strings.ToUpper, "remaining": remainingText, "percent": percentText,
		"oneLine": oneLine, "waits": Waits, "duration": durationText, "fixed": fixed, "add": func(a, b any) int64 { return toInt(a) + toInt(b) },
		"tree": tree, "today": budgetToday, "attempt": Attempt, "pairs": Pairs, "took": tookText,
	}
}

// Join joins the elements of a list.
func Join(list any, separator string) string {
	all, _ := list.([]any)
	words := make([]string, len(all))
	for i, v := range all {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, separator)
}

// JSON returns a value as JSON in one line.
func JSON(v any) string {
	text, _ := json.Marshal(v) // it was decoded from JSON
	return string(text)
}

func budgetText(tokens any) string {
	if tokens == nil {
		return "unlimited"
	}
	return fmt.Sprint(tokens)
}

// remainingText describes the remaining tokens of a budget.
func remainingText(balance map[string]any) string {
	if balance["remaining"] == nil {
		return "the budget is unlimited"
	}
	return fmt.Sprintf("%v of %v tokens remain until %v", balance["remaining"], balance["budget"], balance["reset_at"])
}

func percentText(part any) string {
	switch part := part.(type) {
	case float64:
		return fixed(1, 100*part) + "%"
	case int64:
		return fixed(1, 100*part) + "%"
	}
	return "-"
}

// oneLine returns a text in one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func durationText(ms int64) string { return input.Duration(time.Duration(ms) * time.Millisecond) }

// tookText returns the time between two times; the second is now if it is missing.
func tookText(from, to any) string {
	begin, _ := time.Parse(time.RFC3339, fmt.Sprint(from)) // from is a time of the response
	end, err := time.Parse(time.RFC3339, fmt.Sprint(to))
	if err != nil {
		end = time.Now().Truncate(time.Second)
	}
	return input.Duration(max(end.Sub(begin), 0))
}

// fixed formats a number with that many decimals.
func fixed(decimals int, v any) string {
	f, ok := v.(float64)
	if !ok {
		f = float64(toInt(v))
	}
	return strconv.FormatFloat(f, 'f', decimals, 64)
}

func toInt(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case int:
		return int64(v)
	}
	return 0
}

// Waits describes what a task waits for.
func Waits(waits string) string {
	return map[string]string{"worker": "waiting for a worker", "retry": "waiting to retry", "reply": "waiting for a reply"}[waits]
}

// tree lists a node and the nodes below it, each with the "branch" that is drawn before it.
func tree(root any) (list []any) {
	var add func(node any, branch, indent string)
	add = func(v any, branch, indent string) {
		node, ok := v.(map[string]any)
		if !ok {
			return
		}
		node["branch"] = branch
		list = append(list, node)
		children, _ := node["children"].([]any)
		for i, child := range children {
			if i == len(children)-1 {
				add(child, indent+"└── ", indent+"    ")
			} else {
				add(child, indent+"├── ", indent+"│   ")
			}
		}
	}
	add(root, "", "")
	return list
}

// budgetToday returns today's budget of an agent, with temporary additions.
func budgetToday(usage map[string]any) string {
	if usage["token_budget"] == nil {
		return budgetText(nil)
	}
	return fmt.Sprint(toInt(usage["token_budget"]) + toInt(usage["additional_budget"]))
}

// Attempt describes the result of an attempt to deliver an event.
func Attempt(attempt map[string]any) string {
	result := "unknown"
	if status := toInt(attempt["status"]); status > 0 {
		result = fmt.Sprintf("%d %s", status, http.StatusText(int(status)))
	}
	if err, ok := attempt["error"].(string); ok {
		result = err
	}
	return fmt.Sprintf("%s after %v ms", result, attempt["duration_ms"])
}

// Pairs lists the members of an object as name=value, in the order of the names.
func Pairs(object any) string {
	members, _ := object.(map[string]any)
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		pairs = append(pairs, fmt.Sprintf("%s=%v", name, members[name]))
	}
	return strings.Join(pairs, " ")
}

// YAML prints a JSON document as YAML, with its members in the same order.
func YAML(w io.Writer, body []byte) error {
	node, err := yamlNode(jsontext.NewDecoder(bytes.NewReader(body)))
	if err != nil {
		return fmt.Errorf("the server's response is not JSON: %w", err)
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	return errors.Join(enc.Encode(node), enc.Close())
}

func yamlNode(dec *jsontext.Decoder) (*yaml.Node, error) {
	token, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '{':
		return yamlCollection(dec, yaml.MappingNode, '}')
	case '[':
		return yamlCollection(dec, yaml.SequenceNode, ']')
	case '"':
		// Encode quotes strings that some version of YAML reads as another type.
		n := &yaml.Node{}
		return n, n.Encode(token.String())
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: token.String()}, nil
}

func yamlCollection(dec *jsontext.Decoder, kind yaml.Kind, end jsontext.Kind) (*yaml.Node, error) {
	n := &yaml.Node{Kind: kind}
	for dec.PeekKind() != end {
		item, err := yamlNode(dec)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, item)
	}
	_, err := dec.ReadToken()
	return n, err
}

// RelativeTime returns how long before or after now a time is, if it is less than two days; other texts are
// unchanged.
func RelativeTime(text string, now time.Time) string {
	at, err := time.Parse(time.RFC3339, text)
	d, unit := now.Sub(at).Abs(), time.Second
	if err != nil || d >= 48*time.Hour {
		return text
	}
	if d >= time.Minute {
		unit = time.Minute
	}
	if d >= time.Hour {
		unit = time.Hour
	}
	if text = input.Duration(d.Truncate(unit)); at.After(now) {
		return "in " + text
	}
	return text + " ago"
}

// Cut truncates a text to a maximum number of characters, with an ellipsis at the end.
func Cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:most-1]), " ") + "…"
}
