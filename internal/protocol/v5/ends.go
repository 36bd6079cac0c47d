package v5

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	wire "comet/internal/wire/v5"
	"comet/models"
)

// writeOutcome makes a line the one that says how a task ended: S with its result, E with why
// not, or U with the state X for one that was cancelled.
func (p *Protocol) writeOutcome(ctx context.Context, m *wire.Message, t models.Task) (err error) {
	switch t.State {
	case models.TaskDone:
		m.Type = wire.Success
		m.Data, err = p.resultData(ctx, m.Task, t)
	case models.TaskCancelled:
		m.Type = wire.Update
		m.Data, err = new(wire.Writer).Text("reason", t.Error).Data()
	default:
		m.Type = wire.Failure
		kept := readFailureDetail(t)
		m.Err = errorCode(t, kept)
		m.Data, err = failureData(m.Err, kept, m.Task, t)
	}
	return err
}

// failureData is the DATA of an E: what its agent said, where it said it in this protocol.
func failureData(code wire.Code, kept failureDetail, tid wire.Task, t models.Task) (wire.Data, error) {
	switch {
	case kept.Code == code && kept.Data != "":
		return kept.Data, nil
	case code == wire.E17:
		have := int64(0)
		if t.Budget != nil {
			have = max(*t.Budget-t.Tokens, 0)
		}
		return new(wire.Writer).Text("desc", code.Meaning()).Number("have", have).Data()
	}
	return writeFailure(new(wire.Writer).Text("desc", code.Meaning()), tid, t).Text("details", t.Error).Data()
}

// resultData is the DATA of an S: the result itself where it can stand there, and otherwise
// a reference to it, which Q reads.
func (p *Protocol) resultData(ctx context.Context, tid wire.Task, t models.Task) (wire.Data, error) {
	if said := dataOfPieces(t); said != "" {
		return said, nil
	}
	if t.OutputBytes <= 4*wire.MaxData {
		text, err := p.taskOutput(ctx, t, models.StreamResult)
		if err != nil {
			return "", err
		}
		if text = strings.TrimRight(text, "\r\n"); text == "" {
			return "-", nil
		}
		if said, ok := asData(text); ok {
			return said, nil
		}
	}
	return new(wire.Writer).Ref("src", wire.Ref{Kind: wire.RefTask, Task: tid, Field: "raw"}).Number("bytes", t.OutputBytes).Data()
}

// asData reports whether a text can be DATA by itself.
func asData(text string) (wire.Data, bool) {
	line, err := wire.Format(wire.Message{
		Number: 1, From: self, To: wire.Address{Role: wire.User}, Type: wire.Success, Task: wire.TaskOf(1), Data: wire.Data(text),
	})
	return wire.Data(text), err == nil && strings.HasSuffix(line, "|"+text)
}

// resultField is a field of a result: a member by its path with full stops where it is JSON,
// and otherwise the value of a pair.
func resultField(text, field string) (string, bool) {
	value := jsontext.Value(text)
	if !value.IsValid() || value.Kind() != '{' {
		return wire.Data(text).Get(field)
	}
	for name := range strings.SplitSeq(field, ".") {
		var members map[string]jsontext.Value
		if json.Unmarshal(value, &members) != nil || members[name] == nil {
			return "", false
		}
		value = members[name]
	}
	var plain string
	if json.Unmarshal(value, &plain) == nil {
		return plain, true
	}
	return string(value), true
}
