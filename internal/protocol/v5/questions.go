package v5

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/v5/shortid"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
	"comet/store"
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
	if len(options) == 0 {
		return "", errorf(codes.E10, "", "the question has no options: reply with answer=, not choice=%s", choice)
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

// openRequestFact is the fact of a session with the request that it was opened for, if O1 asked the
// requester for the capability.
const openRequestFact = "open_request"

// openRequest is a request without an unambiguous capability.
type openRequest struct {
	Line    string   `json:"line"`
	Options []string `json:"options,omitempty"`
}

// disambiguate replies with D to a request for no capability, or for one that no agent offers, if it
// may mean several capabilities (PROTOCOL_V5 §7.2, §12.3). Otherwise it returns cause. The request is
// stored as a fact of its session.
func (p *Protocol) disambiguate(ctx context.Context, s sender, m wire.Message, cause error) (protocol.Reply, error) {
	call := models.CapabilityKey(m.Data.Call())
	options := slices.DeleteFunc(p.orchestrator.CapabilitiesOf(""), func(name string) bool { return !strings.Contains(name, call) })
	if m.To != self || s.v4 || m.Context != "" || len(options) < 2 || slices.Contains(options, call) {
		return protocol.Reply{}, cause
	}
	question := "which capability?"
	if len(options) > maxOptions {
		question, options = question+" "+strings.Join(options, ", "), nil
	}
	w := new(wire.Writer).Text("question", question)
	for i, name := range options {
		w.Add("opt"+strconv.Itoa(i+1), name)
	}
	if _, err := w.Data(); err != nil { // DATA cannot hold the options
		return protocol.Reply{}, cause
	}
	asked := m
	err := p.store.Write(ctx, func(tx *store.Tx) error {
		tid, _ := m.Task.Number()
		id, err := shortid.OpenSession(tx, func(n int64) int { return firstTaskNumber(max(tid, 0), n, false) })
		if err != nil {
			return err
		}
		asked.Context, asked.Task, asked.Auth = shortid.ContextName(id.Context), wire.NewTask(id.Task), wire.Auth{}
		open := openRequest{Options: options}
		if open.Line, err = asked.Format(); err != nil {
			return err
		}
		session := models.Session{ID: asked.Context, Owner: s.TokenID, AgentID: s.agentID, State: models.SessionOpen, CreatedAt: tx.Now(), UpdatedAt: tx.Now()}
		if session.Facts, err = parseFacts(m.Data, map[string]any{openRequestFact: open}); err != nil {
			return err
		}
		return tx.Sessions().Insert(session)
	})
	if err != nil {
		return protocol.Reply{}, err
	}
	s.incoming.setContext(asked)
	s.incoming.logOnce(asked)
	return p.reply(asked, wire.Disambiguate, wire.Running, w, true)
}

// resumeRequest handles a C that chooses the capability of a request. It returns cause if O1 has
// asked no question with this CTX and TID.
func (p *Protocol) resumeRequest(ctx context.Context, s sender, m wire.Message, wait time.Duration, cause error) (protocol.Reply, error) {
	_, id, err := p.findSession(ctx, s, m.Context)
	if err != nil {
		return protocol.Reply{}, cause
	}
	session, err := p.orchestrator.Session(ctx, id)
	if err != nil {
		return protocol.Reply{}, err
	}
	var facts map[string]json.RawMessage
	var open openRequest
	_ = json.Unmarshal(session.Facts, &facts)
	_ = json.Unmarshal(facts[openRequestFact], &open)
	request, err := wire.Parse(open.Line)
	switch {
	case err != nil || request.Task != m.Task || request.From != m.From:
		return protocol.Reply{}, cause
	case p.store.Now().Sub(session.CreatedAt) > Policy().ReplyTimeout:
		return protocol.Reply{}, errorf(codes.E23, "", "the question of %s got no reply within a minute: send the R again", m.Task)
	}
	call, err := answerText(m.Data, open.Options)
	if err != nil {
		return protocol.Reply{}, err
	}
	request.Data, _, _ = request.Data.Cut("call")
	data, err := new(wire.Writer).Add("call", call).Data()
	if request.Data != "-" {
		data += ";" + request.Data
	}
	if err != nil || utf8.RuneCountInString(string(data)) > wire.MaxData {
		return protocol.Reply{}, errorf(codes.E10, "", "DATA cannot hold the capability and the parameters; send another R")
	}
	s.incoming.setContext(m)
	s.incoming.logOnce(m)
	request.Number, request.Data, s.closesSession = m.Number, data, true
	return p.handleRequest(ctx, s, request, wait)
}
