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

// Submission is a piece of work that is asked for.
type Submission struct {
	// ID is the task's id where the asker brings one, "" for one to be made.
	ID string
	// RequestID makes the submission happen once for its owner, however often it is
	// repeated; "" for no such promise.
	RequestID string
	// Class names the policy, "" for ClassDefault.
	Class string
	// Capabilities are what an agent must be able to do; with none, AgentType or Agent
	// says who is meant.
	Capabilities []string
	AgentType    string
	SphereID     int
	AgentID      string
	// Parameters is a JSON object; nil is an empty one.
	Parameters json.RawMessage
	// Priority is 0 to 3.
	Priority int
	// Budget is how many tokens all attempts together may use, nil for no limit.
	Budget   *int64
	Override Override
	// SessionID is the id of an open session, "" for none.
	SessionID string
	// Fingerprint stands for what else a repeated request must have in common with the
	// first one, "" for nothing.
	Fingerprint string
	// Meta is JSON that the asker's dialect gets back, nil for none.
	Meta json.RawMessage
	// Traceparent is a W3C traceparent, "" for none.
	Traceparent string

	parentID       *string // the task it is handed off from
	depth          int
	requestClaimed bool // its request is

	resolvedParameters json.RawMessage // the parameters with what their references stand for
	resolveErr         error           // why there are none
}

// SubmitResult is what became of a submission.
type SubmitResult struct {
	Task models.Task
	// Replayed is set where the same request had made the task before.
	Replayed bool
}

// Submit makes a task and gives it to an agent, puts it into the line where all who do
// it are full, or tries again later where they are all away.
//
// It returns errs.UnsupportedWork where nobody offers it, errs.BudgetExceeded where the
// budgets of all who do refuse it, errs.Busy where the line is full, errs.NotFound for
// an unknown session, errs.TaskExists for an id that is taken, errs.RequestIDReused for
// a request that was made with another content; none of them leaves anything behind.
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

// emitBudgetRefusals has the ledger tell of budgets that refused a submission: nothing is kept of
// that, so the events that told of it are gone as well. One that would cover it by now
// tells nothing.
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
			o.logFailure(ctx, "telling of a budget that refused", err)
		}
	}
}

// errBudgetCovers takes a reservation back that nobody asked for.
var errBudgetCovers = errors.New("the budget covers it by now")

// prepare judges a submission by itself and sets what is left out.
func (sub *Submission) prepare(classes map[string]Policy) error {
	if err := sub.validate(); err != nil {
		return err
	}
	if _, known := classes[sub.Class]; !known {
		return errs.New(errs.InvalidRequest, "there is no class of tasks %q", sub.Class)
	}
	if sub.ID != "" {
		return nil
	}
	id, err := uuid.NewV7()
	sub.ID = id.String()
	return err
}

// withCurrentIndex runs a verb once more where nobody seemed to offer the work, and more is known of
// who offers what by then.
func (o *Orchestrator) withCurrentIndex(ctx context.Context, run func() error) error {
	err := run()
	if errs.Is(err, errs.UnsupportedWork) {
		if late := o.waitForIndex(ctx); late != nil {
			return late
		}
		return run() // what is known now may have been learned since
	}
	return err
}

// claimRequest has a submission happen once; of a repeated one it returns what became of it.
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

// createTask places a new task and writes it. One that nobody could do is refused where that
// is strict, and else fails.
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

// insertTask writes a new task, which what was done for it before refers to.
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

// submissionError is the error of a submission that is not taken on at all.
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

// checkQueueLimit refuses one more task in a full line.
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

// replayRequest answers a request that was made before.
func (op *operation) replayRequest(earlier models.TaskRequest, sub Submission, err error) (SubmitResult, error) {
	if err != nil {
		return SubmitResult{}, err
	}
	if earlier.Digest != sub.digest() {
		return SubmitResult{}, errs.New(errs.RequestIDReused, "the request_id %q was used before with another content", sub.RequestID)
	}
	t, err := op.lockTask(earlier.TaskID)
	return SubmitResult{Task: t, Replayed: true}, err
}

// digest is of what is asked for, to tell a repeated request from another one.
func (sub Submission) digest() [32]byte {
	sub.Traceparent = "" // each repetition may have its own
	sub.ID = ""          // and each has, where the asker brings none
	if sub.Meta != nil {
		sub.Meta = nil // the dialect's own, with the message's id and time in it
	}
	text, err := json.Marshal(sub)
	if err != nil {
		return [32]byte{} // check has read the raw members
	}
	return sha256.Sum256(text)
}

// queueKey stands for what the task needs of an agent: whoever can do one task of a route can
// do all. So one that was handed off is in another line than one that was not, and a part,
// which not everybody may have, in one of its own.
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

// The bounds of what a task may set differently.
const (
	minTimeout  = 100 * time.Millisecond
	maxTimeout  = 7 * 24 * time.Hour
	maxRetries  = 10
	maxSubmitID = 64
)

// validate judges a submission by itself. It sets what is left out.
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

// newTask makes the rows of a submission that check has accepted.
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
