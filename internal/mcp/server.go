// Package mcp is the MCP server of comet (AgentCards). Clients of every protocol version connect
// over HTTP or stdio and use the tools of internal/tools. The package implements the protocol:
// sessions, requests, pagination, elicitation and notifications.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/tools"
	"comet/internal/workflow"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Version is the version of comet as sent to clients.
	Version string
	// OnFailure is called with the code of each failed request: that of the JSON-RPC error, or the
	// name of a tool call's error. The codes have few values. nil ignores them.
	OnFailure func(code string)
	// Logger receives failures; default discards.
	Logger *slog.Logger
	// Clock returns the current time, default time.Now.
	Clock func() time.Time
	// Workflows executes the workflows of tools. A call of a client with the Tasks extension becomes one when it lasts
	// longer than TasksAfter, default 2 s. nil disables the extension and questions about workflows.
	Workflows  *workflow.Engine
	TasksAfter time.Duration
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Version = cmp.Or(out.Version, "unknown")
	out.TasksAfter = cmp.Or(out.TasksAfter, 2*time.Second)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	if out.Clock == nil {
		out.Clock = time.Now
	}
	return out
}

// Server serves the tools over MCP. It is safe for concurrent use.
type Server struct {
	tools *tools.Service
	opts  Options
	log   *slog.Logger

	suspended *suspendedCalls
	asked     taskQuestions
	mcp       *mcp.Server
	// serverInfo is the JSON of comet's description of itself.
	serverInfo json.RawMessage
	subs       *subscriptions
	// logs has the sessions that have set a log level.
	logs sync.Map

	// servers are the SDK servers with clients: one for HTTP, and one for each stdio connection.
	serversMu sync.Mutex
	servers   []*mcp.Server
}

// New returns an MCP server for the tools.
func New(hub *tools.Service, opts *Options) *Server {
	g := &Server{tools: hub, opts: opts.orDefaults()}
	g.log = g.opts.Logger
	g.suspended = newSuspendedCalls(g.opts.Clock)
	g.asked.rounds = map[string][]*questionRound{}
	g.subs = newSubscriptions(g)
	g.mcp = g.newSDKServer(nil)
	g.serverInfo, _ = json.Marshal(g.implementation()) // cannot fail
	return g
}

// Start implements background.Service.
func (g *Server) Start(ctx context.Context) error { return g.subs.Start(ctx) }

// Stop implements background.Service. It cancels suspended calls.
func (g *Server) Stop(ctx context.Context) error {
	g.suspended.stop()
	return g.subs.Stop(ctx)
}
