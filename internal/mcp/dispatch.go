package mcp

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/mcp/stdio"
	"comet/internal/tools"
	"comet/models"
)

// Placeholders that make the SDK's server declare tools, prompts and resources and notify its
// clients of changes. No list contains them.
const (
	dispatchTool        = "comet-every-tool"
	placeholderPrompt   = "comet-every-prompt"
	placeholderResource = "comet:every-resource"
)

// principalKey is the key of the principal in the SDK's token info.
const principalKey = "principal"

// newSDKServer returns an SDK server. The SDK implements the protocol; requests for tools, prompts
// and resources are handled here, for the principal of each request. fixed is the principal of a
// connection without tokens; nil takes it from the token of each request.
func (g *Server) newSDKServer(fixed *models.Principal) *mcp.Server {
	has := &mcp.ServerCapabilities{
		Completions: &mcp.CompletionCapabilities{},
		Logging:     &mcp.LoggingCapabilities{}, //nolint:staticcheck // revision 2025-11-25 has it
		Prompts:     &mcp.PromptCapabilities{ListChanged: true},
		Resources:   &mcp.ResourceCapabilities{ListChanged: true, Subscribe: true},
		Tools:       &mcp.ToolCapabilities{ListChanged: true},
	}
	if g.opts.Workflows != nil {
		has.AddExtension(tasksExtension, nil)
	}
	s := mcp.NewServer(g.implementation(), &mcp.ServerOptions{
		Instructions:       instructions,
		Logger:             sdkLogger(g.log),
		Capabilities:       has,
		SubscribeHandler:   g.subscribe,
		UnsubscribeHandler: g.unsubscribe,
		CompletionHandler: func(ctx context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			res, err := g.tools.Complete(ctx, callerOf(fixed, r, r.Session.ID()), r.Params)
			return res, toRPCError(err)
		},
	})
	g.addDispatchTool(s)
	if g.opts.Workflows != nil {
		g.addTaskMethods(s)
	}
	s.AddReceivingMiddleware(g.countFailures, g.dispatch(fixed), addSession)
	g.serversMu.Lock()
	defer g.serversMu.Unlock()
	g.servers = append(g.servers, s)
	return s
}

// implementation describes comet to its clients.
func (g *Server) implementation() *mcp.Implementation {
	return &mcp.Implementation{Name: "comet", Title: "comet", Version: g.opts.Version}
}

// addDispatchTool adds the tool that receives all calls.
func (g *Server) addDispatchTool(s *mcp.Server) {
	s.AddTool(&mcp.Tool{Name: dispatchTool, InputSchema: json.RawMessage(`{"type":"object"}`)}, g.handleToolCall)
}

// sdkServers returns the SDK servers with clients.
func (g *Server) sdkServers() []*mcp.Server {
	g.serversMu.Lock()
	defer g.serversMu.Unlock()
	return slices.Clone(g.servers)
}

// removeSDKServer ends the notifications to the clients of a server.
func (g *Server) removeSDKServer(s *mcp.Server) {
	g.serversMu.Lock()
	defer g.serversMu.Unlock()
	g.servers = slices.DeleteFunc(g.servers, func(other *mcp.Server) bool { return other == s })
}

// ServeStream serves one client over its own connection as by, until it disconnects or ctx ends.
func (g *Server) ServeStream(ctx context.Context, by models.Principal, in io.Reader, out io.WriteCloser) error {
	s := g.newSDKServer(&by)
	defer g.removeSDKServer(s)
	return s.Run(ctx, stdio.NewTransport(in, out, newRequestChecker().checkLine))
}

const instructions = `comet is a gateway to the tools of many MCP servers and to other agents. Few tools are listed. ` +
	`Say what you want to do to agentcards:search_tools and it names the tools that can; run code over several of them with agentcards:execute_code, ` +
	`which keeps intermediate results out of the conversation; hand work to an agent with comet:submit_task.`

// dispatch handles requests for tools, prompts and resources before the SDK does.
func (g *Server) dispatch(fixed *models.Principal) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
			defer func() { err = g.recovered(method, recover(), err) }()
			session := ""
			if s := req.GetSession(); s != nil {
				session = s.ID()
			}
			if method == "subscriptions/listen" && protocolVersionOf(req) < statelessVersion { // the SDK would accept it and never end it
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "subscriptions/listen requires " + statelessVersion}
			}
			by := callerOf(fixed, req, session)
			ctx = context.WithValue(ctx, callerKey{}, by)
			switch p := req.GetParams().(type) {
			case *mcp.CallToolParamsRaw:
				// The SDK calls the one tool that it knows; its handler finds the target of the
				// call in the context.
				r := *req.(*mcp.CallToolRequest)
				params := *p
				params.Name = dispatchTool
				r.Params = &params
				called := &calledTool{name: p.Name}
				res, err := next(context.WithValue(ctx, calledToolKey{}, called), method, &r)
				if called.task != nil && err == nil {
					return called.task, nil
				}
				return res, err
			case *taskParams:
				if err := checkTaskRequest(req, method); err != nil {
					return nil, err
				}
			case *mcp.ListToolsParams:
				page, next, err := pageOf(ctx, by, g.tools.MCPTools, paramsOrZero(p).Cursor)
				return &mcp.ListToolsResult{Tools: page, NextCursor: next, Cacheable: cacheHints()}, err
			case *mcp.ListPromptsParams:
				page, next, err := pageOf(ctx, by, g.tools.Prompts, paramsOrZero(p).Cursor)
				return &mcp.ListPromptsResult{Prompts: page, NextCursor: next, Cacheable: cacheHints()}, err
			case *mcp.ListResourcesParams:
				page, next, err := pageOf(ctx, by, g.tools.Resources, paramsOrZero(p).Cursor)
				return &mcp.ListResourcesResult{Resources: page, NextCursor: next, Cacheable: cacheHints()}, err
			case *mcp.ListResourceTemplatesParams:
				page, next, err := pageOf(ctx, by, g.tools.ResourceTemplates, paramsOrZero(p).Cursor)
				return &mcp.ListResourceTemplatesResult{ResourceTemplates: page, NextCursor: next, Cacheable: cacheHints()}, err
			case *mcp.GetPromptParams:
				out := g.answer(ctx, newClientRequest(by, method+p.Name, req, p.InputResponses, p.RequestState), func(ctx context.Context, o *tools.CallOptions) (any, error) {
					return g.tools.Prompt(ctx, by, p, o)
				})
				return promptResult(protocolVersionOf(req), out)
			case *mcp.ReadResourceParams:
				out := g.answer(ctx, newClientRequest(by, method+p.URI, req, p.InputResponses, p.RequestState), func(ctx context.Context, o *tools.CallOptions) (any, error) {
					return g.tools.ReadResource(ctx, by, p.URI, o)
				})
				return resourceResult(protocolVersionOf(req), out)
			case *mcp.SetLoggingLevelParams: //nolint:staticcheck // revision 2025-11-25 has it
				g.passLogs(req.GetSession())
			}
			return next(ctx, method, req)
		}
	}
}

// paramsOrZero returns the parameters of a request, the zero value if they are missing.
func paramsOrZero[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}

// calledToolKey is the context key of the tool that is called through dispatchTool.
type calledToolKey struct{}

// calledTool is that tool, and the task that the call has become, nil for none.
type calledTool struct {
	name string
	task *taskResult
}

func (g *Server) handleToolCall(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	by, _ := ctx.Value(callerKey{}).(tools.Caller)
	called, _ := ctx.Value(calledToolKey{}).(*calledTool)
	reply, err := g.callTool(ctx, newClientRequest(by, called.name, req, req.Params.InputResponses, req.Params.RequestState), req.Params.Arguments)
	switch {
	case err != nil:
		return nil, err
	case reply.task != nil:
		called.task = reply.task
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	case reply.Result == nil:
		return nil, nil
	}
	return reply.Decoded()
}

// callerOf returns the caller of a request: the holder of its token, or fixed.
func callerOf(fixed *models.Principal, req mcp.Request, session string) tools.Caller {
	by := tools.Caller{Source: tools.SourceMCP, Session: session}
	if fixed != nil {
		by.Principal = *fixed
	}
	extra := req.GetExtra()
	if extra == nil {
		return by
	}
	if t := extra.TokenInfo; t != nil && fixed == nil {
		by.Principal, _ = t.Extra[principalKey].(models.Principal)
	}
	if extra.Header != nil {
		by = by.Traced(extra.Header.Get("traceparent"))
	}
	inMeta, _ := requestMeta(req)["traceparent"].(string) // stdio has no headers
	return by.Traced(inMeta)
}

// sdkLogger returns a logger for the SDK that drops records below a warning. The SDK logs the start
// and the end of each connection, which without sessions is three records per request.
func sdkLogger(log *slog.Logger) *slog.Logger { return slog.New(warningHandler{log.Handler()}) }

// warningHandler drops records below a warning.
type warningHandler struct{ slog.Handler }

func (h warningHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler. It also drops records caused by a disconnected client or a stop.
func (h warningHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "server run cancelled" || strings.HasPrefix(r.Message, "calling notifications/") {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h warningHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warningHandler{h.Handler.WithAttrs(attrs)}
}

func (h warningHandler) WithGroup(name string) slog.Handler {
	return warningHandler{h.Handler.WithGroup(name)}
}
