package orchestrator

import (
	"bytes"
	"context"
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
)

// What the references of one request may cost.
const (
	maxReferences = 64
	// maxValues is how many bytes of output are read for all of them.
	maxValues = models.MaxTaskParameters
	// maxWalked is how many bytes of JSON their paths lead through.
	maxWalked = 8 * models.MaxTaskParameters
)

// references replaces those of one request. It reads outside of any transaction: the
// facts of a session and the outputs of tasks that have ended stay as they are, and
// reading them may take longer than others should wait for the writer.
type references struct {
	*Orchestrator
	session     models.Session
	dec         *jsontext.Decoder // stands behind the reference
	tasks       map[string]models.Task
	outputs     map[outputKey]string
	outputBytes int   // bytes of output
	jsonBytes   int64 // bytes of JSON
}

// outputKey is one output.
type outputKey struct {
	taskID string
	stream models.OutputStream
}

// resolveReferences notes what the parameters are with what their references stand for, or why
// they stand for nothing. Whether that matters the transaction finds out: a request that
// was made before is answered as it was then.
func (o *Orchestrator) resolveReferences(ctx context.Context, by models.Principal, sub *Submission) {
	sub.resolvedParameters = sub.Parameters
	if sub.SessionID == "" || !bytes.Contains(sub.Parameters, []byte(contextMark)) && !bytes.Contains(sub.Parameters, []byte(referenceMark)) {
		return
	}
	session, err := o.Session(ctx, sub.SessionID)
	if err == nil {
		err = sub.checkSession(by, session)
	}
	if err == nil {
		r := &references{
			Orchestrator: o, session: session, dec: jsontext.NewDecoder(bytes.NewReader(sub.Parameters), jsontext.AllowDuplicateNames(true)),
			tasks: map[string]models.Task{}, outputs: map[outputKey]string{},
		}
		sub.resolvedParameters, err = r.resolve(ctx)
	}
	sub.resolveErr = err
}

// resolve returns the parameters with what their references stand for. Its errors are
// errs.InvalidRequest for one that names nothing, and errs.TaskState for a task that has
// not ended.
func (r *references) resolve(ctx context.Context) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := jsontext.NewEncoder(&out, jsontext.AllowDuplicateNames(true))
	for n := 0; ; {
		text := r.dec.PeekKind() == '"' && !isName(r.dec)
		token, err := r.dec.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return bytes.TrimSpace(out.Bytes()), nil
		case err != nil:
			return nil, r.invalid("the parameters are not JSON")
		case !text || !isReference(token.String()):
			err = enc.WriteToken(token)
		default:
			if n++; n > maxReferences {
				return nil, r.invalid("there are more than %d references", maxReferences)
			}
			var value jsontext.Value
			if value, err = r.resolveValue(ctx, token.String()); err == nil {
				err = enc.WriteValue(value)
			}
		}
		if err != nil {
			return nil, err
		}
		if enc.OutputOffset() > models.MaxTaskParameters {
			return nil, r.invalid("the parameters are longer than %d bytes with what their references stand for", models.MaxTaskParameters)
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

// invalid is the error of the reference that was read last.
func (r *references) invalid(format string, args ...any) error {
	var v errs.Violations
	v.Add(errs.InvalidRequest, "/parameters"+string(r.dec.StackPointer()), "reference", format, args...)
	return v.Err()
}

// resolveValue is what a reference stands for.
func (r *references) resolveValue(ctx context.Context, text string) (jsontext.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if key, is := strings.CutPrefix(text, contextMark); is {
		value, err := r.memberAt(string(r.session.Facts), key)
		if err == nil && value == nil {
			err = r.invalid("the session has nothing under %s", words.Quote(key))
		}
		return value, err
	}
	id, field, _ := strings.Cut(strings.TrimPrefix(text, referenceMark), ":")
	t, err := r.loadTask(ctx, id)
	if err != nil {
		return nil, err
	}
	return r.fieldOf(ctx, t, field)
}

// loadTask returns a task of the session that has ended.
func (r *references) loadTask(ctx context.Context, id string) (models.Task, error) {
	if t, known := r.tasks[id]; known {
		return t, nil
	}
	t, err := r.store.Task(ctx, id)
	switch {
	case errs.Is(err, errs.NotFound) || err == nil && t.SessionID != r.session.ID:
		return t, r.invalid("there is no task %s in the session", words.Quote(id))
	case err != nil:
		return t, err
	case !t.State.Ended():
		return t, errs.New(errs.TaskState, "the task %q, which the parameters refer to, has not ended", id).With("state", t.State)
	}
	r.tasks[id] = t
	return t, nil
}

func (r *references) fieldOf(ctx context.Context, t models.Task, field string) (jsontext.Value, error) {
	stream := models.StreamResult
	switch field {
	case "state":
		return json.Marshal(t.State)
	case "exit_code":
		return json.Marshal(t.ExitCode)
	case "error":
		return json.Marshal(t.Error)
	case "tokens":
		return json.Marshal(t.Tokens)
	case "log":
		stream = models.StreamLog
	}
	text, err := r.outputText(ctx, t, stream)
	if err != nil {
		return nil, err
	}
	switch field {
	case "", "S", "raw", "result", "log":
		return jsontext.AppendQuote(nil, text)
	}
	value, err := r.memberAt(text, field)
	if err == nil && value == nil {
		err = r.invalid("the result of the task %s has no %s", words.Quote(t.ID), words.Quote(field))
	}
	return value, err
}

// outputText reads what a task has put out, once.
func (r *references) outputText(ctx context.Context, t models.Task, stream models.OutputStream) (string, error) {
	of := outputKey{t.ID, stream}
	if text, known := r.outputs[of]; known {
		return text, nil
	}
	var data []byte
	err := r.OutputOf(ctx, t, stream, 0, func(o models.OutputChunk) error {
		if r.outputBytes += len(o.Data); r.outputBytes > maxValues {
			return r.invalid("the outputs that the parameters refer to are longer than %d bytes together", maxValues)
		}
		data = append(data, o.Data...)
		return nil
	})
	if err != nil {
		return "", err
	}
	r.outputs[of] = strings.ToValidUTF8(string(data), "\uFFFD")
	return r.outputs[of], nil
}

// The longest path of a reference.
const (
	maxPathNames = 16
	maxPathBytes = 256
)

// memberAt follows a path of names into a JSON text, nil where that leads nowhere or the
// text is no JSON.
func (r *references) memberAt(text, path string) (jsontext.Value, error) {
	names := strings.SplitN(path, ".", maxPathNames+1)
	if len(path) > maxPathBytes || len(names) > maxPathNames {
		return nil, r.invalid("the path of a reference may have %d names and %d bytes", maxPathNames, maxPathBytes)
	}
	if r.jsonBytes += int64(len(text)); r.jsonBytes > maxWalked {
		return nil, r.invalid("the references lead through more than %d bytes of JSON", maxWalked)
	}
	dec := jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true))
	value, err := walkPath(dec, names)
	if err == nil {
		_, err = dec.ReadToken()
	}
	if !errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // it has no members
	}
	return value, nil
}

// walkPath reads the next value, once, and returns what a path leads to in it, nil where it
// leads nowhere. Of several members with one name the last one counts.
func walkPath(dec *jsontext.Decoder, names []string) (value jsontext.Value, err error) {
	if len(names) == 0 {
		value, err = dec.ReadValue()
		return value.Clone(), err
	}
	if dec.PeekKind() != '{' {
		return nil, dec.SkipValue()
	}
	if _, err = dec.ReadToken(); err != nil {
		return nil, err
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		if name.String() != names[0] {
			err = dec.SkipValue()
		} else {
			value, err = walkPath(dec, names[1:])
		}
		if err != nil {
			return nil, err
		}
	}
	_, err = dec.ReadToken()
	return value, err
}
