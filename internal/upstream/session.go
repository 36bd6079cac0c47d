package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
)

type session struct {
	launch            *resolvedServer
	opts              *Options
	notify            func(Change)
	inbound           inbound
	stderr            *stderrLines
	calls             calls
	catalogue         atomic.Pointer[catalogue] // set before the session is ready
	acks              sync.Map                  // a channel for each URI whose subscription is not acknowledged yet
	staleLists        *background.Pending[ChangeKind]
	checkRequested    background.Signal // the session may have ended without notice
	notificationsLost atomic.Bool       // list changes may not be announced any more
	logs              sync.Once         // log messages are requested

	process *process // nil for an address
	stdio   *stdio
	http    *httpClient // nil for a program

	client  *mcp.ClientSession
	direct  *directCalls
	life    context.Context // ends with the session
	end     context.CancelFunc
	ended   chan struct{} // closed with the connection
	running sync.WaitGroup
}

// open starts and connects. ctx limits the attempt; the session outlives it. legacy begins with a
// version before 2026-07-28, for servers that do not answer the newest one's version request.
func open(ctx context.Context, l *resolvedServer, opts *Options, legacy bool, stderr *stderrLines, tell func(Change)) (*session, error) {
	s := &session{
		launch: l, opts: opts, notify: tell, stderr: stderr,
		staleLists: background.NewPending[ChangeKind](), checkRequested: background.NewSignal(), ended: make(chan struct{}),
	}
	s.inbound.limit, s.inbound.hook = opts.MaxMessage, s.notified
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	transport, err := s.transport()
	if err == nil {
		stop := context.AfterFunc(ctx, s.abandon)
		err = s.connect(transport, legacy)
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("it does not respond to the first request within %s", opts.StartTimeout)
			if said := s.inbound.invalid.warning(l.secrets); said != "" {
				err = fmt.Errorf("%w; %s", err, said)
			}
		}
		err = s.describeEnd(err)
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) connect(transport mcp.Transport, legacy bool) (err error) {
	options := &mcp.ClientSessionOptions{ProtocolVersion: s.launch.Protocol}
	if legacy && options.ProtocolVersion == "" {
		options.ProtocolVersion = "2025-11-25"
	}
	s.client, err = guard(func() (*mcp.ClientSession, error) { return s.newClient().Connect(s.life, transport, options) })
	if err != nil {
		return err
	}
	s.direct = newDirectCalls(s)
	s.running.Go(func() {
		defer close(s.ended)
		_ = s.client.Wait()
	})
	return nil
}

// transport starts the program, or prepares the HTTP client.
func (s *session) transport() (mcp.Transport, error) {
	l := s.launch
	if l.transport() == Stdio {
		p, err := startProcess(l, s.opts.LookupEnv)
		if err != nil {
			return nil, err
		}
		s.process = p
		s.stdio = newStdio(p.stdout, p.stdin, &s.inbound)
		log := s.opts.Logger.With("upstream", l.ID)
		s.running.Go(func() {
			defer close(s.stderr.ended)
			s.stderr.readAll(p.stderr, l.secrets, log)
		})
		return s.stdio, nil
	}
	var tokens TokenSource
	if s.opts.Tokens != nil && l.usesOAuth() {
		var err error
		if tokens, err = s.opts.Tokens(s.life, l.ID, l.URL); err != nil {
			return nil, err
		}
	}
	s.http = newHTTPClient(l, &s.inbound, tokens, &s.calls, s.checkRequested.Set)
	size := s.opts.MaxMessage + maxErrorBody
	return &mcp.StreamableClientTransport{Endpoint: l.URL, HTTPClient: s.http.sdkClient(), MaxEventSize: size}, nil
}

// implementation describes comet to the upstream.
func (s *session) implementation() *mcp.Implementation {
	return &mcp.Implementation{Name: "comet", Version: s.opts.Version}
}

func (s *session) newClient() *mcp.Client {
	capabilities := &mcp.ClientCapabilities{ // of each caller since 2026-07-28: see call.meta
		Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
		Sampling:    &mcp.SamplingCapabilities{}, //nolint:staticcheck // clients of all revisions have it
	}
	if len(s.launch.Roots) > 0 {
		capabilities.RootsV2 = &mcp.RootCapabilities{} //nolint:staticcheck // see roots
	}
	c := mcp.NewClient(s.implementation(), &mcp.ClientOptions{
		Capabilities:   capabilities,
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}, // see runRounds
		ElicitationHandler: func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return passOn[*mcp.ElicitResult](ctx, s, r.Params)
		},
		CreateMessageWithToolsHandler: func(ctx context.Context, r *mcp.CreateMessageWithToolsRequest) (*mcp.CreateMessageWithToolsResult, error) { //nolint:staticcheck // clients of all revisions have it
			return passOn[*mcp.CreateMessageWithToolsResult](ctx, s, r.Params) //nolint:staticcheck // clients of all revisions have it
		},
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { s.staleLists.Add(Tools) },
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { s.staleLists.Add(Prompts) },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { s.staleLists.Add(Resources) },
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			if r.Params != nil {
				s.notify(Change{Server: s.launch.ID, Kind: ResourceUpdated, URI: r.Params.URI})
			}
		},
	})
	c.AddReceivingMiddleware(guarded, s.receiveAcknowledgements)
	c.AddRoots(s.roots()...) //nolint:staticcheck // see roots
	return c
}

// requestLogs requests all log messages of a server before 2026-07-28, once. Each caller gets those of
// the level that it has set; since 2026-07-28 the level is in the request.
func (s *session) requestLogs(ctx context.Context) {
	if has := s.client.InitializeResult().Capabilities; has == nil || has.Logging == nil || s.stateless() { //nolint:staticcheck // revision 2025-11-25 has it
		return
	}
	s.logs.Do(func() {
		_ = s.client.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}) //nolint:staticcheck // revision 2025-11-25 has it
	})
}

// guarded recovers panics of the SDK in requests of an upstream with missing parameters.
func guarded(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		return guard(func() (mcp.Result, error) { return next(ctx, method, req) })
	}
}

// abandon fails all running requests.
func (s *session) abandon() {
	s.end()
	if s.stdio != nil {
		_ = s.stdio.Close()
	}
	if s.http != nil {
		s.http.end()
	}
}

// close ends the session, the program and all its children. It returns when they have ended.
func (s *session) close() {
	s.end()
	if s.stdio != nil {
		_ = s.stdio.Close()
		s.process.stop(s.opts.StopGrace)
	}
	if s.http != nil {
		late := time.AfterFunc(closeTimeout, s.http.end)
		defer late.Stop()
		defer s.http.close()
	}
	if s.client != nil {
		_, _ = guard(func() (struct{}, error) { return struct{}{}, s.client.Close() })
	}
	s.running.Wait()
	if s.stdio != nil {
		s.stdio.running.Wait()
		s.process.closePipes()
	}
}

// describeEnd returns an error that describes the end of the session, with secrets masked.
func (s *session) describeEnd(err error) error {
	err = connectionError(err)
	if s.process != nil {
		select { // usually the program has ended too
		case <-s.process.exited:
			err = fmt.Errorf("the program ended (%s)", s.process.cmd.ProcessState)
			<-s.stderr.ended
		case <-s.life.Done():
		case <-time.After(outputTimeout):
		}
		if lines := s.stderr.lines(); len(lines) > 0 {
			err = fmt.Errorf("%w; its last output: %s", err, lines[len(lines)-1])
		}
	}
	if s.http != nil {
		if why := s.http.base.required.Load(); why != nil {
			return fmt.Errorf("%w; %s", errAuthorizationRequired, s.launch.secrets.mask(*why))
		}
		if status := s.http.lastError.Load(); status != nil {
			err = fmt.Errorf("it responds %s: %w", *status, err)
		}
	}
	return errors.New(s.launch.secrets.mask(err.Error()))
}
