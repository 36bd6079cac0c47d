package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/tools"
	"comet/internal/upstream"
)

// clientRequest is a request that an upstream answers, and what its client can receive meanwhile.
type clientRequest struct {
	by      tools.Caller
	name    string             // of the tool, or what else identifies a request with the reply to a question
	session *mcp.ServerSession // nil for a client that gets only the response
	newest  bool
	clientCapabilities
	meta mcp.Meta
	// answers and state are the reply to questions, "" for none.
	answers mcp.InputResponseMap
	state   string

	// A call with arguments becomes a task after a time, 0 for never. began receives the id of the workflow that it starts.
	arguments json.RawMessage
	after     time.Duration
	began     chan string
}

// clientCapabilities are what a client declares.
type clientCapabilities struct {
	can   upstream.Capabilities
	tasks bool // the Tasks extension
}

func capabilitiesOf(req mcp.Request) (out clientCapabilities) {
	if from, ok := req.(interface {
		ClientCapabilities() *mcp.ClientCapabilities
	}); ok {
		if has := from.ClientCapabilities(); has != nil {
			out.can = upstream.Capabilities{Elicitation: has.Elicitation, Sampling: has.Sampling, Roots: has.RootsV2} //nolint:staticcheck // clients of all revisions have them
			out.tasks = hasTasks(has.Extensions)
		}
	}
	return out
}

func newClientRequest(by tools.Caller, name string, req mcp.Request, answers mcp.InputResponseMap, state string) clientRequest {
	r := clientRequest{by: by, name: name, newest: protocolVersionOf(req) >= statelessVersion, meta: requestMeta(req), answers: answers, state: state, clientCapabilities: capabilitiesOf(req)}
	r.session, _ = req.GetSession().(*mcp.ServerSession)
	return r
}

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

// askSession returns the function that asks the client of a session on the stream of the request with this context.
func askSession(request context.Context, s *mcp.ServerSession) askFunc {
	return func(asking context.Context, questions mcp.InputRequestMap) (mcp.InputResponseMap, error) {
		ctx, cancel := context.WithCancel(request)
		defer cancel()
		defer context.AfterFunc(asking, cancel)()
		answers := mcp.InputResponseMap{}
		for name, question := range questions {
			var err error
			switch q := question.(type) {
			case *mcp.ElicitParams:
				answers[name], err = s.Elicit(ctx, q)
			case *mcp.CreateMessageWithToolsParams: //nolint:staticcheck // clients of all revisions have it
				answers[name], err = s.CreateMessageWithTools(ctx, q) //nolint:staticcheck // clients of all revisions have it
			case *mcp.ListRootsParams: //nolint:staticcheck // clients of all revisions have it
				answers[name], err = s.ListRoots(ctx, q) //nolint:staticcheck // clients of all revisions have it
			}
			if err != nil {
				return nil, err
			}
		}
		return answers, nil
	}
}

// toolReply is the reply to a call: its result, or the task that it has become.
type toolReply struct {
	*upstream.Result
	task *taskResult
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
		if r.began != nil {
			o.Workflow = func(id string) { r.began <- id }
		}
		return g.tools.CallTool(ctx, r.by, r.name, args, o)
	})
	if out.call != nil {
		r.began = out.call.began
	}
	task, out, err := g.awaitTask(ctx, r, out)
	if task.task != nil || err != nil {
		return task, err
	}
	res, _ := out.res.(*upstream.Result)
	if out.questions != nil {
		res = upstream.NewResult(&mcp.CallToolResult{Content: []mcp.Content{}, InputRequests: out.questions, RequestState: out.state})
	}
	res, err = g.outcomeOf(res, out.err)
	if id := out.workflowOf(r); id != "" && err == nil {
		return g.askAboutPause(ctx, r, args, id, toolReply{Result: res})
	}
	return toolReply{Result: res}, err
}

// workflowOf returns the workflow that a call has waited for, "" for none.
func (o callOutcome) workflowOf(r clientRequest) string {
	if o.call != nil && o.call.workflow != "" {
		return o.call.workflow
	}
	select {
	case id := <-r.began:
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
