package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/tools"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	"comet/store/columns"
	"comet/store/workflows"
)

// Settings are the options of a workflow.
type Settings struct {
	// ValidateLayers pauses after each layer (AgentCards, “per_layer_validation”).
	ValidateLayers bool `json:"per_layer_validation,omitempty"`
	// AbortOnError skips all steps that have not begun when one has failed.
	AbortOnError bool `json:"abort_on_error,omitempty"`
	// Approvals is the lowest class of tools that need approval, "" for none: write or destructive.
	Approvals models.ToolClass `json:"approvals,omitempty"`
	// TimeoutMS is the timeout of steps without their own, in milliseconds; 0 means that of the engine.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Call says that the only step is a tool call of a client, whose result is stored unchanged (Hold).
	Call bool `json:"call,omitempty"`
	// Budget is the number of tokens that the steps may use, 0 for no limit.
	Budget int64 `json:"budget,omitempty"`
	// Approver says which principals can approve steps.
	Approver Approver `json:"approver,omitempty"`
	// Traceparent is the W3C trace context of the start; Begin sets it.
	Traceparent string `json:"traceparent,omitempty"`
}

// Values of Workflow.ErrorCode besides the names of errors of tools.
const (
	codeRejected = "REJECTED"
	codeExpired  = "EXPIRED"
	codeLost     = "RESULT_LOST"
)

// expireJob is the kind of the job that ends a pause; its key is the id of the workflow.
const expireJob = "workflows.expire"

// maxCached is the longest result that the holder keeps in memory, in bytes; longer ones are read again.
const maxCached = 64 << 10

// execution is the state of a workflow in memory, with the changes that are not stored yet.
type execution struct {
	env        *environment
	row        workflows.Workflow
	settings   Settings
	plan       *plan.Plan
	steps      []workflows.Step
	checkpoint *workflows.Checkpoint // the newest one, nil for none
	by         models.Principal      // the owner, as of the last check of its token
	with       func(*store.Tx) error // commits rows of the caller with the changes, nil for none
	halted     error                 // why no further step may begin, nil if steps may begin
	costs      map[int]int64         // the estimated costs of tool and code steps that run, with a budget
	allowance  *tools.Allowance      // what the calls of code may use, nil without a budget

	// changed are the steps that the next transaction stores, and events what it emits.
	changed map[int]bool
	events  []store.EventDraft
	decided *workflows.Checkpoint // the decision that it stores, nil for none
	asked   *workflows.Checkpoint // the checkpoint that it creates, nil for none
	staleID string                // the checkpoint that has become stale, "" for none
	payment
	stored int // the number of steps that are stored

	// elsewhere is set if steps were added while the workflow runs: its holder executes them.
	elsewhere bool
}

// dispatch is a step that begins after the commit.
type dispatch struct {
	position  int
	attempt   int
	arguments json.RawMessage
	target    string // the digest of the tool, "" for an agent step
	held      heldCall
}

// load reads a workflow, without results of more than maxResult bytes. save returns ErrFenced if another process changes it.
func (e *environment) load(from store.Source, row workflows.Workflow, maxResult int) (*execution, error) {
	x := &execution{env: e, row: row, by: models.Principal{TokenID: row.TokenID, Name: row.Actor}, changed: map[int]bool{}, costs: map[int]int64{}}
	if err := json.Unmarshal(row.Options, &x.settings); err != nil {
		return nil, err
	}
	var err error
	if x.steps, err = workflows.Steps(from, row.ID, maxResult); err != nil {
		return nil, err
	}
	x.stored = len(x.steps)
	defined := make([]plan.Step, len(x.steps))
	for i, s := range x.steps {
		if err := json.Unmarshal(s.Definition, &defined[i]); err != nil {
			return nil, err
		}
		defined[i].FirstLayer = s.FirstLayer
	}
	if x.plan, err = planOf(row, defined); err != nil {
		return nil, err
	}
	newest, err := workflows.NewestCheckpoint(from, row.ID)
	if err == nil {
		x.checkpoint = &newest
	} else if errs.Is(err, errs.NotFound) {
		err = nil
	}
	return x, err
}

// planOf returns the plan of a stored workflow.
func planOf(row workflows.Workflow, steps []plan.Step) (*plan.Plan, error) {
	if row.Definition == "" {
		return plan.New(steps, "")
	}
	p, err := plan.NewTemplate(steps, "")
	if err == nil {
		err = p.SetInput(row.Input)
	}
	return p, err
}

func (x *execution) state(i int) plan.State { return plan.State(x.steps[i].State) }

// position returns the index of a step that the plan has.
func (x *execution) position(id string) int {
	for i := range x.plan.Steps {
		if x.plan.Steps[i].ID == id {
			return i
		}
	}
	return -1
}

// result returns the function that reads the result of a step that has succeeded.
func (x *execution) result(ctx context.Context) func(int) (json.RawMessage, error) {
	return func(i int) (json.RawMessage, error) {
		if r := x.steps[i].Result; r != nil {
			return r, nil
		}
		return workflows.Result(x.env.Store.Reads(ctx), x.row.ID, i)
	}
}

// fail ends a step with an error.
func (x *execution) fail(i int, err error, now time.Time) {
	s := &x.steps[i]
	code := strings.ToUpper(strings.ReplaceAll(string(errs.CodeOf(err)), "-", "_")) // of an error of the orchestrator
	s.ErrorCode, s.Error = cmp.Or(tools.ErrorName(err), code), tools.Detail(errs.From(err))
	x.end(i, plan.Error, now)
}

// end ends a step.
func (x *execution) end(i int, state plan.State, now time.Time) {
	s := &x.steps[i]
	s.State, s.EndedAt = int(state), now
	x.changed[i] = true
	x.emitStep(EventStepEnded, i)
}

// succeed ends a step with a result, or with an error if the results of the workflow would then be too large.
func (x *execution) succeed(i int, value json.RawMessage, now time.Time) {
	if err := x.checkResults(len(value)); err != nil {
		x.fail(i, err, now)
		return
	}
	x.row.ResultBytes += int64(len(value))
	x.steps[i].Result, x.steps[i].ErrorCode, x.steps[i].Error = value, "", ""
	x.end(i, plan.Success, now)
}

// checkResults returns RESULT_TOO_LARGE if another result would make the results of the workflow too large.
func (x *execution) checkResults(bytes int) error {
	if all := x.row.ResultBytes + int64(bytes); all > x.env.opts.MaxResults {
		return tools.NewError(errs.InvalidRequest, "RESULT_TOO_LARGE", "the results of the workflow would have %d bytes, including this result of %d bytes; the limit is %d", all, bytes, x.env.opts.MaxResults)
	}
	return nil
}

// lose makes a step uncertain, because it may have acted.
func (x *execution) lose(i int, why string, now time.Time) {
	x.steps[i].ErrorCode, x.steps[i].Error = codeLost, why
	x.end(i, plan.Uncertain, now)
}

func (x *execution) skipPending(now time.Time) {
	for i := range x.steps {
		if x.state(i) == plan.Pending {
			x.end(i, plan.Skipped, now)
		}
	}
}

// undo makes steps pending again that advance has marked as running and that were not committed.
func (x *execution) undo(run []dispatch) {
	for _, d := range run {
		s := &x.steps[d.position]
		s.State, s.StartedAt = int(plan.Pending), time.Time{}
		s.Attempt--
	}
}

// finish ends a workflow whose steps have all ended.
func (x *execution) finish(failed bool, now time.Time) {
	x.row.State, x.row.EndedAt, x.row.Pause = workflows.Complete, now, ""
	if failed {
		x.row.State = workflows.Failed
	}
	if x.halted != nil {
		x.row.ErrorCode, x.row.Reason = tools.ErrorName(x.halted), tools.Detail(x.halted)
	}
	x.row.Holder, x.row.Reserved = "", 0
	x.emit(EventEnded, EventData{Reason: x.row.Reason})
}

// stop ends a workflow before its steps have ended. Running steps are lost.
func (x *execution) stop(code, reason string, now time.Time) {
	for i := range x.steps {
		switch {
		case x.state(i) == plan.Pending, x.state(i) == plan.Running && x.steps[i].Repeatable && x.plan.Steps[i].Type != plan.KindAgent:
			x.end(i, plan.Skipped, now)
		case x.state(i) == plan.Running:
			x.lose(i, "the workflow was aborted while the step ran", now)
		}
	}
	x.row.State, x.row.Pause, x.row.EndedAt, x.row.ErrorCode, x.row.Reason = workflows.Aborted, "", now, code, reason
	x.row.Holder, x.row.Reserved = "", 0
	x.emit(EventEnded, EventData{Reason: reason})
}

// settle records the decision on the open checkpoint and lets the workflow run again.
func (x *execution) settle(state, by, feedback string) {
	c := *x.checkpoint
	c.State, c.DecidedBy, c.Feedback = state, by, feedback
	x.decided = &c
	x.row.State, x.row.Pause = workflows.Running, ""
}

func (x *execution) emit(kind models.EventType, d EventData) {
	d.Reason = columns.Text(d.Reason, maxEventText)
	d.WorkflowID, d.AgentID, d.Approver, d.Status, d.Version = x.row.ID, x.row.Payer, x.row.Approver, status(x.row), x.row.Version+1
	x.events = append(x.events, store.EventDraft{Type: kind, Key: x.row.ID, Data: d})
}

// maxEventText is the longest error or reason in an event, in bytes.
const maxEventText = 500

func (x *execution) emitStep(kind models.EventType, i int) {
	s := x.steps[i]
	d := EventData{Step: x.plan.Steps[i].ID, StepStatus: stepStatus(s), Attempt: s.Attempt, Error: columns.Text(s.Error, maxEventText), Tokens: s.Tokens}
	if !s.EndedAt.IsZero() && !s.StartedAt.IsZero() {
		d.DurationMS = s.EndedAt.Sub(s.StartedAt).Milliseconds()
	}
	x.emit(kind, d)
}

// status returns the WorkflowStatus of AgentCards.
func status(w workflows.Workflow) string {
	return [...]string{"running", "paused", "complete", "aborted", "error"}[w.State]
}

func stepStatus(s workflows.Step) string {
	return [...]string{"pending", "running", "success", "error", "skipped", "uncertain"}[s.State]
}

// save stores the changes. It returns workflows.ErrFenced if another process has changed the workflow. It may be called
// again with the same changes if the transaction is repeated.
func (x *execution) save(tx *store.Tx) error {
	if err := workflows.Save(tx, x.row); err != nil {
		return err
	}
	for i := range x.stored {
		if x.changed[i] {
			if err := workflows.SaveStep(tx, x.steps[i]); err != nil {
				return err
			}
		}
	}
	if x.decided != nil {
		if err := workflows.Decide(tx, *x.decided); err != nil {
			return err
		}
		if x.decided.State != workflows.Expired { // the job is running then
			if err := tx.Jobs().Delete(expireJob, x.row.ID); err != nil {
				return err
			}
		}
	}
	if x.stored < len(x.steps) {
		if err := workflows.AddSteps(tx, x.steps[x.stored:]); err != nil {
			return err
		}
	}
	if err := x.saveNew(tx); err != nil {
		return err
	}
	if x.with != nil {
		if err := x.with(tx); err != nil {
			return err
		}
	}
	return x.payIn(tx)
}

// saveNew stores the new checkpoint and the events.
func (x *execution) saveNew(tx *store.Tx) error {
	if c := x.asked; c != nil {
		if err := workflows.AddCheckpoint(tx, *c); err != nil {
			return err
		}
		if _, err := tx.Jobs().Enqueue(store.Job{Kind: expireJob, Key: c.WorkflowID, RunAt: c.ExpiresAt}); err != nil {
			return err
		}
	}
	return tx.Events().EmitAll(x.events)
}

// saved updates the state after a commit: no changes are left to store, and results of more than maxCached bytes are dropped.
func (x *execution) saved() {
	x.row.Version++
	x.stored = len(x.steps)
	clear(x.changed)
	x.checkpoint = cmp.Or(x.asked, x.decided, x.checkpoint)
	x.events, x.decided, x.asked, x.with = nil, nil, nil, nil
	x.paid()
	for i := range x.steps {
		if len(x.steps[i].Result) > maxCached {
			x.steps[i].Result = nil
		}
	}
}
