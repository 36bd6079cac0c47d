package v5

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	wire "comet/internal/wire/v5"
)

// The keys of DATA that O1 itself reads in a request, beside those of the codec.
const (
	keyToken   = "token"
	keyTimeout = "timeout" // seconds
	keyKeep    = "keep"    // the session stays open behind the task
	// keyUnanswered says what becomes of a question that nobody answers in time: its
	// first option, or that the work is given up.
	keyUnanswered = "unanswered"
	// keyParallel is how many workers do the work at the same time; keyAggregate may say only
	// that the first success is the result.
	keyParallel, keyAggregate, aggregateFirst = "parallel", "aggregate", "first"
	// keyOnBudget says what follows an E17, and keyMaxBudget what the budget is raised to
	// at most; keySimplify then asks the worker for less.
	keyOnBudget, keyMaxBudget, keySimplify = "on_budget", "max_budget", "simplify"
	// factPrefix begins the keys that set what the session's tasks read with #CTX:, in the
	// request that makes the session: ctx.lang=fr is #CTX:lang.
	factPrefix = "ctx."
)

// maxParameterName is the longest name of a parameter that goes into DATA.
const maxParameterName = 64

// parseParameters returns the parameters that DATA gives a call, as a JSON object: what
// stands in params= and the other pairs. A number, true and false that are not in quotes
// are such values, a flag is true, and all else is text.
func parseParameters(data wire.Data) (json.RawMessage, error) {
	var names []string
	values := map[string]json.RawMessage{}
	add := func(name string, value json.RawMessage) {
		if _, twice := values[name]; !twice {
			names = append(names, name)
		}
		values[name] = value
	}
	for p := range data.Params() {
		add(p.Name, jsonValue(p.Value, false))
	}
	for p := range data.Pairs() {
		switch {
		case data.Own(p.Key) || isRequestPair(p.Key):
		case p.Flag:
			add(p.Key, json.RawMessage("true"))
		default:
			add(p.Key, jsonValue(p.Value(), p.Quoted()))
		}
	}
	var out bytes.Buffer
	out.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			out.WriteByte(',')
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		out.Write(quoted)
		out.WriteByte(':')
		out.Write(values[name])
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// isRequestPair reports whether a pair of a request is for O1.
func isRequestPair(key string) bool {
	switch key {
	case keyTimeout, keyKeep, keyUnanswered, keyParallel, keyAggregate, keyOnBudget, keyMaxBudget, keySimplify:
		return true
	}
	return strings.HasPrefix(key, factPrefix)
}

// parseFacts are the facts that a request sets for the session that is made for it, nil for
// none.
func parseFacts(data wire.Data) (json.RawMessage, error) {
	facts := map[string]json.RawMessage{}
	for p := range data.Pairs() {
		if name, is := strings.CutPrefix(p.Key, factPrefix); is && name != "" {
			facts[name] = jsonValue(p.Value(), p.Quoted())
		}
	}
	if len(facts) == 0 {
		return nil, nil
	}
	return json.Marshal(facts)
}

// jsonValue is a value of DATA in JSON.
func jsonValue(text string, quoted bool) json.RawMessage {
	if !quoted && isScalar(text) {
		return json.RawMessage(text)
	}
	value, err := jsontext.AppendQuote(nil, text)
	if err != nil { // it was read as text
		return json.RawMessage(`""`)
	}
	return json.RawMessage(value)
}

// isScalar reports whether a text is a number, true or false as JSON writes it.
func isScalar(text string) bool {
	if text == "true" || text == "false" {
		return true
	}
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return false
	}
	return json.Valid([]byte(text))
}

// writeParameters writes the parameters of a task as pairs; ok is false where that
// cannot be done: they are nested, too long, or have what DATA cannot say.
func writeParameters(w *wire.Writer, parameters json.RawMessage) (ok bool) {
	names, values, ok := objectMembers(parameters)
	if !ok {
		return false
	}
	own := wire.Data("retry=0") // beside which max is the protocol's
	for i, name := range names {
		value := values[i]
		switch {
		case own.Own(name) || len(name) > maxParameterName || isRequestPair(name):
			return false
		case value[0] == '{' || value[0] == '[' || value[0] == 'n':
			return false
		case value[0] != '"':
			w.Add(name, string(value))
			continue
		}
		text, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return false
		}
		if wire.IsRef(string(text)) { // text that only looks like one: it would mean the worker's own task
			return false
		}
		if isScalar(string(text)) || len(text) == 0 {
			w.Quoted(name, string(text))
		} else {
			w.Add(name, string(text))
		}
	}
	_, err := w.Data()
	return err == nil
}

// objectMembers are those of a JSON object, in their order.
func objectMembers(object json.RawMessage) (names []string, values []jsontext.Value, ok bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(object))
	if open, err := dec.ReadToken(); err != nil || open.Kind() != '{' {
		return nil, nil, false
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, nil, false
		}
		text := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, nil, false
		}
		names, values = append(names, text), append(values, value.Clone())
	}
	_, err := dec.ReadToken()
	return names, values, err == nil && !slices.Contains(names, "")
}

// capabilityName is the capability that a task is given by in DATA, "" for none.
func capabilityName(capabilities []string) string {
	if len(capabilities) == 0 {
		return ""
	}
	return strings.TrimPrefix(capabilities[0], "custom:")
}

// parsePercent is a progress such as 50%, false for another text.
func parsePercent(text string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	return n, err == nil && n >= 0 && n <= 100
}
