package app

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"comet/internal/auth"
	"comet/internal/config"
	"comet/internal/mcp"
	"comet/models"
)

// settleFor is how long a client of stdio waits at most for the upstreams to start: the first
// list it asks for is often the only one.
const settleFor = 5 * time.Second

// RunStdio is the gateway for one MCP client over in and out, with a database of its own and
// no other door, until the client goes or ctx ends. Nothing but the protocol goes to out.
func RunStdio(ctx context.Context, cfg config.Config, in io.ReadCloser, out io.WriteCloser, opts *Options) error {
	cfg.Listen, cfg.Transport.V5Listen, cfg.NATS.Listen = "", "", ""
	a, forget, err := newBeside(ctx, cfg, opts)
	if err != nil {
		return err
	}
	defer forget()
	if err = a.Start(ctx); err == nil {
		a.tools.WaitForUpstreams(ctx, settleFor)
		a.log.Info("serving one MCP client over stdio", "data", cfg.Data)
		err = a.gateway.ServeStream(ctx, operator(), in, out)
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			err = nil // the client went, or comet was told to
		}
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.HTTP.ShutdownTimeout)
	defer cancel()
	return errors.Join(err, a.Stop(stopCtx))
}

// newBeside is New for one of several clients that name the same servers: the first has the
// data directory, and the others one of their own, which is forgotten with them.
func newBeside(ctx context.Context, cfg config.Config, opts *Options) (a *App, forget func(), err error) {
	a, err = New(ctx, cfg, opts)
	if !errors.Is(err, errTaken) {
		return a, func() {}, err
	}
	o := opts.orDefaults()
	dir, err := os.MkdirTemp("", "comet-mcp-")
	if err != nil {
		return nil, nil, err
	}
	o.Logger.Warn("another client has the data directory; what is learnt here is forgotten", "data", cfg.Data)
	cfg.Data = dir
	forget = func() { _ = os.RemoveAll(dir) }
	if a, err = New(ctx, cfg, opts); err != nil {
		forget()
	}
	return a, forget, err
}

// operator is who starts comet for himself: what a program of his does, he does.
func operator() models.Principal {
	return models.Principal{TokenID: auth.BootstrapTokenID, Name: "stdio", Scopes: []models.Scope{models.ScopeAdmin}}
}

// RelayStdio connects one MCP client over in and out with a server.
func RelayStdio(ctx context.Context, server, token string, in io.ReadCloser, out io.WriteCloser, opts *Options) error {
	o := opts.orDefaults()
	return mcp.Relay(ctx, in, out, server+mcp.Path, token, o.Logger)
}
