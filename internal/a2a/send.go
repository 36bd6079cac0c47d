package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/uuid"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
	rows "comet/store/a2a"
)

// accept processes a message: it requests a task, replies to a question, or chooses a capability. It returns the task, of which only
// the id is known if found.first is nil. A message that the token has sent before changes nothing; a request for a new context
// finds that out when it stores its message.
func (s *service) accept(ctx context.Context, by sender, req sendRequest) (f found, err error) {
	if err := auth.Require(by.Principal, models.ScopeMessagesSend); err != nil {
		return f, err
	}
	m, err := readMessage(req)
	if err != nil {
		return f, err
	}
	if m.TaskID != "" || m.ContextID != "" {
		f.row.ID, err = s.repeated(ctx, by, m)
		if f.row.ID != "" || err != nil {
			return f, err
		}
	}
	if c := cmp.Or(req.Configuration.Push, req.Configuration.SDKPush); c != nil {
		if m.push, err = s.draft(by, *c); err != nil {
			return f, err
		}
	}
	switch {
	case m.TaskID != "" && len(req.Message) > maxReplyJSON:
		return f, fail(a2a.ErrInvalidParams, "a message with a taskId must have at most %d bytes", maxReplyJSON)
	case m.TaskID != "":
		f.row.ID, err = string(m.TaskID), s.reply(ctx, by, m, req)
	default:
		f, err = s.request(ctx, by, m, req)
	}
	if err != nil { // the message may have been sent before, or at the same time
		first, missed := s.repeated(ctx, by, m)
		if first != "" || missed != nil && errs.Is(err, errs.Conflict) {
			return found{row: rows.Task{ID: first}}, missed
		}
	}
	return f, err
}

// repeated returns the task of a message that the token has sent before, "" for a new message. It returns an error if that
// message had other content.
func (s *service) repeated(ctx context.Context, by sender, m message) (taskID string, err error) {
	first, err := rows.Sent(s.Store.Reads(ctx), by.TokenID, m.ID)
	switch {
	case errs.Is(err, errs.NotFound):
		return "", nil
	case err != nil:
		return "", err
	case first.Digest != m.digest:
		return "", fail(a2a.ErrInvalidParams, "the messageId %q was used for another message, tenant, capability or workflow of the task %s", m.ID, first.TaskID)
	}
	return first.TaskID, nil
}

// request requests a task. Work that no agent offers, or that no budget covers, is a rejected task.
func (s *service) request(ctx context.Context, by sender, m message, req sendRequest) (f found, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return f, err
	}
	if flow, err := m.workflowRequest(req); err != nil {
		return f, err
	} else if flow != nil {
		f.row.ID, err = s.startWorkflow(ctx, by, m, *flow)
		return f, err
	}
	t := rows.Task{ID: id.String(), Owner: by.TokenID, ContextID: cmp.Or(m.ContextID, uuid.NewString())}
	parameters, err := m.parameters()
	if err == nil && m.ContextID != "" {
		err = s.enterContext(ctx, by, t.ContextID)
	}
	var budget *int64
	if err == nil {
		budget, err = m.budget(req.Metadata)
	}
	if err != nil {
		return f, err
	}
	add := s.adding(by, &t, m)
	capability := m.metadata("capability", req.Metadata)
	if capability == "" && isPrintable(req.Tenant) {
		if t.Options, capability, err = s.choose(ctx, by.Principal, m, req.Tenant); err != nil {
			return f, err
		}
	} else if capability != "" && !input.ValidCapability(capability) || !isPrintable(req.Tenant) {
		return f, fail(a2a.ErrInvalidParams, "metadata.capability must be the name of a capability, and tenant the id of an agent")
	}
	switch {
	case t.Options != nil:
		t.State = rows.Asking
	case capability == "" && req.Tenant == "":
		t.State, t.Reason = rows.Rejected, "no capability matches the message; name one as metadata.capability, see the extended agent card"
	default:
		core, err := s.submit(ctx, by, t, order{capability, req.Tenant, parameters, budget, m.ContextID == ""}, add)
		if reason := refusal(err); reason != "" {
			t.State, t.Reason = rows.Rejected, reason
			break
		}
		return found{row: t, core: &core, first: m.of(t)}, err
	}
	err = s.Store.Write(ctx, add)
	return found{row: t, first: m.of(t)}, err
}

// of returns a message as that of a task.
func (m message) of(t rows.Task) *a2a.Message {
	out := *m.Message
	out.TaskID, out.ContextID = a2a.TaskID(t.ID), t.ContextID
	return &out
}

// adding returns what stores a task with the message that requests it and its push notifications.
func (s *service) adding(by sender, t *rows.Task, m message) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		t.CreatedAt, t.UpdatedAt = tx.Now(), tx.Now()
		if err := rows.Add(tx, *t, s.sent(by, *t, m)); err != nil {
			return err
		}
		return s.setPush(tx, by, t.ID, t.State == rows.Rejected, m.push)
	}
}

// refusal returns the reason why the core does not accept work, "" for any other error.
func refusal(err error) string {
	if errs.Is(err, errs.UnsupportedWork) || errs.Is(err, errs.BudgetExceeded) || errs.Is(err, errs.BudgetReserved) {
		return errs.From(err).Detail
	}
	return ""
}

// sent returns the row of a client's message.
func (s *service) sent(by sender, t rows.Task, m message) rows.Message {
	text, _ := json.Marshal(m.of(t)) // decoded JSON
	return rows.Message{Owner: by.TokenID, MessageID: m.ID, Digest: m.digest, Message: text}
}

// enterContext opens the session of a context unless it is open.
func (s *service) enterContext(ctx context.Context, by sender, id string) error {
	refused := fail(a2a.ErrInvalidParams, "the context %q cannot be used; omit contextId for a new one", id)
	session, err := s.Orchestrator.Session(ctx, id)
	if errs.Is(err, errs.NotFound) {
		session, err = s.Orchestrator.OpenSession(ctx, by.Principal, id, nil)
		if errs.Is(err, errs.Conflict) { // it was opened at the same time
			session, err = s.Orchestrator.Session(ctx, id)
		}
	}
	switch {
	case err != nil && errs.From(err).Code.IsInvalid():
		return refused
	case err != nil:
		return err
	case session.Owner != by.TokenID && !by.Administers(), session.State == models.SessionClosed:
		return refused
	}
	return nil
}

// order is what a task requires.
type order struct {
	capability, agentID string
	parameters          json.RawMessage
	// budget is nil for no limit.
	budget *int64
	// opens is set if the task opens the session of its context.
	opens bool
}

// submit submits a task and commits rows of the caller with it.
func (s *service) submit(ctx context.Context, by sender, t rows.Task, o order, with func(*store.Tx) error) (models.Task, error) {
	sub := orchestrator.Submission{
		ID: t.ID, Class: Class, AgentID: o.agentID, Parameters: o.parameters, Budget: o.budget, Priority: orchestrator.DefaultPriority, SessionID: t.ContextID, Traceparent: by.traceparent,
		With: func(tx *store.Tx, _ *models.Task) error { return with(tx) },
	}
	if o.opens {
		sub.SessionID, sub.Session = "", &orchestrator.NewSession{ID: func(*store.Tx) (string, error) { return t.ContextID, nil }}
	}
	if o.capability != "" {
		sub.Capabilities = []string{o.capability}
	}
	done, err := s.Orchestrator.Submit(ctx, by.Principal, sub, nil)
	return done.Task, err
}

// maxOptions limits the capabilities from which a client chooses.
const maxOptions = 10

// choice is what a client that named no capability chooses from: the options of a row.
type choice struct {
	// Tenant is the agent that gets the task, "" for any.
	Tenant       string   `json:"tenant,omitempty"`
	Capabilities []string `json:"capabilities"`
}

func choiceOf(t rows.Task) (c choice, err error) {
	err = json.Unmarshal(t.Options, &c)
	return c, err
}

// choose returns the capability whose words the message contains, or the only one of the tenant. If several are possible, it
// returns them as options.
func (s *service) choose(ctx context.Context, by models.Principal, m message, tenant string) (options json.RawMessage, capability string, err error) {
	var texts []string
	for _, p := range m.Parts {
		texts = append(texts, p.Text())
	}
	said := map[string]bool{}
	for _, word := range words(strings.Join(texts, " ")) {
		said[word] = true
	}
	offered := s.Orchestrator.CapabilitiesOf("")
	if tenant != "" {
		agent, err := s.tenant(ctx, by, tenant)
		if err != nil && !errors.Is(err, a2a.ErrTaskNotFound) { // the core rejects the task
			return nil, "", err
		}
		offered = models.CapabilityKeys(agent.Capabilities)
	}
	best, hits := 0, []string{}
	for _, name := range offered {
		of := words(name)
		if len(of) == 0 || !containsAll(said, of) {
			continue
		}
		if len(of) > best {
			best, hits = len(of), hits[:0]
		}
		if len(of) == best {
			hits = append(hits, name)
		}
	}
	if tenant != "" && len(hits) == 0 {
		hits = offered
	}
	switch len(hits) {
	case 0:
		return nil, "", nil
	case 1:
		return nil, hits[0], nil
	}
	options, err = json.Marshal(choice{tenant, hits[:min(len(hits), maxOptions)]})
	return options, "", err
}

// words returns the words of a text in lower case.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r < 0x80
	})
}

func containsAll(said map[string]bool, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(w string) bool { return !said[w] })
}

// reply replies to the question of a task, chooses its capability, or decides on a checkpoint of its workflow.
func (s *service) reply(ctx context.Context, by sender, m message, req sendRequest) error {
	f, err := s.find(ctx, by.Principal, string(m.TaskID))
	paused := f.flow != nil && workflowState(f.flow.Status) == a2a.TaskStateInputRequired
	if err == nil && (!paused || m.push != nil) { // a decision has rules of its own
		err = f.requireOwner(by.Principal)
	}
	switch {
	case err != nil:
		return err
	case m.ContextID != "" && m.ContextID != f.contextID():
		return fail(a2a.ErrInvalidParams, "the task %s belongs to another context than %q", m.TaskID, m.ContextID)
	case f.ended():
		return fail(a2a.ErrUnsupportedOperation, "the task %s has ended; send a message without taskId for a new one", m.TaskID)
	case paused:
		return s.decide(ctx, by, f, m)
	case f.core == nil && f.flow == nil:
		return s.chosen(ctx, by, f, m, req)
	}
	asking, open, err := s.awaitingReply(ctx, f)
	if err != nil {
		return err
	}
	if !open {
		return fail(a2a.ErrUnsupportedOperation, "the task %s has no open question and takes no messages", m.TaskID)
	}
	text, err := m.text()
	if err != nil {
		return err
	}
	status, err := s.asking(ctx, f, a2a.TaskStatus{}, asking)
	if err != nil {
		return err
	}
	_, err = s.Orchestrator.Reply(ctx, asking.ID, text, s.replying(by, f, m, status.Message))
	return err
}

// replying returns what stores a question and the message that replies to it.
func (s *service) replying(by sender, f found, m message, question *a2a.Message) func(*store.Tx) error {
	asked, _ := json.Marshal(question) // text
	return func(tx *store.Tx) error {
		t, err := f.stored(tx)
		if err == nil {
			err = rows.AddMessages(tx, t.ID, rows.Message{MessageID: question.ID, Message: asked}, s.sent(by, t, m))
		}
		if err != nil {
			return err
		}
		return s.setPush(tx, by, t.ID, false, m.push)
	}
}

// chosen submits a task whose capability a message chooses. A message that names none of the options is only stored.
func (s *service) chosen(ctx context.Context, by sender, f found, m message, req sendRequest) error {
	open, err := choiceOf(f.row)
	if err != nil {
		return err
	}
	text, err := m.text()
	if err != nil {
		return err
	}
	capability := cmp.Or(m.metadata("capability", req.Metadata), strings.TrimSpace(text))
	late := fail(a2a.ErrUnsupportedOperation, "the task %s has no open question and takes no messages", f.row.ID)
	move := func(state int, reason string) func(*store.Tx) error {
		return func(tx *store.Tx) error {
			switch ok, err := rows.Move(tx, f.row.ID, state, reason); {
			case err != nil:
				return err
			case !ok:
				return late
			}
			if err := rows.AddMessages(tx, f.row.ID, s.sent(by, f.row, m)); err != nil {
				return err
			}
			if state == rows.Rejected {
				err = closed(tx, f.row, models.TaskFailed, reason)
			}
			return cmp.Or(err, s.setPush(tx, by, f.row.ID, state == rows.Rejected, m.push))
		}
	}
	if !slices.Contains(open.Capabilities, capability) {
		return s.Store.Write(ctx, move(rows.Asking, ""))
	}
	stored, err := rows.First(s.Store.Reads(ctx), f.row.ID)
	if err != nil {
		return err
	}
	first, err := decodeMessage(stored.Message)
	if err != nil {
		return err
	}
	parameters, err := message{Message: first}.parameters()
	if err != nil {
		return err
	}
	budget, err := message{Message: first}.budget(req.Metadata)
	if err != nil {
		return err
	}
	if err := s.enterContext(ctx, by, f.row.ContextID); err != nil {
		return err
	}
	_, err = s.submit(ctx, by, f.row, order{capability: capability, agentID: open.Tenant, parameters: parameters, budget: budget}, move(rows.InCore, ""))
	if reason := refusal(err); reason != "" {
		return s.Store.Write(ctx, move(rows.Rejected, reason))
	}
	if errs.Is(err, errs.TaskExists) { // another message has chosen at the same time
		return late
	}
	return err
}

// closed emits the end of a task that is not a task of the core.
func closed(tx *store.Tx, t rows.Task, state models.TaskState, reason string) error {
	return tx.Events().Emit(endEvents[state], t.ID, events.TaskData{TaskID: t.ID, SessionID: t.ContextID, State: state, Error: reason})
}
