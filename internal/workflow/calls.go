package workflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/tools"
	"comet/internal/upstream"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	"comet/store/workflows"
)

// heldCall waits for a tool call that is already running, and cancels the call when its context ends.
type heldCall func(ctx context.Context, workflowID string) (*upstream.Result, error)

// heldStep is the id of the only step of a workflow that Hold stores.
const heldStep = "call"

// Hold stores a tool call that is already running as a workflow of one running step, and returns the workflow's id. wait
// returns the result of the call, which the workflow stores; it must cancel the call when its context ends. If this process
// ends first, the call runs again if its tool allows this; otherwise its outcome needs a decision. Hold returns
// errs.InvalidRequest for a tool that works on workflows. After an error nothing is stored, and wait is not called.
func (e *Engine) Hold(ctx context.Context, by tools.Caller, name string, arguments json.RawMessage, wait func(ctx context.Context, workflowID string) (*upstream.Result, error)) (string, error) {
	t, err := e.Tools.Lookup(ctx, by, name)
	if err == nil {
		arguments, err = plan.Literal(arguments, heldStep)
	}
	if err != nil {
		return "", err
	}
	x := e.newExecution(by, Settings{Call: true})
	if x.plan, err = plan.New([]plan.Step{{ID: heldStep, Type: plan.KindTool, Tool: t.ID, Arguments: arguments}}, ""); err != nil {
		return "", err
	}
	x.setRow(by)
	if _, err := x.addSteps(ctx); err != nil {
		return "", err
	}
	s := &x.steps[0]
	s.State, s.Attempt, s.Repeatable, s.StartedAt = int(plan.Running), 1, t.IsRepeatable(), x.row.CreatedAt
	x.emit(EventStarted, EventData{})
	x.emitStep(EventStepStarted, 0)
	first := []dispatch{{attempt: 1, target: t.Digest, held: wait}}
	id := x.row.ID // the run owns x after the commit
	return id, e.commit(ctx, x, first, x.create, func() bool { return true })
}

// worksOnWorkflows reports whether a tool starts or changes workflows.
func worksOnWorkflows(t tools.Target) bool {
	return t.IsGateway() && t.ID != codeTool && t.Class != models.ToolRead
}

// awaitHeld waits for a call that is already running.
func (s *step) awaitHeld(ctx context.Context) (o outcome) {
	res, err := s.held(ctx, s.workflowID)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil { // the server stops
		return outcome{err: errors.New("the server stopped while the call was running"), lost: !s.repeatable, again: s.repeatable}
	}
	o.value, o.err = rawOutcome(res, err)
	return o
}

// codeRPC is the prefix of the error code of a call that has ended with a JSON-RPC error; the code of that error follows.
const codeRPC = "JSONRPC_"

// rawOutcome returns the result of a call as JSON, or the error of a call without a result.
func rawOutcome(res *upstream.Result, err error) (json.RawMessage, error) {
	if err == nil {
		decoded, err := res.Decoded()
		if err != nil {
			return nil, err
		}
		return json.Marshal(decoded)
	}
	code, isRPC := tools.ErrorDetails(err)["rpc_code"].(int64)
	if errors.Is(err, tools.ErrInvalidArguments) {
		code, isRPC = jsonrpc.CodeInvalidParams, true
	}
	if isRPC {
		return nil, tools.WithDetails(tools.NewError(errs.UpstreamFailed, codeRPC+strconv.FormatInt(code, 10), "%s", tools.Detail(err)), tools.ErrorDetails(err))
	}
	return nil, err
}

// Task is a workflow as a task of MCP (io.modelcontextprotocol/tasks).
type Task struct {
	View
	CreatedAt, UpdatedAt time.Time
	// DeletedAt is when the workflow is deleted, zero until it has ended.
	DeletedAt time.Time
	// Result is the result of the tool call, nil until the call has one.
	Result json.RawMessage
	// Failure is the JSON-RPC error of the tool call, nil for none.
	Failure *jsonrpc.Error
}

// Task returns a workflow of the principal's own token as a task of MCP, or WORKFLOW_NOT_FOUND.
func (e *Engine) Task(ctx context.Context, by models.Principal, id string) (t Task, err error) {
	from := e.Store.Reads(ctx)
	row, err := workflows.Get(from, id)
	if errs.Is(err, errs.NotFound) || err == nil && row.TokenID != by.TokenID {
		err = tools.NewError(errs.NotFound, "WORKFLOW_NOT_FOUND", "there is no task %q", input.Clip(id))
	}
	if err != nil {
		return t, err
	}
	x, err := e.load(from, row, maxInline)
	if err != nil {
		return t, err
	}
	if t.View, err = x.view(); err != nil {
		return t, err
	}
	t.CreatedAt, t.UpdatedAt = row.CreatedAt, row.UpdatedAt
	if row.State > workflows.Paused {
		t.DeletedAt = row.EndedAt.Add(e.opts.Retention)
	}
	switch {
	case row.State != workflows.Complete && row.State != workflows.Failed:
		return t, nil
	case x.settings.Call:
		t.Result, t.Failure, err = x.resultOfCall(ctx)
		return t, err
	}
	res, err := t.View.CallResult()
	if err == nil {
		t.Result, err = json.Marshal(res)
	}
	return t, err
}

// resultOfCall returns the result of the only step in the form in which the client receives it.
func (x *execution) resultOfCall(ctx context.Context) (json.RawMessage, *jsonrpc.Error, error) {
	s := x.steps[0]
	if x.state(0) == plan.Success {
		res, err := x.result(ctx)(0)
		if err == nil && !bytes.HasPrefix(res, []byte(`{"content":`)) && !bytes.HasPrefix(res, []byte(`{"_meta":`)) { // of a decision
			res, err = json.Marshal(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(res)}}, StructuredContent: res})
		}
		return res, nil, err
	}
	if code, ok := strings.CutPrefix(s.ErrorCode, codeRPC); ok {
		number, err := strconv.ParseInt(code, 10, 64)
		return nil, &jsonrpc.Error{Code: number, Message: s.Error}, err
	}
	failure := map[string]any{"code": s.ErrorCode, "message": s.Error}
	if x.state(0) == plan.Skipped {
		failure = map[string]any{"code": codeLost, "message": "the result of the call was lost, and the call was not repeated"}
	}
	text, err := json.Marshal(&mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("%s: %s", failure["code"], failure["message"])}}, StructuredContent: map[string]any{"error": failure},
	})
	return text, nil, err
}

// CallResult returns the view as the result of a tool.
func (v View) CallResult() (*mcp.CallToolResult, error) {
	text, err := json.Marshal(v)
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text), IsError: v.Status == "error",
	}, err
}

// Ask stores the key of a question to a client about a checkpoint, in place of the previous one. The key is secret; "" removes
// it.
func (e *Engine) Ask(ctx context.Context, checkpoint, key string) error {
	return e.Store.Write(ctx, func(tx *store.Tx) error { return workflows.Ask(tx, checkpoint, key) })
}

// UntilChange returns a context that ends when this or another process replans, pauses, resumes or ends a workflow that had the
// given version. It has ended already if the workflow has another version or cannot be read. Call the function to release it.
func (e *Engine) UntilChange(ctx context.Context, id string, version int64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{version, cancel}
	e.watched.add(id, w)
	if row, err := workflows.Get(e.Store.Reads(ctx), id); err != nil || row.Version != version { // it has changed already
		cancel()
	}
	return ctx, func() {
		cancel()
		e.watched.remove(id, w)
	}
}

// watch is a call of UntilChange.
type watch struct {
	version int64
	cancel  context.CancelFunc
}

// watched contains the calls of UntilChange by the ids of their workflows. Its zero value is empty.
type watched struct {
	mu  sync.Mutex
	all map[string][]*watch
}

func (a *watched) add(id string, w *watch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string][]*watch{}
	}
	a.all[id] = append(a.all[id], w)
}

func (a *watched) remove(id string, w *watch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all[id] = slices.DeleteFunc(a.all[id], func(other *watch) bool { return other == w }); len(a.all[id]) == 0 {
		delete(a.all, id)
	}
}

// changed ends the contexts of the calls whose version is earlier than that of an event.
func (a *watched) changed(event models.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.all[event.Key] {
		var now EventData
		if json.Unmarshal(event.Data, &now) == nil && now.Version > w.version {
			w.cancel()
		}
	}
}

// IsAsked reports whether key is the stored key of the question about a checkpoint, in a workflow of the principal's own token.
func (e *Engine) IsAsked(ctx context.Context, by models.Principal, id, checkpoint, key string) (bool, error) {
	asked, err := workflows.IsAsked(e.Store.Reads(ctx), by.TokenID, id, checkpoint, key)
	if errs.Is(err, errs.NotFound) {
		return false, nil
	}
	return asked, err
}

// TaskAwaitingReply returns the task that waits for a reply: that of a running agent step, or one of its subtasks. ok is false if none
// waits.
func (e *Engine) TaskAwaitingReply(ctx context.Context, id string) (asking models.Task, ok bool, err error) {
	running, err := workflows.RunningTasks(e.Store.Reads(ctx), id)
	for _, task := range running {
		t, missing := e.Orchestrator.Task(ctx, task)
		if errs.Is(missing, errs.NotFound) {
			continue
		}
		if err = missing; err == nil {
			asking, ok, err = e.Orchestrator.TaskAwaitingReply(ctx, t)
		}
		if ok || err != nil {
			break
		}
	}
	return asking, ok, err
}

// HasTask reports whether a task is the newest one of an agent step of a workflow.
func (e *Engine) HasTask(ctx context.Context, id, task string) (bool, error) {
	return workflows.HasTask(e.Store.Reads(ctx), id, task)
}
