package v5

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/orchestrator"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// The keys of DATA that O1 reads in a request; they are no parameters.
const (
	keyToken      = "token"
	keyTimeout    = "timeout"    // seconds without a message of the worker
	keyKeep       = "keep"       // the session stays open after the task
	keyUnanswered = "unanswered" // what happens to a question without an answer
	// keyParallel is the number of workers that execute the task at the same time; keyAggregate
	// can only state that the first success is the result.
	keyParallel, keyAggregate, aggregateFirst = "parallel", "aggregate", "first"
	// keyOnBudget states what follows an E17, and keyMaxBudget the limit of a raised budget;
	// keySimplify asks the worker for a simpler result.
	keyOnBudget, keyMaxBudget, keySimplify = "on_budget", "max_budget", "simplify"
)

// The keys of DATA about attempts (PROTOCOL_V5 §8.2). O1 writes them to a worker, and reads them
// in a request.
const (
	keyRetry        = "retry"
	keyMax          = "max" // a parameter where retry is absent
	keyFallback     = "fallback"
	keyFallbackFrom = "fallback_from"
	keyReason       = "reason"
)

const (
	// maxParameterName is the longest name of a parameter that is written as a pair.
	maxParameterName = 64
	// maxTimeout is the highest timeout= of a request, in seconds.
	maxTimeout = 7 * 24 * 3600
	// maxRetries is the highest max= of a request.
	maxRetries = 10
)

func has(data wire.Data, key string) bool {
	_, ok := data.Pair(key)
	return ok
}

// isRequestPair reports whether a pair of a request is for O1.
func isRequestPair(key string) bool {
	switch key {
	case keyTimeout, keyKeep, keyUnanswered, keyParallel, keyAggregate, keyOnBudget, keyMaxBudget, keySimplify:
		return true
	}
	return strings.HasPrefix(key, factPrefix)
}

// isAttemptPair reports whether a pair of a request is about attempts. reason= is one where O1
// states a reason of its own.
func isAttemptPair(data wire.Data, key string, retry wire.Retry) bool {
	switch key {
	case keyRetry, keyFallback, keyFallbackFrom:
		return true
	case keyMax:
		return has(data, keyRetry)
	case keyReason:
		return retry.Reason != ""
	}
	return false
}

// parseParameters returns the parameters in DATA as a JSON object: those in params= and the other
// pairs. A number, true and false without quotes become such values, a flag becomes true, and
// everything else is text.
func parseParameters(data wire.Data) (json.RawMessage, error) {
	var names []string
	values := map[string]json.RawMessage{}
	add := func(name string, value json.RawMessage) {
		if _, twice := values[name]; !twice {
			names = append(names, name)
		}
		values[name] = value
	}
	for name, value := range data.Params() {
		add(name, jsonValue(value, false))
	}
	for pair := range data.Pairs() {
		switch {
		case data.IsReserved(pair.Key) || isRequestPair(pair.Key):
		case pair.Flag:
			add(pair.Key, json.RawMessage("true"))
		default:
			add(pair.Key, jsonValue(pair.Value(), pair.IsQuoted()))
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

// jsonValue returns a value of DATA in JSON.
func jsonValue(text string, quoted bool) json.RawMessage {
	if !quoted && isScalar(text) {
		return json.RawMessage(text)
	}
	value, err := jsontext.AppendQuote(nil, text)
	if err != nil { // DATA is valid UTF-8
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

// writeParameters writes the parameters of a task as pairs. ok is false where pairs cannot hold
// them.
func writeParameters(w *wire.Writer, parameters json.RawMessage) (ok bool) {
	names, values, ok := objectMembers(parameters)
	if !ok {
		return false
	}
	reserved := wire.Data("retry=0") // with it max is reserved too
	for i, name := range names {
		value := values[i]
		switch {
		case reserved.IsReserved(name) || len(name) > maxParameterName || isRequestPair(name):
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
		if wire.IsRef(string(text)) { // the worker would resolve it to a task of its own
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

// objectMembers returns the members of a JSON object in their order.
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

// parsePercent reads a percentage such as 50%.
func parsePercent(text string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	return n, err == nil && n >= 0 && n <= 100
}

// parseAttempts reads timeout= and, where retry= and max= are there, the number of retries. It
// returns what DATA states about attempts besides.
func parseAttempts(sub *orchestrator.Submission, data wire.Data) (retry wire.Retry, err error) {
	seconds, err := intPair(data, keyTimeout, 1, maxTimeout, 0)
	if err != nil {
		return retry, err
	}
	sub.Override.TimeoutMS = int64(seconds) * 1000
	if retry, err = data.Retry(); err != nil || !has(data, keyRetry) || !has(data, keyMax) {
		return retry, err
	}
	n, err := intPair(data, keyMax, 0, maxRetries, 0)
	sub.Override.Retries = &n
	return retry, err
}

// parseOptions reads the options of a request: what happens to an unanswered question, how many
// workers execute the task, and what follows an E17 (PROTOCOL_V5 §5.1, §7.2, §9.2).
func parseOptions(sub *orchestrator.Submission, data wire.Data) (err error) {
	if err = parseUnanswered(sub, data); err != nil {
		return err
	}
	n, err := parseWorkers(data)
	if err != nil {
		return err
	}
	if sub.Override.Workers = n; n != 0 && sub.AgentID != "" {
		return errorf(codes.E10, "", "parallel asks several workers, and one is named")
	}
	if sub.Budget != nil && *sub.Budget < int64(n) {
		return codedError{code: codes.E17, needed: int64(n), have: *sub.Budget} // one token for each
	}
	sub.Override.Overrun, err = parseOverrun(data, sub.Budget)
	return err
}

// parseHandoffOptions reads the options of a hand-off: how long the worker may be silent, how
// often the subtask is retried, and what happens to an unanswered question (PROTOCOL_V5 §5.3,
// §8.2). The other options of a request are E10: a hand-off goes to one worker, with the budget
// of its parent, and its parent's worker decides what follows a failure.
func parseHandoffOptions(sub *orchestrator.Submission, data wire.Data) error {
	for _, option := range []struct{ key, why string }{
		{keyParallel, "a hand-off goes to one worker"},
		{keyAggregate, "a hand-off goes to one worker"},
		{keyFallback, "the worker that hands off receives the failure and may hand off to another worker"},
		{keyOnBudget, "the budget of a hand-off is taken out of its parent's"},
		{keyMaxBudget, "the budget of a hand-off is taken out of its parent's"},
	} {
		if has(data, option.key) {
			return errorf(codes.E10, "", "%s is for R only: %s", option.key, option.why)
		}
	}
	if err := rejectFacts(data); err != nil {
		return err
	}
	if _, err := parseAttempts(sub, data); err != nil {
		return err
	}
	return parseUnanswered(sub, data)
}

// parseUnanswered reads what happens to a question without an answer.
func parseUnanswered(sub *orchestrator.Submission, data wire.Data) error {
	text, err := wordPair(data, keyUnanswered, "first", "abandon")
	if err == nil && text != "" {
		sub.Override.UseFirstOption = new(text == "first")
	}
	return err
}

// wordPair reads a word of DATA, "" where there is none.
func wordPair(data wire.Data, key string, words ...string) (string, error) {
	text, ok := data.Get(key)
	if ok && !slices.Contains(words, text) {
		last := len(words) - 1
		return "", errorf(codes.E10, "", "%s must be %s or %s, not %s", key, strings.Join(words[:last], ", "), words[last], text)
	}
	return text, nil
}

// parseWorkers reads the number of workers that execute the task at the same time, 0 for one. The
// first success is the result (PROTOCOL_V5 §4.2, §5.1); no other aggregation is supported.
func parseWorkers(data wire.Data) (int, error) {
	how, aggregates := data.Get(keyAggregate)
	if aggregates && how != aggregateFirst {
		return 0, errorf(codes.E10, "", "aggregate must be %s, not %s: no other aggregation is supported", aggregateFirst, how)
	}
	n, err := intPair(data, keyParallel, 1, orchestrator.MaxParallel, 1)
	if err != nil || n > 1 {
		return n, err
	}
	if aggregates {
		return 0, errorf(codes.E10, "", "aggregate needs parallel=, 2 to %d workers", orchestrator.MaxParallel)
	}
	return 0, nil
}

// parseOverrun reads what follows an E17, nil for nothing.
func parseOverrun(data wire.Data, budget *int64) (*models.Overrun, error) {
	var words []string
	for _, a := range models.OverrunActions() {
		words = append(words, string(a))
	}
	action, err := wordPair(data, keyOnBudget, words...)
	if err != nil {
		return nil, err
	}
	text, limited := data.Get(keyMaxBudget)
	switch {
	case limited && action != string(models.OverrunRaise):
		return nil, errorf(codes.E10, "", "max_budget needs on_budget=raise")
	case action == "":
		return nil, nil //nolint:nilnil // nothing follows
	case action == string(models.OverrunRaise) && budget == nil:
		return nil, errorf(codes.E10, "", "on_budget=raise needs a BUDGET to raise, not -")
	}
	out := &models.Overrun{Action: models.OverrunAction(action)}
	if limited {
		out.MaxBudget, err = strconv.ParseInt(text, 10, 64)
		if err != nil || out.MaxBudget < 1 || out.MaxBudget > models.MaxTokens {
			return nil, errorf(codes.E10, "", "max_budget must be a number of tokens, not %s", text)
		}
		if out.MaxBudget < *budget {
			return nil, errorf(codes.E10, "", "max_budget must not be less than BUDGET, %d", *budget)
		}
	}
	return out, nil
}
