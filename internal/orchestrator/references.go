package orchestrator

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/words"
	"comet/models"
)

// A text in the parameters of a task in a session that is a reference stands for a
// value of the session (PROTOCOL_V5 §6.3):
//
//	#CTX:key          what the session's maker set
//	#REF:task         the result of an earlier task
//	#REF:task:field   a member of it where it is JSON, by its path with full stops
//
// The fields S, raw and result are the result as text; state, exit_code, error, tokens
// and log are of the task itself.
const (
	contextMark   = "#CTX:"
	referenceMark = "#REF:"
	maxReferences = 64
)

// resolve replaces the references in parameters. It returns errs.InvalidRequest for one
// that names nothing, and errs.TaskState for a task that has not ended.
func (s *step) resolve(session models.Session, parameters json.RawMessage) (json.RawMessage, error) {
	if !bytes.Contains(parameters, []byte(contextMark)) && !bytes.Contains(parameters, []byte(referenceMark)) {
		return parameters, nil
	}
	var out bytes.Buffer
	dec, enc := jsontext.NewDecoder(bytes.NewReader(parameters)), jsontext.NewEncoder(&out)
	for n := 0; ; {
		text := dec.PeekKind() == '"' && !isName(dec)
		token, err := dec.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return bytes.TrimSpace(out.Bytes()), nil
		case err != nil:
			return nil, err
		case !text || !isReference(token.String()):
			err = enc.WriteToken(token)
		default:
			if n++; n > maxReferences {
				return nil, badReference(dec, "there are more than %d references", maxReferences)
			}
			var value jsontext.Value
			if value, err = s.value(session, token.String(), dec); err == nil {
				err = enc.WriteValue(value)
			}
		}
		if err != nil {
			return nil, err
		}
		if out.Len() > models.MaxTaskParameters {
			return nil, badReference(dec, "the parameters are longer than %d bytes with what their references stand for", models.MaxTaskParameters)
		}
	}
}

// isName reports whether the decoder stands before the name of a member.
func isName(dec *jsontext.Decoder) bool {
	kind, length := dec.StackIndex(dec.StackDepth())
	return kind == '{' && length%2 == 0
}

func isReference(text string) bool {
	return strings.HasPrefix(text, contextMark) || strings.HasPrefix(text, referenceMark)
}

func badReference(dec *jsontext.Decoder, format string, args ...any) error {
	var v errs.Violations
	v.Add(errs.InvalidRequest, "/parameters"+string(dec.StackPointer()), "reference", format, args...)
	return v.Err()
}

// value is what a reference stands for.
func (s *step) value(session models.Session, text string, dec *jsontext.Decoder) (jsontext.Value, error) {
	if key, is := strings.CutPrefix(text, contextMark); is {
		value, found := member(jsontext.Value(session.Facts), key)
		if !found {
			return nil, badReference(dec, "the session has nothing under %s", words.Quote(key))
		}
		return value, nil
	}
	id, field, _ := strings.Cut(strings.TrimPrefix(text, referenceMark), ":")
	t, err := s.tx.PeekTask(id)
	if errs.Is(err, errs.NotFound) || err == nil && t.SessionID != session.ID {
		return nil, badReference(dec, "there is no task %s in the session", words.Quote(id))
	}
	if err != nil {
		return nil, err
	}
	if !t.State.Ended() {
		return nil, errs.New(errs.TaskState, "the task %q, which the parameters refer to, has not ended", id).With("state", t.State)
	}
	return s.field(t, field, dec)
}

func (s *step) field(t models.Task, field string, dec *jsontext.Decoder) (jsontext.Value, error) {
	var of any
	switch field {
	case "state":
		of = t.State
	case "exit_code":
		of = t.ExitCode
	case "error":
		of = t.Error
	case "tokens":
		of = t.Tokens
	case "log":
		text, err := s.outputText(t, models.StreamLog, dec)
		if err != nil {
			return nil, err
		}
		of = text
	default:
		text, err := s.outputText(t, models.StreamResult, dec)
		if err != nil {
			return nil, err
		}
		if of = text; field != "" && field != "S" && field != "raw" && field != "result" {
			value, found := member(jsontext.Value(text), field)
			if !found {
				return nil, badReference(dec, "the result of the task %s has no %s", words.Quote(t.ID), words.Quote(field))
			}
			return value, nil
		}
	}
	return json.Marshal(of)
}

// outputText reads what a task has put out, which is not longer than parameters may be.
func (s *step) outputText(t models.Task, stream models.OutputStream, dec *jsontext.Decoder) (string, error) {
	attempt, err := s.decisive(t)
	if err != nil {
		return "", err
	}
	data, err := s.tx.ReadOutput(t.ID, attempt, stream, models.MaxTaskParameters)
	if errs.Is(err, errs.LimitReached) {
		return "", badReference(dec, "the output of the task %s is longer than %d bytes", words.Quote(t.ID), models.MaxTaskParameters)
	}
	return strings.ToValidUTF8(string(data), "\uFFFD"), err
}

// decisive is the number of the attempt whose output is the task's.
func (s *step) decisive(t models.Task) (int, error) {
	if t.State != models.TaskDone {
		return t.Attempt, nil
	}
	all, err := s.tx.Attempts(t.ID)
	return decisive(t, all), err
}

// decisive is the attempt that succeeded, which may not be the newest.
func decisive(t models.Task, all []models.Attempt) int {
	for _, a := range all {
		if a.State == models.AttemptSucceeded {
			return a.Attempt
		}
	}
	return t.Attempt
}

// member follows a path of names into a JSON value.
func member(value jsontext.Value, path string) (jsontext.Value, bool) {
	for name := range strings.SplitSeq(path, ".") {
		var members map[string]json.RawMessage
		if json.Unmarshal(value, &members) != nil || members[name] == nil {
			return nil, false
		}
		value = jsontext.Value(members[name])
	}
	return value, true
}
