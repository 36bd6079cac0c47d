package v5

import (
	"context"
	"errors"

	"comet/internal/errs"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// fieldAnswer is the field of a reference that stands for what a task's worker was told
// last when it asked (PROTOCOL_V5 §7.1).
const fieldAnswer = "answer"

// answerData is the DATA of an answer: its very words or, where DATA cannot say all of them, a
// reference that Q reads. A worker acts upon an answer, so that none is cut or changed.
func answerData(text string, tid wire.Task) (wire.Data, error) {
	data, err := new(wire.Writer).Add("answer", text).Data()
	var unsayable *wire.Error
	if errors.As(err, &unsayable) {
		ref := wire.Ref{Kind: wire.RefTask, Task: tid, Field: fieldAnswer}
		return new(wire.Writer).Ref("answer", ref).Number("bytes", int64(len(text))).Data()
	}
	return data, err
}

// answerDataV4 is that of an answer to a worker of V4, which has no references and no Q: where
// it has no room it is cut, and what cannot be said is replaced by what looks like it.
func answerDataV4(text string) (wire.Data, error) {
	data, err := new(wire.Writer).Add("answer", text).Data()
	if err != nil || isUnencodableV4(data) {
		return new(wire.Writer).Text("answer", text).Data()
	}
	return data, nil
}

// lastAnswer is what the worker of a task was told last, E43 for nothing.
func (p *Protocol) lastAnswer(ctx context.Context, t models.Task) (string, error) {
	text, err := p.orchestrator.LastReply(ctx, t)
	if errs.Is(err, errs.NotFound) {
		return "", errorf(wire.E43, "", "nothing was answered")
	}
	return text, err
}
