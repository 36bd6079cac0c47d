// Package mcp is the MCP door (AgentCards): MCP clients of every revision come in over
// HTTP or stdio and find the tools of the hub (internal/tools), which makes their calls. What
// is here is the protocol: sessions and requests, lists page by page, who is asked back, who
// is told what changed.
package mcp

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/lifecycle"
	"comet/internal/tools"
	"comet/internal/words"
)

// Options configures New; nil is the zero value.
type Options struct {
	// PageSize is how many tools, prompts or resources a page has, default 200.
	PageSize int
	// Version is what clients are told that comet is.
	Version string
	// Logger hears of what cannot be done; default discards.
	Logger *slog.Logger
	// Clock tells the time, default time.Now.
	Clock func() time.Time
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.PageSize <= 0 {
		out.PageSize = 200
	}
	if out.Version == "" {
		out.Version = "unknown"
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	if out.Clock == nil {
		out.Clock = time.Now
	}
	return out
}

// Server speaks MCP for the tools. It is safe for concurrent use.
type Server struct {
	tools *tools.Service
	opts  Options
	log   *slog.Logger

	suspended *suspendedCalls
	mcp       *mcp.Server
	subs      *subscriptions

	// servers are those that speak with clients: that of the HTTP door, and one for each
	// connection over stdio.
	serversMu sync.Mutex
	servers   []*mcp.Server

	services lifecycle.Group
}

// New returns the gateway to the tools of a hub.
func New(hub *tools.Service, opts *Options) *Server {
	g := &Server{tools: hub, opts: opts.orDefaults()}
	g.log = g.opts.Logger
	g.suspended = newSuspendedCalls(g.opts.Clock)
	g.subs = newSubscriptions(g)
	g.mcp = g.newSDKServer(nil)
	g.services.Add("the subscriptions to resources", g.subs)
	return g
}

// Start implements lifecycle.Service.
func (g *Server) Start(ctx context.Context) error { return g.services.Start(ctx) }

// Stop implements lifecycle.Service: calls that wait for their clients are given up.
func (g *Server) Stop(ctx context.Context) error {
	g.suspended.stop()
	return g.services.Stop(ctx)
}

func clip(s string) string { return words.Clip(s) }
