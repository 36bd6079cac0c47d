package v5

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// The keys of DATA that O1 reads in a request; they are no parameters.
const (
	keyToken      = "token"
	keyTimeout    = "timeout"         // seconds without a message of the worker
	keyAttempt    = "attempt_timeout" // seconds of an attempt in total
	keyExpires    = "expires_in"      // seconds of the task in total
	keyKeep       = "keep"            // the session stays open after the task
	keyUnanswered = "unanswered"      // what happens to a question without an answer
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

// The keys of a result in pieces and of its outcome. A worker sends a result that does not fit
// into DATA (PROTOCOL_V5 §3.4, §9.3) in pieces, each in a U: part=<n> is the n-th piece, from 1 and in
// order, and text= its text, with enc=base64 where DATA cannot hold the text. An S with
// src=#REF:<its TID>:raw then says that the pieces are the result (§12.1).
const (
	keyPart  = "part"
	keyText  = "text"
	keyEnc   = "enc"
	keySrc   = "src"
	keyParts = "parts" // the number of pieces, in the S
	keyExit  = "exit_code"
)

// keyAuth is the pair of a signature.
const keyAuth = "auth"

// keyAnswer is the answer to a question, and as the field of a reference the last answer to a
// task's worker (§7.1).
const keyAnswer = "answer"

// factPrefix begins the keys that set facts of a session in the request that opens it:
// ctx.lang=fr is what #CTX:lang refers to.
const factPrefix = "ctx."

const (
	// maxParameterName is the longest name of a parameter that is written as a pair.
	maxParameterName = 64
	// maxTimeout is the highest timeout= of a request, in seconds.
	maxTimeout = 7 * 24 * 3600
	// maxRetries is the highest max= of a request.
	maxRetries = 10
)

// requestMeta is stored with the input of a task that was requested in V5.
type requestMeta struct {
	// Data is DATA as it was received, for a worker that speaks V5 too.
	Data wire.Data `json:"data"`
	// Closes says that the session was opened for this request and ends with it.
	Closes bool `json:"closes,omitempty"`
	// V4 says that the request was of V4, where TID alone names a task.
	V4 bool `json:"v4,omitempty"`
	// Budget is the BUDGET of a hand-off, "" for a request.
	Budget string `json:"budget,omitempty"`
}

func readRequestMeta(in models.TaskInput) (m requestMeta, err error) {
	err = json.Unmarshal(in.Meta, &m)
	return m, err
}

func has(data wire.Data, key string) bool {
	_, ok := data.Pair(key)
	return ok
}

// intPair reads a number in DATA, def where there is none.
func intPair(data wire.Data, key string, low, high, def int) (int, error) {
	text, ok := data.Get(key)
	if !ok {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, errorf(codes.E10, "", "%s must be a number from %d to %d, not %s", key, low, high, text)
	}
	return n, nil
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

func isPiece(data wire.Data) bool { return has(data, keyPart) }

// isAnswer reports whether a C of an agent answers a question about its own request.
func isAnswer(data wire.Data) bool { return has(data, keyAnswer) || has(data, "choice") }

// rawRef is the reference to the result of a task.
func rawRef(tid wire.Task) wire.Ref { return wire.Ref{Task: tid, Field: "raw"} }

// paramsRef is the reference to the parameters of a task.
func paramsRef(tid wire.Task) wire.Ref { return wire.Ref{Task: tid, Field: "params"} }

// isRequestPair reports whether a pair of a request is for O1.
func isRequestPair(key string) bool {
	switch key {
	case keyTimeout, keyAttempt, keyExpires, keyKeep, keyUnanswered, keyParallel, keyAggregate, keyOnBudget, keyMaxBudget, keySimplify:
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
func parseParameters(data wire.Data) json.RawMessage {
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
	out := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, name) // DATA is valid UTF-8
		out = append(append(out, ':'), values[name]...)
	}
	return append(out, '}')
}

// jsonValue returns a value of DATA in JSON.
func jsonValue(text string, quoted bool) json.RawMessage {
	if !quoted && isScalar(text) {
		return json.RawMessage(text)
	}
	value, _ := jsontext.AppendQuote(nil, text) // DATA is valid UTF-8
	return value
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

// parseFacts adds the facts that a request sets for the session that it opens, and returns nil for none.
func parseFacts(data wire.Data, facts map[string]any) (json.RawMessage, error) {
	for pair := range data.Pairs() {
		if name, is := strings.CutPrefix(pair.Key, factPrefix); is && name != "" {
			facts[name] = jsonValue(pair.Value(), pair.IsQuoted())
		}
	}
	if len(facts) == 0 {
		return nil, nil
	}
	return json.Marshal(facts)
}

// rejectFacts rejects facts in a request that opens no session: the facts of an existing session
// do not change.
func rejectFacts(data wire.Data) error {
	for pair := range data.Pairs() {
		if strings.HasPrefix(pair.Key, factPrefix) {
			return errorf(codes.E10, "", "only the R that opens a session can set %s", pair.Key)
		}
	}
	return nil
}

// writeParameters writes the parameters of a task as pairs. ok is false where pairs cannot hold
// them.
func writeParameters(w *wire.Writer, parameters json.RawMessage) (ok bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(parameters))
	if open, err := dec.ReadToken(); err != nil || open.Kind() != '{' {
		return false
	}
	reserved := wire.Data("retry=0") // with it max is reserved too
	for dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			return false
		}
		name := token.String()
		value, err := dec.ReadValue()
		switch {
		case err != nil:
			return false
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
	if _, err := dec.ReadToken(); err != nil {
		return false
	}
	_, err := w.Data()
	return err == nil
}

// callData begins the DATA of a request with call=.
func callData(in models.TaskInput) *wire.Writer {
	w := new(wire.Writer)
	if len(in.Capabilities) > 0 {
		w.Add("call", strings.TrimPrefix(in.Capabilities[0], "custom:"))
	}
	return w
}

// forwardedData returns the DATA of a request as the requester wrote it, without the pairs for O1
// and those about attempts, and with those that O1 states about earlier attempts. ok is false
// where DATA cannot hold that, or would be ambiguous.
func forwardedData(requested wire.Data, retry wire.Retry) (data wire.Data, ok bool) {
	data = requested
	for pair := range requested.Pairs() {
		if isRequestPair(pair.Key) || isAttemptPair(requested, pair.Key, retry) || pair.Key == "pid" { // pid= counts in another conversation
			data, _, _ = data.Cut(pair.Key)
			data = wire.Data(strings.TrimSuffix(string(data), ";"))
		}
	}
	if retry.Max != 0 && has(data, keyMax) { // max= is a parameter
		return "", false
	}
	if strings.Trim(string(data), "; ") == "" {
		data = "-"
	}
	more, err := new(wire.Writer).Retry(retry).Data()
	if err != nil {
		return "", false
	}
	switch {
	case more == "-":
		return data, true
	case data == "-":
		return more, true
	}
	data += ";" + more
	return data, utf8.RuneCountInString(string(data)) <= wire.MaxData
}

// parsePercent reads a percentage such as 50%.
func parsePercent(text string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	return n, err == nil && n >= 0 && n <= 100
}

// jsonText returns a text member of the data of an inbox message, which the core has written.
func jsonText(data json.RawMessage, name string) string {
	var members map[string]string
	_ = json.Unmarshal(data, &members)
	return members[name]
}
