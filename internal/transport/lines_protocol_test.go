package transport_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/models"
)

// linesProtocol is a small but complete protocol, which shows what a new protocol needs. A message
// is a line of words:
//
//	submit CAPABILITY TEXT   submits a task; the reply is "task TASK", or "ended TASK OUTPUT"
//	join [CONCURRENCY]       takes tasks on this connection, 2 at a time by default
//	accept TASK              accepts a task
//	done TASK OUTPUT         completes a task
//	fail TASK TEXT           fails a task
//	assign MESSAGE TASK TEXT assigns a task to an agent
//	ended MESSAGE TASK       notifies an agent of the end of a task
//	error CODE TEXT          refuses a message
//
// With keys an agent signs its messages: "sig=SIGNATURE " before a message is the Ed25519 signature
// of the rest in base64.
type linesProtocol struct {
	work   *orchestrator.Orchestrator
	framed bool
	keys   *auth.Keys
}

func (p *linesProtocol) Info() protocol.Info {
	info := protocol.Info{Name: "lines", Subprotocols: []string{"lines.v1"}, ContentTypes: []string{"text/x-lines"}, Framed: p.framed}
	if p.keys != nil {
		info.KeyAlgorithm, info.Verify = auth.Ed25519, p.verify
	}
	return info
}

// verify verifies the signature of a message if it has one or must have one, and records it.
func (p *linesProtocol) verify(ctx context.Context, from protocol.Peer, raw []byte) error {
	key, err := p.keys.Signing(ctx, from.AgentID(), auth.Ed25519)
	if err != nil {
		return err
	}
	text, signed := bytes.CutPrefix(raw, []byte("sig="))
	if !signed && !key.Required {
		return nil
	}
	encoded, body, _ := bytes.Cut(text, []byte(" "))
	signature, _ := base64.StdEncoding.DecodeString(string(encoded))
	public, _ := base64.StdEncoding.DecodeString(key.PublicKey)
	if len(public) == 0 || !ed25519.Verify(public, body, signature) {
		return errs.New(errs.Unauthenticated, "the signature is invalid")
	}
	return p.keys.TakeOnce(ctx, "lines", from.AgentID(), string(raw))
}

// Order returns the task of a report as its key.
func (p *linesProtocol) Order(raw []byte) protocol.Order {
	verb, rest, _ := strings.Cut(string(raw), " ")
	if verb == "submit" || verb == "join" {
		return protocol.Order{}
	}
	task, _, _ := strings.Cut(rest, " ")
	return protocol.Order{Key: task}
}

func (p *linesProtocol) Accepts(models.Agent) error { return nil }

// Token returns the token of a message that begins with "token=".
func (p *linesProtocol) Token(raw []byte) (string, []byte) {
	if text, ok := strings.CutPrefix(string(raw), "token="); ok {
		token, rest, _ := strings.Cut(text, " ")
		return token, []byte(rest)
	}
	return "", raw
}

func (p *linesProtocol) Receive(ctx context.Context, from protocol.Peer, raw []byte, wait time.Duration) protocol.Reply {
	var err error
	if p.keys != nil && !from.Verified {
		err = p.verify(ctx, from, raw)
	}
	var reply protocol.Reply
	if err == nil {
		reply, err = p.receive(ctx, from, string(raw), wait)
	}
	if err != nil {
		return p.Refuse(err, raw)
	}
	return reply
}

func (p *linesProtocol) receive(ctx context.Context, from protocol.Peer, text string, wait time.Duration) (protocol.Reply, error) {
	if _, body, ok := strings.Cut(text, " "); ok && strings.HasPrefix(text, "sig=") {
		text = body
	}
	verb, rest, _ := strings.Cut(text, " ")
	subject, detail, _ := strings.Cut(rest, " ")
	switch agentID := from.AgentID(); {
	case verb == "submit":
		return p.submit(ctx, from, subject, detail, wait)
	case agentID == "":
		return protocol.Reply{}, errs.New(errs.ForeignAgent, "only an agent sends %s", verb)
	case verb == "join":
		reply := p.reply(http.StatusOK, "joined")
		reply.Joined, reply.Concurrency = true, 2
		if n, err := strconv.Atoi(subject); err == nil {
			reply.Concurrency = n
		}
		return reply, nil
	case verb == "accept":
		_, err := p.work.Accept(ctx, agentID, subject)
		return p.reply(http.StatusOK, "accepted "+subject), err
	case verb == "done":
		_, err := p.work.Complete(ctx, agentID, subject, orchestrator.Result{Output: []byte(detail)})
		return p.reply(http.StatusOK, "completed "+subject), err
	case verb == "fail":
		_, err := p.work.Complete(ctx, agentID, subject, orchestrator.Result{Failure: orchestrator.FailureWork, Text: detail})
		return p.reply(http.StatusOK, "failed "+subject), err
	}
	return protocol.Reply{}, errs.New(errs.InvalidRequest, "unknown verb")
}

func (p *linesProtocol) submit(ctx context.Context, from protocol.Peer, capability, text string, wait time.Duration) (protocol.Reply, error) {
	parameters, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return protocol.Reply{}, err
	}
	out, err := p.work.Submit(ctx, from.Principal, orchestrator.Submission{
		Capabilities: []string{capability}, Parameters: parameters, Priority: orchestrator.DefaultPriority,
		Override: orchestrator.Override{Notify: from.AgentID() != ""},
	}, nil)
	if err != nil {
		return protocol.Reply{}, err
	}
	if wait == 0 {
		return p.reply(http.StatusAccepted, "task "+out.Task.ID), nil
	}
	t, err := p.work.Wait(ctx, from.Principal.TokenID, out.Task.ID, wait)
	if err != nil || !t.State.Ended() {
		return p.reply(http.StatusAccepted, "task "+out.Task.ID), err
	}
	output, err := p.output(ctx, t)
	return p.reply(http.StatusOK, "ended "+t.ID+" "+output), err
}

func (p *linesProtocol) output(ctx context.Context, t models.Task) (string, error) {
	var b strings.Builder
	err := p.work.Output(ctx, t, models.StreamResult, 0, func(o models.OutputChunk) error {
		_, err := b.Write(o.Data)
		return err
	})
	return b.String(), err
}

func (p *linesProtocol) Render(ctx context.Context, to protocol.Peer, m models.InboxMessage, _ int) ([][]byte, error) {
	t, err := p.work.TaskWithInput(ctx, m.TaskID)
	if err != nil {
		return nil, err
	}
	switch m.Kind {
	case models.MessageAssign:
		if t.Task.State.Ended() || t.Task.AgentID != to.Agent.ID {
			return nil, nil
		}
		var parameters struct{ Text string }
		if err := json.Unmarshal(t.Input.Parameters, &parameters); err != nil {
			return nil, err
		}
		return [][]byte{fmt.Appendf(nil, "assign %s %s %s", m.ID, m.TaskID, parameters.Text)}, nil
	case models.MessageTaskEnded:
		return [][]byte{fmt.Appendf(nil, "ended %s %s", m.ID, m.TaskID)}, nil
	}
	return nil, nil
}

func (p *linesProtocol) Refuse(err error, _ []byte) protocol.Reply {
	e := errs.From(err)
	status := http.StatusBadRequest
	switch e.Code {
	case errs.Unauthenticated, errs.AgentInactive, errs.MissingScope, errs.ForeignAgent:
		status = http.StatusUnauthorized
	case errs.NotFound:
		status = http.StatusNotFound
	case errs.Internal, errs.Unavailable:
		status = http.StatusServiceUnavailable
	}
	reply := p.reply(status, "error "+string(e.Code)+" "+e.Detail)
	reply.IsError = true
	return reply
}

func (p *linesProtocol) reply(status int, text string) protocol.Reply {
	return protocol.Reply{Status: status, Body: []byte(text), ContentType: "text/x-lines", SendBack: true}
}
