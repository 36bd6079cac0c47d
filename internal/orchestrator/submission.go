package orchestrator

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
)

// Submission is a request for work.
type Submission struct {
	// ID is the id of the task, "" to generate one.
	ID string
	// RequestID makes repeated submissions of one owner return the same task; "" does not.
	RequestID string
	// Class names the policy, "" for ClassDefault.
	Class string
	// Capabilities are required of the agent. Without any, AgentType or AgentID must be set.
	Capabilities []string
	AgentType    string
	SphereID     int
	AgentID      string
	// Parameters is a JSON object; nil is an empty one.
	Parameters json.RawMessage
	// Priority is 0 to 3.
	Priority int
	// Budget is the number of tokens that all attempts together may use, nil for no limit.
	Budget   *int64
	Override Override
	// SessionID is the id of an open session, "" for none.
	SessionID string
	// Session opens a session for the task instead, nil for none.
	Session *NewSession `json:",omitempty"`
	// Fingerprint is compared, in addition to the content, with the first submission of the same
	// RequestID; "" for nothing.
	Fingerprint string
	// Meta is JSON that the protocol of the requester stores with the task, nil for none.
	Meta json.RawMessage
	// Traceparent is a W3C traceparent, "" for none.
	Traceparent string
	// OnEnd is a job that is enqueued in the transaction that ends the task, nil for none. Its
	// handler is registered with the jobs.Runner and may run several times for one end.
	OnEnd *EndJob `json:",omitempty"`
	// With commits rows of the caller in the transaction that creates the task, nil for none. It
	// runs after the task was inserted, not for a repeated request, and again if the transaction
	// does. Its error rolls everything back.
	With func(tx *store.Tx, t *models.Task) error `json:"-"`
	// Resolver resolves references in Parameters, even without a session; nil means Options.Resolver,
	// which needs a session.
	Resolver Resolver `json:"-"`

	parentID    *string // the task that hands it off, or the parallel task to which it belongs
	depth       int
	handedOffBy string // the agent that hands it off, "" for none

	requestDigest      [32]byte        // from digest, calculated before the transaction to keep it short
	resolvedParameters json.RawMessage // Parameters with resolved references
	resolveErr         error           // why they could not be resolved
}

// EndJob is the job that follows the end of a task.
type EndJob struct {
	// Kind is the kind of the job. It has no "/" and does not begin with "task.".
	Kind string
	// Key is the key of the job, "" for the id of the task. Tasks may share a key: the job runs
	// after the last of their ends.
	Key string
}

// text returns the job as models.Task stores it.
func (j *EndJob) text() string {
	switch {
	case j == nil:
		return ""
	case j.Key == "":
		return j.Kind
	}
	return j.Kind + "/" + j.Key
}

// SubmitResult is the result of a submission.
type SubmitResult struct {
	Task models.Task
	// Replayed is set if an earlier submission with the same RequestID made the task.
	Replayed bool
}

// prepare validates a submission and sets its defaults.
func (sub *Submission) prepare(classes map[string]Policy) error {
	if err := sub.validate(); err != nil {
		return err
	}
	if _, known := classes[sub.Class]; !known {
		return errs.New(errs.InvalidRequest, "unknown task class %q", sub.Class)
	}
	if sub.ID != "" {
		return nil
	}
	id, err := uuid.NewV7()
	sub.ID = id.String()
	return err
}

// Validate returns the violations for which Submit would reject a submission, and sets its defaults.
func (o *Orchestrator) Validate(sub *Submission) error { return sub.prepare(o.opts.Classes) }

// digest returns a hash of the content with which repeated requests are compared, zeros without a RequestID.
// Values that equal the defaults of the policy count as omitted.
func (sub Submission) digest(p Policy) [32]byte {
	if sub.RequestID == "" {
		return [32]byte{}
	}
	sub.Capabilities = models.CapabilityKeys(sub.Capabilities)
	if sub.Override.TimeoutMS == p.Timeout.Milliseconds() {
		sub.Override.TimeoutMS = 0
	}
	if r := sub.Override.Retries; r != nil && *r == p.Retries {
		sub.Override.Retries = nil
	}
	sub.Override.ExpiresAt = time.Time{}
	sub.ID, sub.Meta, sub.Traceparent = "", nil, "" // may differ in each repetition
	sub.Parameters = input.Canonical(sub.Parameters)
	text, err := json.Marshal(sub)
	if err != nil {
		return [32]byte{} // not possible: validate has read the raw members
	}
	return sha256.Sum256(text)
}

// queueKey returns a hash of what the task requires: an agent that can do one task of a queue can
// do all. So tasks that were handed off have queues of their own, and a subtask, which some
// agents must not get, has one for itself.
func (sub Submission) queueKey(in models.TaskInput) string {
	needs := append(models.CapabilityKeys(in.Capabilities), in.AgentType, strconv.Itoa(in.Sphere), in.RequestedAgentID, sub.Class)
	if sub.depth != 0 {
		needs = append(needs, "depth", strconv.Itoa(sub.depth))
	}
	if sub.OnEnd.text() == subtaskKind {
		needs = append(needs, "subtask", sub.ID)
	}
	sum := sha256.Sum256([]byte(strings.Join(needs, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// Limits of what a task may override.
const (
	minTimeout  = 100 * time.Millisecond
	maxTimeout  = 7 * 24 * time.Hour
	maxRetries  = 10
	maxSubmitID = 64
)

// validate checks a submission and sets its defaults.
func (sub *Submission) validate() error {
	var v errs.Violations
	wrong := func(at, rule, format string, args ...any) { v.Add(errs.InvalidRequest, at, rule, format, args...) }
	sub.Class = cmp.Or(sub.Class, ClassDefault)
	if len(sub.Capabilities) == 0 && sub.AgentType == "" && sub.AgentID == "" {
		wrong("/capabilities", "required", "capabilities is required unless agent_id or agent_type is given")
	}
	if len(sub.Capabilities) > maxCapabilities {
		wrong("/capabilities", "max", "capabilities must have at most %d entries, not %d", maxCapabilities, len(sub.Capabilities))
	}
	if sub.Priority < 0 || sub.Priority > MaxPriority {
		wrong("/priority", "max", "priority must be 0 to %d, not %d", MaxPriority, sub.Priority)
	}
	if sub.Budget != nil && (*sub.Budget < 1 || *sub.Budget > MaxBudget) {
		wrong("/budget", "min", "budget must be 1 to %d tokens", int64(MaxBudget))
	}
	if ms := sub.Override.TimeoutMS; ms != 0 && (ms < minTimeout.Milliseconds() || ms > maxTimeout.Milliseconds()) {
		wrong("/timeout_ms", "range", "timeout_ms must be %d to %d", minTimeout.Milliseconds(), maxTimeout.Milliseconds())
	}
	if ms := sub.Override.AttemptTimeoutMS; ms != 0 && (ms < minTimeout.Milliseconds() || ms > maxTimeout.Milliseconds()) {
		wrong("/attempt_timeout_ms", "range", "attempt_timeout_ms must be %d to %d", minTimeout.Milliseconds(), maxTimeout.Milliseconds())
	}
	if r := sub.Override.Retries; r != nil && (*r < 0 || *r > maxRetries) {
		wrong("/retries", "range", "retries must be 0 to %d", maxRetries)
	}
	if j := sub.OnEnd; j != nil && (j.Kind == "" || strings.Contains(j.Kind, "/") || strings.HasPrefix(j.Kind, "task.")) {
		wrong("/on_end", "kind", "the kind of the job must be a name without \"/\" outside of \"task.\", not %q", j.Kind)
	}
	sub.Override.ExpiresAt = sub.Override.ExpiresAt.UTC().Truncate(time.Microsecond) // as the database stores it
	sub.checkWorkers(wrong)
	sub.checkOverrun(wrong)
	if len(sub.ID) > maxSubmitID {
		wrong("/id", "max", "id must have at most %d bytes", maxSubmitID)
	}
	if s := sub.Session; s != nil {
		if s.Facts = orEmpty(s.Facts); !isObject(s.Facts) {
			wrong("/session/context", "object", "the context of a session must be a JSON object")
		}
	}
	sub.Parameters = orEmpty(sub.Parameters)
	if len(sub.Parameters) > models.MaxTaskParameters {
		wrong("/parameters", "max", "parameters must have at most %d bytes", models.MaxTaskParameters)
	} else if !isObject(sub.Parameters) {
		wrong("/parameters", "object", "parameters must be a JSON object")
	}
	sub.Meta = orEmpty(sub.Meta)
	return v.Err()
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

func isObject(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(raw, &members) == nil && members != nil
}

// newTask returns the rows of a valid submission.
func (sub Submission) newTask(by models.Principal, now time.Time) (models.Task, models.TaskInput, error) {
	policy, err := json.Marshal(sub.Override)
	in := models.TaskInput{
		TaskID: sub.ID, Capabilities: sub.Capabilities, AgentType: sub.AgentType, Sphere: sub.SphereID, RequestedAgentID: sub.AgentID,
		Parameters: sub.Parameters, Policy: policy, Meta: sub.Meta, Trace: sub.Traceparent,
	}
	t := models.Task{
		ID: sub.ID, SessionID: sub.SessionID, ParentID: sub.parentID, Depth: sub.depth, Class: sub.Class, Owner: by.TokenID, QueueKey: sub.queueKey(in), OnEnd: sub.OnEnd.text(), Priority: sub.Priority,
		State: models.TaskNew, Budget: sub.Budget, Deadline: now, CreatedAt: now, UpdatedAt: now, Version: 1,
	}
	if by.AgentID != nil {
		t.OwnerAgent = *by.AgentID
	}
	return t, in, err
}

// Limits of submissions.
const (
	// DefaultPriority is the priority of a task without one.
	DefaultPriority = 1
	// MaxPriority is the highest priority. Tasks with a higher priority overtake waiting tasks.
	MaxPriority = 3
	// MaxBudget is the maximum budget of a task, in tokens.
	MaxBudget = 1_000_000_000_000

	maxCapabilities = 16
)
