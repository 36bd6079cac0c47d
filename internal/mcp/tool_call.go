package mcp

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/tools"
	"comet/internal/upstream"
)

// answer answers a request. Questions, progress and log messages reach the client as its protocol
// version defines.
func (g *Server) answer(ctx context.Context, r clientRequest, do func(context.Context, *tools.CallOptions) (any, error)) callOutcome {
	opts := &tools.CallOptions{Can: r.can, Meta: r.meta}
	if r.session != nil {
		news := upstream.NewNotifications()
		defer news.Close()
		tell := func(send func() error) {
			news.Add(func() {
				if err := send(); err != nil {
					g.log.Debug("a notification failed", "error", err)
				}
			})
		}
		if g.receivesLogs(r.session) || r.meta[mcp.MetaKeyLogLevel] != nil { //nolint:staticcheck // clients of all revisions have it
			opts.Log = func(p *mcp.LoggingMessageParams) { //nolint:staticcheck // revision 2025-11-25 has it
				tell(func() error { return r.session.Log(ctx, p) }) // of the level that the client has set
			}
		}
		if token := r.meta["progressToken"]; token != nil {
			opts.Progress = func(p upstream.Progress) {
				told := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: p.Progress, Total: p.Total, Message: p.Message}
				tell(func() error { return r.session.NotifyProgress(ctx, told) })
			}
		}
	}
	switch {
	case r.state != "":
		return g.suspended.resume(ctx, r.by.Principal.TokenID, r.name, r.state, r.answers)
	case r.can == upstream.Capabilities{} && r.after == 0:
	case r.newest:
		return g.suspended.run(ctx, r, func(ctx context.Context, ask askFunc) (any, error) {
			opts.Ask = ask
			return do(ctx, opts)
		})
	default:
		opts.Ask = askSession(ctx, r.session)
	}
	res, err := do(ctx, opts)
	return callOutcome{res: res, err: err}
}

// callTool calls a tool. Errors but those of the protocol are results.
func (g *Server) callTool(ctx context.Context, r clientRequest, args json.RawMessage) (toolReply, error) {
	if err := g.demandsTasks(ctx, r); err != nil {
		return toolReply{}, err
	}
	if g.opts.Workflows != nil {
		if strings.HasPrefix(r.state, "wf_") {
			return g.resumeDecision(ctx, r, args)
		}
		if r.arguments, r.began = args, make(chan string, 1); r.newest && r.tasks {
			r.after = g.opts.TasksAfter
		}
	}
	out := g.answer(ctx, r, func(ctx context.Context, o *tools.CallOptions) (any, error) {
		if o.AsTask = r.after > 0; r.began != nil {
			o.Workflow = func(id string) { r.began <- id }
		}
		return g.tools.CallTool(ctx, r.by, r.name, args, o)
	})
	task, out, err := g.awaitTask(ctx, r, out)
	if task.task != nil || err != nil {
		return task, err
	}
	res, _ := out.res.(*upstream.Result)
	if out.questions != nil {
		res = upstream.NewResult(&mcp.CallToolResult{Content: []mcp.Content{}, InputRequests: out.questions, RequestState: out.state})
	}
	reply, err := g.replyOf(res, out.err)
	if id := out.workflowOf(r); id != "" && err == nil {
		return g.askAboutPause(ctx, r, args, id, reply)
	}
	return reply, err
}

// replyOf returns the reply with the outcome of a call.
func (g *Server) replyOf(res *upstream.Result, err error) (toolReply, error) {
	res, err = g.outcomeOf(res, err)
	return toolReply{Result: res}, err
}

// workflowOf returns the workflow that a call has waited for, "" for none.
func (o callOutcome) workflowOf(r clientRequest) string {
	began := r.began
	if o.call != nil {
		if o.call.workflow != "" {
			return o.call.workflow
		}
		began = o.call.began // of the request that has begun the call
	}
	select {
	case id := <-began:
		return id
	default:
		return ""
	}
}

// passLogs passes log messages to the client of a session from now on.
func (g *Server) passLogs(to mcp.Session) {
	s, ok := to.(*mcp.ServerSession)
	if _, known := g.logs.LoadOrStore(s, true); ok && !known {
		go func() {
			_ = s.Wait()
			g.logs.Delete(s)
		}()
	}
}

func (g *Server) receivesLogs(s *mcp.ServerSession) bool {
	_, receives := g.logs.Load(s)
	return receives
}
