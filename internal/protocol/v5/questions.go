package v5

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// handleQuestion handles a worker's C (§7.1): question= and options=, a list.
func (p *Protocol) handleQuestion(ctx context.Context, s sender, m wire.Message, t models.Task) error {
	var q orchestrator.Question
	var ok bool
	if q.Text, ok = m.Data.Get("question"); !ok {
		return errorf(codes.E10, "", "DATA must have question, such as question=which format?;options=json,txt")
	}
	if options, ok := m.Data.Pair("options"); ok {
		q.Options = slices.Collect(options.List())
	}
	for n := 1; n <= maxOptions; n++ {
		if text, ok := m.Data.Get("opt" + strconv.Itoa(n)); ok {
			q.Options = append(q.Options, text)
		}
	}
	t, err := p.orchestrator.Clarify(ctx, s.agentID, t.ID, q)
	if err == nil && t.ErrorCode == string(orchestrator.FailureQuestions) {
		err = errorf(codes.E18, "", "%s has asked too many questions and the task has failed", s.address)
	}
	return err
}

// handleAnswer handles a requester's C: answer= as it is, or choice=opt2.
func (p *Protocol) handleAnswer(ctx context.Context, s sender, m wire.Message, wait time.Duration) (protocol.Reply, error) {
	t, err := p.requestedTask(ctx, s, m)
	if err != nil {
		return p.resumeRequest(ctx, s, m, wait, err)
	}
	asking, waits, err := p.orchestrator.TaskAwaitingReply(ctx, t) // it may be a subtask
	if err != nil {
		return protocol.Reply{}, err
	}
	if !waits {
		return protocol.Reply{}, stateError(errs.New(errs.TaskState, "there is no open question").With("state", t.State), m)
	}
	question, err := p.orchestrator.OpenQuestion(ctx, asking)
	if err != nil {
		return protocol.Reply{}, err
	}
	text, err := answerText(m.Data, question.Options)
	if err != nil {
		return protocol.Reply{}, err
	}
	if _, err = p.orchestrator.Reply(ctx, asking.ID, text); err != nil {
		return protocol.Reply{}, reportError(err, s, m)
	}
	if t, err = p.orchestrator.Task(ctx, t.ID); err != nil {
		return protocol.Reply{}, err
	}
	return p.acceptedReply(ctx, s, m, t, wait)
}

// answerText reads answer=, or the option that choice= names.
func answerText(data wire.Data, options []string) (string, error) {
	if text, ok := data.Get(keyAnswer); ok {
		return text, nil
	}
	choice, ok := data.Get("choice")
	if !ok {
		return "", errorf(codes.E10, "", "DATA must have answer, or choice such as choice=opt2")
	}
	n, err := strconv.Atoi(strings.TrimPrefix(choice, "opt"))
	if err != nil || n < 1 || n > len(options) {
		return "", errorf(codes.E10, "", "choice must be opt1 to opt%d, not %s", len(options), choice)
	}
	return options[n-1], nil
}

// answerData returns the DATA of an answer to a worker: the exact text or, where DATA cannot hold
// it, a reference that Q reads. A worker acts on an answer, so the text is never truncated.
func answerData(text string, tid wire.Task) (wire.Data, error) {
	data, err := new(wire.Writer).Add(keyAnswer, text).Data()
	if _, invalid := errors.AsType[*wire.Error](err); invalid {
		ref := wire.Ref{Task: tid, Field: keyAnswer}
		return new(wire.Writer).Ref(keyAnswer, ref).Number("bytes", int64(len(text))).Data()
	}
	return data, err
}

// lastAnswer returns the last answer to the worker of a task, or E43.
func (p *Protocol) lastAnswer(ctx context.Context, t models.Task) (string, error) {
	text, err := p.orchestrator.LastReply(ctx, t)
	return text, notFoundAs(err, codes.E43, "no question was answered")
}
