package v5

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"comet/internal/protocol"
	"comet/internal/protocol/v5/shortid"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
	"comet/store"
)

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
	w := new(wire.Writer)
	if len(options) > maxOptions {
		w.Text("question", "which capability? "+strings.Join(options, ", "))
		options = nil
	} else {
		w.Add("question", "which capability?")
	}
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
		return protocol.Reply{}, errorf(codes.E23, "", "the question of %s got no reply in time; send the R again", m.Task)
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
