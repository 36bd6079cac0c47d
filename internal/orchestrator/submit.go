package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
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
	// Fingerprint is compared, in addition to the content, with the first submission of the same
	// RequestID; "" for nothing.
	Fingerprint string
	// Meta is JSON that the protocol of the requester stores with the task, nil for none.
	Meta json.RawMessage
	// Traceparent is a W3C traceparent, "" for none.
	Traceparent string

	parentID       *string // the task that hands it off, or its parallel task
	depth          int
	requestClaimed bool // the request id is claimed

	resolvedParameters json.RawMessage // Parameters with resolved references
	resolveErr         error           // why they could not be resolved
}

// SubmitResult is the result of a submission.
type SubmitResult struct {
	Task models.Task
	// Replayed is set if an earlier submission with the same RequestID made the task.
	Replayed bool
}

// Submit creates a task and assigns it to an agent. If all suitable agents are full, the task is
// queued; if all are offline, it is retried later.
//
// It returns errs.UnsupportedWork if no agent offers the work, errs.BudgetExceeded if no agent's
// budget covers it, errs.Busy if the queue is full, errs.NotFound for an unknown session,
// errs.TaskExists for an id that is in use, and errs.RequestIDReused for a request id with other
// content. With an error nothing is stored.
func (o *Orchestrator) Submit(ctx context.Context, by models.Principal, sub Submission, once *models.Idempotency) (SubmitResult, error) {
	if err := sub.prepare(o.opts.Classes); err != nil {
		return SubmitResult{}, err
	}
	ctx, span := o.startSubmitSpan(ctx, &sub)
	o.resolveReferences(ctx, by, &sub)
	var out SubmitResult
	var refusing []string
	err := o.withCurrentIndex(ctx, func() error {
		return o.transactOnce(ctx, once, func(op *operation) (result any, err error) {
			out, err = op.submit(by, sub)
			refusing = op.refusedBy
			return out, err
		})
	})
	if errs.Is(err, errs.BudgetExceeded) {
		o.emitBudgetRefusals(ctx, refusing, *sub.Budget)
	}
	endSpan(span, err)
	return out, err
}

// emitBudgetRefusals emits the events of budgets that refused a submission: the events of the
// submission itself were rolled back with it. A budget that covers it by now emits nothing.
func (o *Orchestrator) emitBudgetRefusals(ctx context.Context, agents []string, tokens int64) {
	for _, id := range agents {
		err := o.ledger.Write(ctx, func(tx *store.Tx) error {
			_, err := o.ledger.ReserveIn(tx, id, tokens, time.Second)
			switch {
			case errs.Is(err, errs.BudgetExceeded):
				return nil
			case err == nil:
				return errBudgetCovers
			}
			return err
		})
		if err != nil && !errors.Is(err, errBudgetCovers) {
			o.logFailure(ctx, "emitting a budget event", err)
		}
	}
}

// errBudgetCovers rolls back a reservation that was only a test.
var errBudgetCovers = errors.New("the budget covers it by now")

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

// withCurrentIndex runs an operation again if no agent seemed to offer the work: the index may
// not have been up to date.
func (o *Orchestrator) withCurrentIndex(ctx context.Context, run func() error) error {
	err := run()
	if errs.Is(err, errs.UnsupportedWork) {
		if late := o.waitForIndex(ctx); late != nil {
			return late
		}
		return run() // also if nothing has changed: a concurrent read may have updated the index
	}
	return err
}

// claimRequest reserves the request id of a submission. For a repeated one it returns the first
// result.
func (op *operation) claimRequest(by models.Principal, sub Submission) (out SubmitResult, replayed bool, err error) {
	if sub.RequestID == "" || sub.requestClaimed {
		return out, false, nil
	}
	earlier, fresh, err := op.tx.ClaimRequest(models.TaskRequest{
		Owner: by.TokenID, RequestID: sub.RequestID, Digest: sub.digest(), TaskID: sub.ID,
	})
	if err == nil && fresh {
		return out, false, nil
	}
	out, err = op.replayRequest(earlier, sub, err)
	return out, true, err
}

func (op *operation) submit(by models.Principal, sub Submission) (SubmitResult, error) {
	if out, replayed, err := op.claimRequest(by, sub); err != nil || replayed {
		return out, err
	}
	if sub.SessionID != "" {
		if err := op.joinSession(by, sub); err != nil {
			return SubmitResult{}, err
		}
		if sub.resolveErr != nil {
			return SubmitResult{}, sub.resolveErr
		}
		sub.Parameters = sub.resolvedParameters
	}
	if sub.Override.Workers != 0 {
		return op.submitParallel(by, sub)
	}
	t, in, err := sub.newTask(by, op.tx.Now())
	if err != nil {
		return SubmitResult{}, err
	}
	t, err = op.createTask(t, in, op.policyOf(t, sub.Override), true)
	return SubmitResult{Task: t}, err
}

// createTask assigns or queues a new task and inserts it. A task that no agent can do is an error
// if strict, and otherwise fails.
func (op *operation) createTask(t models.Task, in models.TaskInput, p Policy, strict bool) (models.Task, error) {
	op.insertingID = t.ID
	if err := op.emitTaskEvent(models.EventTaskCreated, t, nil); err != nil {
		return t, err
	}
	failure, err := op.assignOrQueue(&t, in, p, nil)
	if err == nil && strict {
		err = op.submissionError(t, in, failure)
	}
	if err == nil && t.WaitingFor == models.WaitForWorker {
		err = op.checkQueueLimit(t)
	}
	if err == nil && failure != "" {
		err = op.failTask(&t, failure, assignFailureText(failure))
	}
	if err == nil {
		err = op.insertTask(t, in)
	}
	return t, taskExistsError(err, t.ID)
}

// insertTask inserts a new task. Rows written before refer to it.
func (op *operation) insertTask(t models.Task, in models.TaskInput) error {
	if err := op.tx.InsertTask(t, in); err != nil {
		return err
	}
	op.count(func(c *counters) { c.submitted.WithLabelValues(t.Class).Inc() })
	if t.State.Ended() {
		return op.onTaskEnd(t)
	}
	_, err := op.tx.Enqueue(models.Job{Kind: timerKind, Key: t.ID, RunAt: t.Deadline})
	return err
}

// submissionError returns the error for a failure that rejects the submission.
func (op *operation) submissionError(t models.Task, in models.TaskInput, f Failure) error {
	switch f {
	case FailureUnsupported:
		return op.unsupportedError(in)
	case FailureBudget:
		return errs.New(errs.BudgetExceeded, "no agent that offers %s has %d tokens left today", requirements(in), *t.Budget).
			With("requested", *t.Budget).With("remaining", op.maxRemaining)
	}
	return nil
}

// checkQueueLimit returns errs.Busy if the queue of the task is full.
func (op *operation) checkQueueLimit(t models.Task) error {
	if n := op.queues.queued.Load(); n >= int64(op.opts.MaxQueuedTotal) {
		return errs.New(errs.Busy, "%d tasks wait for agents already; try again later", n)
	}
	n, err := op.tx.CountWaiting(t.QueueKey, op.opts.MaxQueue)
	if err == nil && n >= op.opts.MaxQueue {
		err = errs.New(errs.Busy, "%d tasks wait for such an agent already; try again later", n)
	}
	return err
}

// replayRequest returns the task of an earlier submission with the same request id.
func (op *operation) replayRequest(earlier models.TaskRequest, sub Submission, err error) (SubmitResult, error) {
	if err != nil {
		return SubmitResult{}, err
	}
	if earlier.Digest != sub.digest() {
		return SubmitResult{}, errs.New(errs.RequestIDReused, "the request_id %q was used before with other content", sub.RequestID)
	}
	t, err := op.lockTask(earlier.TaskID)
	return SubmitResult{Task: t, Replayed: true}, err
}

// digest returns a hash of the content, to compare repeated requests.
func (sub Submission) digest() [32]byte {
	sub.Traceparent = "" // may differ in each repetition
	sub.ID = ""          // generated for each repetition
	if sub.Meta != nil {
		sub.Meta = nil // contains the id and time of the message
	}
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
	names := make([]string, len(in.Capabilities))
	for i, c := range in.Capabilities {
		names[i] = models.CapabilityKey(c)
	}
	slices.Sort(names)
	needs := append(slices.Compact(names), in.AgentType, strconv.Itoa(in.Sphere), in.RequestedAgentID, sub.Class)
	if sub.depth != 0 {
		needs = append(needs, "depth", strconv.Itoa(sub.depth))
	}
	if sub.Override.Subtask {
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
	if sub.Class == "" {
		sub.Class = ClassDefault
	}
	if len(sub.Capabilities) == 0 && sub.AgentType == "" && sub.AgentID == "" {
		wrong("/capabilities", "required", "capabilities must say what an agent must be able to do, unless agent_id or agent_type says who is meant")
	}
	if len(sub.Capabilities) > models.MaxTaskCapabilities {
		wrong("/capabilities", "max", "capabilities must have at most %d entries, not %d", models.MaxTaskCapabilities, len(sub.Capabilities))
	}
	if sub.Priority < 0 || sub.Priority > models.MaxPriority {
		wrong("/priority", "max", "priority must be 0 to %d, not %d", models.MaxPriority, sub.Priority)
	}
	if sub.Budget != nil && (*sub.Budget < 1 || *sub.Budget > models.MaxTokens) {
		wrong("/budget", "min", "budget must be 1 to %d tokens", int64(models.MaxTokens))
	}
	if ms := sub.Override.TimeoutMS; ms != 0 && (ms < minTimeout.Milliseconds() || ms > maxTimeout.Milliseconds()) {
		wrong("/timeout_ms", "range", "timeout_ms must be %d to %d", minTimeout.Milliseconds(), maxTimeout.Milliseconds())
	}
	if r := sub.Override.Retries; r != nil && (*r < 0 || *r > maxRetries) {
		wrong("/retries", "range", "retries must be 0 to %d", maxRetries)
	}
	sub.checkWorkers(wrong)
	sub.checkOverrun(wrong)
	if len(sub.ID) > maxSubmitID {
		wrong("/id", "max", "id must have at most %d bytes", maxSubmitID)
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
		ID: sub.ID, SessionID: sub.SessionID, ParentID: sub.parentID, Depth: sub.depth, Class: sub.Class, Owner: by.TokenID, QueueKey: sub.queueKey(in), Priority: sub.Priority,
		State: models.TaskNew, Budget: sub.Budget, Deadline: now, CreatedAt: now, UpdatedAt: now, Version: 1,
	}
	if by.AgentID != nil {
		t.OwnerAgent = *by.AgentID
	}
	return t, in, err
}
