package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"comet/internal/auth"
	"comet/internal/events/live"
	"comet/internal/input"
	v5 "comet/internal/wire/v5"
	"comet/models"
)

// MessageProtocol is the part of PROTOCOL_V5 that the API reads; all functions are required.
type MessageProtocol struct {
	// AgentNumber returns the number of an agent, and assigns one to an agent that has none.
	AgentNumber func(ctx context.Context, agentID string) (int64, error)
	// AgentNumbers returns the numbers of agents, without the agents that have none yet.
	AgentNumbers func(ctx context.Context, agentIDs []string) (map[string]int64, error)
	// AgentID returns the id of the agent with a number, or errs.NotFound.
	AgentID func(ctx context.Context, number int64) (string, error)
	// FormatEvent formats an event as lines of the protocol's log.
	FormatEvent func(context.Context, models.Event) (string, error)
	// TaskMessages returns up to limit logged messages about a task after the message with an id.
	TaskMessages func(ctx context.Context, t models.Task, after string, limit int) ([]TaskMessage, error)
}

// eventEncoder returns the encoder that the parameter format selects.
func (s *Server) eventEncoder(q *query) eventEncoder {
	if q.Enum("format", "json", "json", "v5") == "json" {
		return s.encodeEventJSON
	}
	return func(ctx context.Context, e models.Event) ([]byte, error) {
		line, err := s.core.Messages.FormatEvent(ctx, e)
		return []byte(line), err
	}
}

// subscribeLive subscribes to the events that are not stored, if the stream selects them. They have no line in V5's log.
func (s *Server) subscribeLive(r *http.Request, t *eventStream) (list <-chan []models.Event, stop func()) {
	if !slices.Contains(t.filter.types, live.UsageChanged) || r.URL.Query().Get("format") == "v5" {
		return nil, func() {}
	}
	return s.core.Live.Subscribe()
}

// workerID returns the id of the agent with a number in messages, such as W41 (§2.1).
func workerID(number int64) string { return v5.WorkerAddress(int(number)).String() }

// workerNumberOf returns the number of an agent with an id; ok is false for an invalid id.
func workerNumberOf(id string) (n int64, ok bool) {
	a, err := v5.ParseAddress(id)
	if err != nil || a.String() != id {
		return 0, false
	}
	number, ok := a.WorkerNumber()
	return int64(number), ok
}

// maxWorkerName is the maximum length of a worker's name in PROTOCOL_V5, in characters (§2.2).
const maxWorkerName = 10

// workerNumber parses a worker's name such as W41 and returns its number, 0 if it is absent.
func (q *query) workerNumber(name string) int64 {
	text := q.OptString(name, maxWorkerName)
	if text == nil {
		return 0
	}
	n, ok := workerNumberOf(*text)
	if !ok {
		q.Fail(name, "pattern", "%s must be a worker id such as W7 or W1.1, not %s", name, input.Quote(*text))
	}
	return n
}

// TaskMessage is a logged message about a task.
type TaskMessage struct {
	ID     string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8060"` // UUIDv7 that comet gave the message.
	At     time.Time `json:"at" example:"2026-01-10T15:30:00Z"`                 // When comet sent or received the message.
	Ctx    string    `json:"ctx" example:"S1"`                                  // The session in the message.
	TID    string    `json:"tid" example:"T1"`                                  // The task in the message.
	Number int       `json:"number" example:"12"`                               // The message number without M. Each sender counts its messages in a session.
	From   string    `json:"from" example:"W1"`                                 // The sender: W1, O1 or User.
	To     string    `json:"to" example:"O1"`                                   // The receiver: W1, O1 or User.
	Type   string    `json:"type" example:"S"`                                  // The type of the message.
	State  *string   `json:"state" example:"D"`                                 // The state of the task in the message, null for none.
	Err    *string   `json:"err" example:"E31"`                                 // The error code, null for none.
	Depth  int       `json:"depth" example:"1"`                                 // The number of hand-offs above the subtask that the message is about.
	Data   string    `json:"data" example:"pid=M5;result=42"`                   // The DATA of the message, without secrets.
	// The number of the message that this one names as its cause, null for none.
	PID *int `json:"pid" example:"5"`
	// The id of the message that caused this one: the one that `pid` names, or the one that this
	// one replies to. Null if it is not known.
	ParentID *string `json:"parent_id" example:"01890a5d-ac96-774b-bcce-b302099a805f"`
}

// taskMessageList is one page of the messages about a task, the oldest first.
type taskMessageList struct {
	Messages   []TaskMessage `json:"messages"`                                    // The messages, the oldest first.
	NextCursor string        `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

// listTaskMessages lists the logged messages about a task.
//
//	@Summary		List the messages about a task
//	@Description	Returns the PROTOCOL_V5 messages about the task (§10) that comet accepted or sent, the oldest first. `parent_id` is the message that caused a message. For a subtask that was handed off, these are the messages about its root task at the depth of the subtask or deeper. A task without messages in this protocol has an empty list. Messages are stored as long as ended tasks.
//	@Success		200	{object}	taskMessageList	"A page of results"
func (s *Server) listTaskMessages(r request) (any, error) {
	q := newQuery(r.Request, "limit", "cursor")
	limit, after := q.pageLimit(), q.idCursor()
	if err := q.Err(); err != nil {
		return nil, err
	}
	t, err := s.visibleTask(r)
	if err != nil {
		return nil, err
	}
	found, err := s.core.Messages.TaskMessages(r.Context(), t, after, limit+1)
	found, next := cutPage(found, limit, func(m TaskMessage) string { return m.ID })
	return reply{next: next, body: taskMessageList{found, next}}, err
}

// agentKeyView is an agent's key without the secret.
type agentKeyView struct {
	AgentID     string    `json:"agent_id" example:"finance-personal"`
	WorkerID    string    `json:"v5_id" example:"W3"`              // The agent's id in messages of PROTOCOL_V5.
	Algorithm   string    `json:"algorithm" example:"hmac-sha256"` // How messages are signed: hmac-sha256.
	Fingerprint string    `json:"fingerprint" example:"7717ae71"`  // The first 8 hexadecimal digits of the key's SHA-256.
	Required    bool      `json:"required" example:"true"`         // Whether messages of the agent must be signed.
	CreatedBy   string    `json:"created_by" example:"ci-importer"`
	CreatedAt   time.Time `json:"created_at" example:"2026-01-10T15:30:00Z"`
}

// agentKeyIssued is a new key with its secret.
type agentKeyIssued struct {
	agentKeyView
	// The secret: 64 hexadecimal characters, whose text is the key. It is returned only once, and
	// only if comet generated it.
	Key string `json:"key,omitempty" example:"5f0c9d1e8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a3b2c1d"`
}

// newAgentKeyView returns the view of a key, unless err is set.
func (s *Server) newAgentKeyView(ctx context.Context, k models.AgentKey, err error) (agentKeyView, error) {
	var number int64
	if err == nil {
		number, err = s.core.Messages.AgentNumber(ctx, k.AgentID)
	}
	return agentKeyView{
		AgentID: k.AgentID, WorkerID: workerID(number), Algorithm: k.Algorithm, Fingerprint: k.Fingerprint, Required: k.Required,
		CreatedBy: k.CreatedBy, CreatedAt: k.CreatedAt,
	}, err
}

// getAgentKey returns an agent's key without the secret.
//
//	@Summary		Get an agent's key
//	@Description	Returns the key that signs the agent's messages of PROTOCOL_V5, without the secret.
//	@Success		200	{object}	agentKeyView	"The key"
//	@Failure		404	"The agent does not exist or has no key"
func (s *Server) getAgentKey(r request) (any, error) {
	key, err := s.core.Keys.Get(r.Context(), r.id, auth.HMACSHA256)
	return s.newAgentKeyView(r.Context(), key, err)
}

// putAgentKey creates or replaces an agent's key.
//
//	@Summary		Create or replace an agent's key
//	@Description	The agent signs its messages of PROTOCOL_V5 with the key. Without `key` comet generates one and returns it once. A key of your own is a text of 16 to 128 bytes. A previous key becomes invalid at once on this replica and within a second on the others. If `required` is true, messages without a valid signature are rejected; if it is omitted, the previous setting stays (initially false).
//	@Param			body		body	auth.AgentKeyDraft	false	"The key and whether signatures are required"
//	@Success		200	{object}	agentKeyIssued	"The key was replaced"
//	@Success		201	{object}	agentKeyIssued	"The agent's first key was created"
//	@Failure		400	"A field is malformed, or the key is too short or too long"
func (s *Server) putAgentKey(r request, d auth.AgentKeyDraft) (any, error) {
	issued, err := s.core.Keys.Issue(r.Context(), r.caller, r.id, d)
	view, err := s.newAgentKeyView(r.Context(), issued.Key, err)
	out := reply{noStore: true, body: agentKeyIssued{view, issued.Secret}}
	if issued.First {
		out.status = http.StatusCreated
	}
	return out, err
}

// updateAgentKey changes the settings of an agent's key.
//
//	@Summary		Update the settings of an agent's key
//	@Description	The key itself does not change. With `required` every message that the agent sends in PROTOCOL_V5 must be signed, on every transport, and comet signs the messages it sends to the agent.
//	@Param			body		body	auth.AgentKeyChange	true	"The new settings"
//	@Success		200	{object}	agentKeyView	"The updated key"
//	@Failure		404	"The agent does not exist or has no key"
func (s *Server) updateAgentKey(r request, d auth.AgentKeyChange) (any, error) {
	key, err := s.core.Keys.Require(r.Context(), r.caller, r.id, auth.HMACSHA256, d)
	return s.newAgentKeyView(r.Context(), key, err)
}

// revokeAgentKey revokes an agent's key.
//
//	@Summary		Revoke an agent's key
//	@Description	The key becomes invalid at once on this replica and within a second on the others. An agent without a key sends its messages unsigned.
//	@Success		204	"Revoked"
//	@Failure		404	"The agent does not exist or has no key"
func (s *Server) revokeAgentKey(r request) error {
	return s.core.Keys.Revoke(r.Context(), r.caller, r.id, auth.HMACSHA256)
}
