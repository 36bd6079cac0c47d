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
	"comet/internal/mcp/stdio"
	"comet/models"
)

// upstreamWait is how long a client over stdio waits at most for the upstreams to start, because
// many clients list the tools only once.
const upstreamWait = 5 * time.Second

// RunStdio serves one MCP client over in and out, without any other listener, until in ends or
// ctx is cancelled. Only protocol messages are written to out.
func RunStdio(ctx context.Context, cfg config.Config, in io.ReadCloser, out io.WriteCloser, opts *Options) error {
	cfg.Listen, cfg.MetricsListen, cfg.Transport.V5Listen, cfg.NATS.Listen = "", "", "", ""
	a, remove, err := newWithOwnData(ctx, cfg, opts)
	if err != nil {
		return err
	}
	defer remove()
	if err = a.Start(ctx); err == nil {
		a.tools.WaitForUpstreams(ctx, upstreamWait)
		a.log.Info("serving one MCP client over stdio", "data", cfg.Data)
		user := models.Principal{TokenID: auth.BootstrapTokenID, Name: "stdio", Scopes: []models.Scope{models.ScopeAdmin}} // who started the program
		err = a.mcpServer.ServeStream(ctx, user, in, out)
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			err = nil // the client has closed in, or the program ends
		}
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.HTTP.ShutdownTimeout)
	defer cancel()
	return errors.Join(err, a.Stop(stopCtx))
}

// newWithOwnData is New for a data directory that several stdio clients may use at the same time:
// the first locks it, and each other one gets a temporary directory, which remove deletes.
func newWithOwnData(ctx context.Context, cfg config.Config, opts *Options) (a *App, remove func(), err error) {
	a, err = New(ctx, cfg, opts)
	if !errors.Is(err, errLocked) {
		return a, func() {}, err
	}
	o := opts.orDefaults()
	dir, err := os.MkdirTemp("", "comet-mcp-")
	if err != nil {
		return nil, nil, err
	}
	o.Logger.Warn("another process uses the data directory; this one keeps its data in a temporary directory", "data", cfg.Data)
	cfg.Data = dir
	remove = func() { _ = os.RemoveAll(dir) }
	if a, err = New(ctx, cfg, opts); err != nil {
		remove()
	}
	return a, remove, err
}

// RelayStdio connects one MCP client over in and out to a server.
func RelayStdio(ctx context.Context, server, token string, in io.ReadCloser, out io.WriteCloser, opts *Options) error {
	o := opts.orDefaults()
	return stdio.Relay(ctx, in, out, server+mcp.Path, token, o.Logger)
}
