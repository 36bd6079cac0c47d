// Package references resolves the references in the parameters of a task to values of its session
// (PROTOCOL_V5 §6.3). It is the orchestrator.Resolver of tasks of every protocol. A string that is a
// reference stands for a value:
//
//	#CTX:key          a fact that the creator of the session set
//	#REF:task         the result of an earlier task
//	#REF:task:field   a member of that result, if it is JSON, by its path with full stops
//
// The fields S, raw and result are the result as text; state, exit_code, error, tokens and log
// are fields of the task.
package references

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/models"
)

const (
	contextMark   = "#CTX:"
	referenceMark = "#REF:"
	// messageMark is known to a Translate function only.
	messageMark = "#MSG:"
)

// Limits for the references of one request.
const (
	maxReferences = 64
	// maxValues is the number of bytes of outputs and translated values that are read.
	maxValues = models.MaxTaskParameters
	// maxWalked is the number of bytes of JSON that are parsed.
	maxWalked = 8 * models.MaxTaskParameters
)

// Resolver implements orchestrator.Resolver. A resolved value is final: it is not resolved again if
// it looks like a reference.
type Resolver struct {
	// Translate translates a reference with short names, also #MSG:number: to its value if isValue is
	// set, and otherwise to a reference of this package. It reads outputs with read. nil leaves every
	// reference as it is.
	Translate func(ctx context.Context, text string, read ReadOutput) (translated string, isValue bool, err error)
}

// ReadOutput returns an output of a task as text. It returns an error if the text is too long.
type ReadOutput func(ctx context.Context, t models.Task, stream models.OutputStream) (string, error)

// MayRefer implements orchestrator.Resolver.
func (r Resolver) MayRefer(parameters json.RawMessage) bool {
	contains := func(mark string) bool { return bytes.Contains(parameters, []byte(mark)) }
	return contains(contextMark) || contains(referenceMark) || r.Translate != nil && contains(messageMark)
}

// Resolve implements orchestrator.Resolver. It returns errs.InvalidRequest for a reference to
// nothing and errs.TaskState for a task that has not ended.
func (r Resolver) Resolve(ctx context.Context, o *orchestrator.Orchestrator, session models.Session, parameters json.RawMessage) (json.RawMessage, error) {
	q := &request{
		Resolver: r, orchestrator: o, session: session, dec: jsontext.NewDecoder(bytes.NewReader(parameters), jsontext.AllowDuplicateNames(true)),
		tasks: map[string]models.Task{}, outputs: map[outputKey]string{}, values: map[string]jsontext.Value{},
	}
	return q.resolve(ctx)
}

// request resolves the references of one request.
type request struct {
	Resolver

	orchestrator *orchestrator.Orchestrator
	session      models.Session    // without an id if it is new
	dec          *jsontext.Decoder // is after the reference
	tasks        map[string]models.Task
	outputs      map[outputKey]string
	values       map[string]jsontext.Value // by reference
	valueBytes   int                       // read so far
	jsonBytes    int64                     // parsed so far
}

// outputKey identifies an output.
type outputKey struct {
	taskID string
	stream models.OutputStream
}

// resolve returns the parameters with resolved references.
func (r *request) resolve(ctx context.Context) (json.RawMessage, error) {
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
		case !text || !r.isReference(token.String()):
			err = enc.WriteToken(token)
		default:
			if n++; n > maxReferences {
				return nil, r.invalid("there are more than %d references", maxReferences)
			}
			reference := token.String()
			if _, known := r.values[reference]; !known {
				r.values[reference], err = r.resolveValue(ctx, reference)
			}
			if err == nil {
				err = enc.WriteValue(r.values[reference])
			}
		}
		if err != nil {
			return nil, err
		}
		if enc.OutputOffset() > models.MaxTaskParameters {
			return nil, r.invalid("the parameters with resolved references are longer than %d bytes", models.MaxTaskParameters)
		}
	}
}

// isName reports whether the next token is the name of a member.
func isName(dec *jsontext.Decoder) bool {
	kind, length := dec.StackIndex(dec.StackDepth())
	return kind == '{' && length%2 == 0
}

func (r *request) isReference(text string) bool {
	return strings.HasPrefix(text, contextMark) || strings.HasPrefix(text, referenceMark) || r.Translate != nil && strings.HasPrefix(text, messageMark)
}

// invalid returns the error for the reference that was read last.
func (r *request) invalid(format string, args ...any) error {
	var v errs.Violations
	v.Add(errs.InvalidRequest, "/parameters"+string(r.dec.StackPointer()), "reference", format, args...)
	return v.Err()
}

func (r *request) resolveValue(ctx context.Context, text string) (jsontext.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.Translate != nil {
		ofOutput := false // its bytes are counted when it is read
		translated, isValue, err := r.Translate(ctx, text, func(ctx context.Context, t models.Task, stream models.OutputStream) (string, error) {
			ofOutput = true
			output, err := r.outputText(ctx, t, stream)
			if err == nil {
				err = r.countJSON(output)
			}
			return output, err
		})
		if err == nil && isValue && !ofOutput {
			err = r.countValue(len(translated))
		}
		if err != nil {
			return nil, err
		}
		if text = translated; isValue {
			return jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD"))
		}
	}
	if key, is := strings.CutPrefix(text, contextMark); is {
		value, err := r.memberAt(string(r.session.Facts), key)
		if err == nil && value == nil {
			err = r.invalid("the session has no fact %s", input.Quote(key))
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

// loadTask returns an ended task of the session.
func (r *request) loadTask(ctx context.Context, id string) (models.Task, error) {
	if t, known := r.tasks[id]; known {
		return t, nil
	}
	t, err := r.orchestrator.Task(ctx, id)
	switch {
	case errs.Is(err, errs.NotFound) || err == nil && (r.session.ID == "" || t.SessionID != r.session.ID):
		return t, r.invalid("there is no task %s in the session", input.Quote(id))
	case err != nil:
		return t, err
	case !t.State.Ended():
		return t, errs.New(errs.TaskState, "the task %q, which the parameters refer to, has not ended", id).With("state", t.State)
	}
	r.tasks[id] = t
	return t, nil
}

func (r *request) fieldOf(ctx context.Context, t models.Task, field string) (jsontext.Value, error) {
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
		err = r.invalid("the result of the task %s has no %s", input.Quote(t.ID), input.Quote(field))
	}
	return value, err
}

// outputText returns the output of a task and reads it once.
func (r *request) outputText(ctx context.Context, t models.Task, stream models.OutputStream) (string, error) {
	of := outputKey{t.ID, stream}
	if text, known := r.outputs[of]; known {
		return text, nil
	}
	var data []byte
	err := r.orchestrator.Output(ctx, t, stream, 0, func(o models.OutputChunk) error {
		data = append(data, o.Data...)
		return r.countValue(len(o.Data))
	})
	if err != nil {
		return "", err
	}
	r.outputs[of] = strings.ToValidUTF8(string(data), "\uFFFD")
	return r.outputs[of], nil
}

// countValue adds to the size of the values that were read; it returns an error above maxValues.
func (r *request) countValue(bytes int) error {
	if r.valueBytes += bytes; r.valueBytes > maxValues {
		return r.invalid("the referenced values are longer than %d bytes in total", maxValues)
	}
	return nil
}

// countJSON counts a text that is parsed next.
func (r *request) countJSON(text string) error {
	if r.jsonBytes += int64(len(text)); r.jsonBytes > maxWalked {
		return r.invalid("the references need more than %d bytes of JSON to be parsed", maxWalked)
	}
	return nil
}

// Limits for the path of a reference.
const (
	maxPathNames = 16
	maxPathBytes = 256
)

// memberAt returns the member of a JSON text at a path, nil if there is none or the text is not
// JSON.
func (r *request) memberAt(text, path string) (jsontext.Value, error) {
	names := strings.SplitN(path, ".", maxPathNames+1)
	if len(path) > maxPathBytes || len(names) > maxPathNames {
		return nil, r.invalid("the path of a reference may have at most %d names and %d bytes", maxPathNames, maxPathBytes)
	}
	if err := r.countJSON(text); err != nil {
		return nil, err
	}
	return member(text, names), nil
}

// Member returns the member of a JSON text at a path, nil if there is none or the text is not JSON.
func Member(text, path string) jsontext.Value { return member(text, strings.Split(path, ".")) }

func member(text string, names []string) jsontext.Value {
	dec := jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true))
	value, err := walkPath(dec, names)
	if err == nil {
		_, err = dec.ReadToken()
	}
	if !errors.Is(err, io.EOF) {
		return nil // it has no members
	}
	return value
}

// walkPath reads the next value and returns its member at a path, nil if there is none. Of
// duplicate members the last one counts.
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
