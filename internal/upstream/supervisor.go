package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/background"
)

const (
	// healthy is the length of a session after which the backoff is reset.
	healthy = time.Minute
	// relistInterval is the interval for reading lists whose changes an upstream does not announce.
	relistInterval = 5 * time.Minute
)

// supervisor keeps one session with one server.
type supervisor struct {
	*background.Loop
	server      Server
	source      string
	opts        *Options
	notify      func(Change)
	predecessor *supervisor // the previous upstream with the id, which must end first
	restart     background.Signal

	firstAttempt    context.Context // ends when the first start has succeeded or failed
	endFirstAttempt context.CancelFunc

	mu            sync.Mutex
	state         State
	since         time.Time
	failure       string
	loggedFailure string // the last logged failure, "" after a success
	starts        int
	nextAttempt   time.Time
	stderr        *stderrLines // of the last session
	current       *session     // while Ready
	subscribed    map[string]int
}

func newSupervisor(s Server, source string, opts *Options, tell func(Change), before *supervisor) *supervisor {
	u := &supervisor{
		server: s, source: source, opts: opts, notify: tell, predecessor: before,
		restart: background.NewSignal(), state: Starting, since: time.Now(), subscribed: map[string]int{}, stderr: newStderrLines(),
	}
	u.firstAttempt, u.endFirstAttempt = context.WithCancel(context.Background())
	if s.Disabled {
		u.state = Disabled
	}
	u.Loop = background.NewLoop(u.run)
	return u
}

// run starts sessions until ctx ends.
func (u *supervisor) run(ctx context.Context) {
	defer u.endFirstAttempt()
	if u.predecessor != nil {
		_ = u.predecessor.Stop(ctx) // if ctx ends first, the manager waits for it
		u.predecessor = nil
	}
	if u.server.Disabled {
		return
	}
	defer u.setState(Stopped, nil, "")
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = u.opts.Backoff, u.opts.MaxBackoff, 2
	legacy := false
	for ctx.Err() == nil {
		began := time.Now()
		reached, err := u.serve(ctx, legacy)
		if ctx.Err() != nil {
			return
		}
		unauthorized := errors.Is(err, errAuthorizationRequired)
		legacy = !reached && !legacy && !unauthorized
		if errors.Is(err, errRestart) {
			b.Reset()
			continue
		}
		if reached && time.Since(began) > healthy {
			b.Reset()
		}
		wait := min(b.NextBackOff(), u.opts.MaxBackoff)
		if unauthorized { // a restart follows the authorization
			wait = u.opts.MaxBackoff
		}
		u.markFailed(err, wait)
		select {
		case <-time.After(wait):
		case <-u.restart:
		case <-ctx.Done():
		}
	}
}

// markFailed records why there is no session and when the next attempt follows.
func (u *supervisor) markFailed(err error, wait time.Duration) {
	state := Failed
	if errors.Is(err, errAuthorizationRequired) {
		state = AuthorizationRequired
	}
	u.setState(state, nil, err.Error())
	u.mu.Lock()
	level := slog.LevelWarn
	if u.loggedFailure == err.Error() { // already logged
		level = slog.LevelDebug
	}
	u.loggedFailure = err.Error()
	u.nextAttempt = time.Now().Add(wait)
	u.mu.Unlock()
	u.endFirstAttempt()
	u.opts.Logger.Log(context.Background(), level, "an upstream is down", "upstream", u.server.ID, "error", err, "retry_in", wait.Round(time.Millisecond).String())
}

// setState enters a state, with or without a session, and reports the kinds of changes. failure is
// the reason for the end of the last session, "" to keep the known one.
func (u *supervisor) setState(state State, s *session, failure string, kinds ...ChangeKind) {
	u.mu.Lock()
	was := u.current != nil
	if u.state != state {
		u.state, u.since = state, time.Now()
	}
	u.current = s
	switch {
	case s != nil:
		u.failure, u.loggedFailure = "", ""
	case failure != "":
		u.failure = failure
	case state == Starting:
		u.starts++
	}
	u.mu.Unlock()
	if was && s == nil {
		kinds = []ChangeKind{Down}
	}
	for _, k := range kinds {
		u.notify(Change{Server: u.server.ID, Kind: k})
	}
}

// serve runs one session. reached reports whether it became ready; the error is why it ended.
func (u *supervisor) serve(ctx context.Context, legacy bool) (reached bool, err error) {
	u.setState(Starting, nil, "")
	select {
	case <-u.restart: // this is the restart
	default:
	}
	launch, err := u.server.resolve(u.opts.LookupEnv, u.opts.IsProtected)
	if err != nil {
		return false, err
	}
	starting, cancel := context.WithTimeout(ctx, u.opts.StartTimeout)
	defer cancel()
	lines := newStderrLines()
	u.mu.Lock()
	u.stderr = lines
	u.mu.Unlock()
	s, err := open(starting, launch, u.opts, legacy, lines, u.notify)
	if err != nil {
		return false, err
	}
	defer func() {
		if ctx.Err() != nil { // marked before it is closed, so that no new request starts in it
			u.setState(Stopped, nil, "")
		} else {
			u.setState(Failed, nil, err.Error())
		}
		s.close()
	}()
	first, err := s.readCatalogue(starting, &catalogue{}, Tools, Resources, Prompts)
	if err != nil {
		return false, s.describeEnd(err)
	}
	cancel()
	s.catalogue.Store(first)
	u.setState(Ready, s, "", Up)
	u.endFirstAttempt()
	u.opts.Logger.Info("an upstream is ready", "upstream", u.server.ID, "tools", len(first.tools.items))
	u.resubscribe(ctx, s)
	return true, u.follow(ctx, s)
}

// errRestart is the reason for the end of a session after which the next one starts at once.
var errRestart = errors.New("a restart was requested")

// checkTimeout limits the response to a check.
const checkTimeout = 10 * time.Second

// follow keeps the catalogue up to date until the session ends, and returns the reason.
func (u *supervisor) follow(ctx context.Context, s *session) error {
	relist := time.NewTicker(relistInterval)
	defer relist.Stop()
	var settled <-chan time.Time
	wait := u.opts.ChangeDelay
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return s.describeEnd(errors.New("the connection was lost"))
		case <-u.restart:
			return errRestart
		case <-s.checkRequested:
			if err := s.check(ctx); err != nil {
				return s.describeEnd(err)
			}
		case <-relist.C:
			s.staleLists.Add(s.unannouncedLists()...)
			if s.http != nil {
				s.checkRequested.Set() // an address does not announce its end
			}
		case <-s.staleLists.Signal:
			if settled == nil {
				settled = time.After(wait)
			}
		case <-settled:
			settled = nil
			began := time.Now()
			u.refresh(ctx, s)
			wait = max(u.opts.ChangeDelay, 5*time.Since(began)) // limits reading to a sixth of the time
		}
	}
}

// unannouncedLists returns the lists whose changes the upstream does not announce.
func (s *session) unannouncedLists() []ChangeKind {
	has := s.client.InitializeResult().Capabilities
	if has == nil {
		return nil
	}
	deaf := s.notificationsLost.Load()
	var kinds []ChangeKind
	if has.Tools != nil && (deaf || !has.Tools.ListChanged) {
		kinds = append(kinds, Tools)
	}
	if has.Resources != nil && (deaf || !has.Resources.ListChanged) {
		kinds = append(kinds, Resources)
	}
	if has.Prompts != nil && (deaf || !has.Prompts.ListChanged) {
		kinds = append(kinds, Prompts)
	}
	return kinds
}

// refresh reads the stale lists again. If that fails, the catalogue stays as it was.
func (u *supervisor) refresh(ctx context.Context, s *session) {
	old := s.catalogue.Load()
	fresh, err := s.readCatalogue(ctx, old, s.staleLists.Take()...)
	if err != nil {
		u.opts.Logger.Warn("the lists of an upstream cannot be read again", "upstream", u.server.ID, "error", err)
		s.checkRequested.Set()
		return
	}
	var changed []ChangeKind
	for kind, differs := range map[ChangeKind]bool{
		Tools:     !reflect.DeepEqual(old.tools, fresh.tools),
		Resources: !reflect.DeepEqual(old.resources, fresh.resources) || !reflect.DeepEqual(old.templates, fresh.templates),
		Prompts:   !reflect.DeepEqual(old.prompts, fresh.prompts),
	} {
		if differs {
			changed = append(changed, kind)
		}
	}
	if len(changed) > 0 {
		s.catalogue.Store(fresh)
		u.setState(Ready, s, "", changed...)
	}
}

// check sends a ping. Any response counts, because the newest version has no ping.
func (s *session) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(checkTimeout, s.launch.timeout()))
	defer cancel()
	_, err := guard(func() (struct{}, error) { return struct{}{}, s.client.Ping(ctx, nil) })
	var rpc *jsonrpc.Error
	if err == nil || errors.As(err, &rpc) && rpc.Code != codeRejected {
		if s.http != nil {
			s.http.base.required.Store(nil) // the server accepts requests
		}
		return nil
	}
	return fmt.Errorf("it does not respond any more: %w", err)
}
