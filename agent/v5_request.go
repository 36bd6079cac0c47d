package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/wire/v5"
)

// LineRequest is work that is asked for in a line of PROTOCOL_V5.
type LineRequest struct {
	// From is who asks: "" for User, or the number of the agent whose token is used.
	From string
	// To is a worker such as W3, or a sphere such as G8; "" for whoever can.
	To string
	// Capability is what the work needs, "" only to one worker.
	Capability string
	// Parameters is a JSON object of texts, numbers, true and false, nil for an empty one.
	// A name that O1 reads itself, such as keep, is for O1. All of it must fit in DATA,
	// 200 characters.
	Parameters json.RawMessage
	// Priority is P0, P1 or P2, "" for P1.
	Priority string
	// Budget is how many tokens all attempts together may use, 1 to 9,999; 0 is no bound.
	Budget int64
	// Timeout is how long the worker may be silent, in whole seconds; 0 is 30 s.
	Timeout time.Duration
}

// message is the R. Its errors say what a line cannot.
func (r *LineRequest) message() (m v5.Message, err error) {
	m = v5.Message{Number: 1, Type: v5.Request, State: v5.New}
	if m.From, err = v5.ParseAddress(cmp.Or(r.From, "User")); err != nil {
		return m, err
	}
	if m.To, err = v5.ParseAddress(cmp.Or(r.To, orchestrator().String())); err != nil {
		return m, err
	}
	switch r.Priority {
	case "", "P1":
		m.Priority = v5.P1
	case "P0":
		m.Priority = v5.P0
	case "P2":
		m.Priority = v5.P2
	default:
		return m, fmt.Errorf("the priority must be P0, P1 or P2, not %s", r.Priority)
	}
	switch {
	case r.Budget < 0 || r.Budget > v5.MaxBudget:
		return m, fmt.Errorf("the budget must be from 1 to %d tokens, not %d", v5.MaxBudget, r.Budget)
	case r.Budget > 0:
		m.Budget = v5.BudgetOf(r.Budget)
	}
	if m.Data, err = r.data(); err != nil {
		return m, err
	}
	_, err = v5.Format(m)
	return m, err
}

func (r *LineRequest) data() (v5.Data, error) {
	w := new(v5.Writer)
	if r.Capability != "" {
		w.Add("call", r.Capability)
	}
	if seconds := int64((r.Timeout + time.Second - 1) / time.Second); seconds > 0 {
		w.Number("timeout", seconds)
	}
	if err := writePairs(w, r.Parameters); err != nil {
		return "", err
	}
	return w.Data()
}

// writePairs writes the members of an object so that the worker gets the very ones.
func writePairs(w *v5.Writer, object json.RawMessage) error {
	if len(object) == 0 {
		return nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(object))
	if open, err := dec.ReadToken(); err != nil || open.Kind() != '{' {
		return errors.New("the parameters must be a JSON object")
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		switch value.Kind() {
		case '{', '[', 'n':
			return fmt.Errorf("the parameter %s is an object, an array or null, which a line cannot say; the envelope protocol can", key)
		case '"':
			text, err := jsontext.AppendUnquote(nil, value)
			if err != nil {
				return err
			}
			writeText(w, key, string(text))
		default:
			w.Add(key, string(value))
		}
	}
	return nil
}

// writeText writes a text, in quotes where it would be read as something else.
func writeText(w *v5.Writer, key, text string) {
	if text == "" || jsontext.Value(text).IsValid() {
		w.Quoted(key, text)
		return
	}
	w.Add(key, text)
}

// IsUnsayable reports whether an error is of a request that no line can say: the envelope
// protocol may.
func IsUnsayable(err error) bool {
	var unsayable *unsayableError
	return errors.As(err, &unsayable)
}

// unsayableError is what is wrong with a LineRequest.
type unsayableError struct{ error }

func (e *unsayableError) Unwrap() error { return e.error }
