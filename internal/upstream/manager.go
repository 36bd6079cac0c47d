package upstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/upstream/oauth"
)

// Manager manages the upstreams. It is a background.Service and safe for concurrent use. Only Stop
// waits for an upstream without a limit of its own.
type Manager struct {
	opts Options
	// changes are delivered to OnChange by notifier in its own goroutine, so that a slow receiver
	// blocks no upstream. Equal pending changes are merged into the last one, so that the last
	// notification describes the current state.
	changes  *background.Pending[Change]
	notifier *background.Loop

	mu        sync.RWMutex
	started   bool
	stopped   bool
	upstreams map[string]*supervisor
	stopping  []*supervisor  // removed, but not ended yet
	stops     sync.WaitGroup // one for each of them
}

// New returns a manager without upstreams.
func New(o *Options) *Manager {
	m := &Manager{opts: o.orDefaults(), changes: background.NewPending[Change](), upstreams: map[string]*supervisor{}}
	m.notifier = background.NewLoop(m.notify)
	return m
}

// Start starts the upstreams, also those that are added later, and does not wait for them.
func (m *Manager) Start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started || m.stopped {
		return nil
	}
	m.started = true
	for _, u := range m.upstreams {
		_ = u.Start(ctx) // it never fails
	}
	return m.notifier.Start(ctx)
}

// Stop ends all upstreams concurrently. It returns when they have ended or ctx is done.
func (m *Manager) Stop(ctx context.Context) error {
	m.mu.Lock()
	m.stopped = true
	ending := append(slices.Collect(maps.Values(m.upstreams)), m.stopping...)
	m.mu.Unlock()
	failures := make([]error, len(ending))
	var all sync.WaitGroup
	for i, u := range ending {
		all.Go(func() { failures[i] = u.Stop(ctx) })
	}
	all.Wait()
	err := errors.Join(failures...)
	if err == nil {
		m.stops.Wait()
	}
	return errors.Join(err, m.notifier.Stop(ctx))
}

func (m *Manager) find(id string) (*supervisor, error) {
	m.mu.RLock()
	u := m.upstreams[id]
	m.mu.RUnlock()
	if u == nil {
		return nil, newError(errs.NotFound, id, "does not exist")
	}
	return u, nil
}

// readySession returns the session of a ready upstream, or an error with the reason. It waits for the
// first start up to Options.FirstStartWait.
func (m *Manager) readySession(ctx context.Context, id string) (*session, error) {
	u, err := m.find(id)
	if err != nil {
		return nil, err
	}
	if s := u.ready(); s != nil {
		return s, nil
	}
	select {
	case <-u.firstAttempt.Done():
	case <-time.After(m.opts.FirstStartWait):
	case <-ctx.Done():
		return nil, cancelled(id, "was not called: the caller has cancelled")
	}
	if s := u.ready(); s != nil {
		return s, nil
	}
	return nil, u.unavailable()
}

// ready returns the session, nil unless the upstream is ready.
func (u *supervisor) ready() *session {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.current
}

// unavailable returns the reason why the upstream has no session.
func (u *supervisor) unavailable() error {
	s := u.status()
	switch {
	case s.State == Disabled:
		return failure(ReasonDown, s.ID, "is disabled")
	case s.State == Stopped:
		return failure(ReasonDown, s.ID, "has been stopped")
	case s.Error != "":
		return failure(ReasonDown, s.ID, "is down: %s", s.Error)
	}
	return failure(ReasonDown, s.ID, "is starting")
}

// Servers returns the status of all upstreams, sorted by id.
func (m *Manager) Servers() []Status {
	m.mu.RLock()
	all := slices.Collect(maps.Values(m.upstreams))
	m.mu.RUnlock()
	out := make([]Status, len(all))
	for i, u := range all {
		out[i] = u.status()
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Server returns the status of one upstream, and whether it exists.
func (m *Manager) Server(id string) (Status, bool) {
	u, err := m.find(id)
	if err != nil {
		return Status{}, false
	}
	return u.status(), true
}

// Restart ends the session of an upstream or its wait, starts another and returns immediately.
func (m *Manager) Restart(id string) error {
	u, err := m.find(id)
	if err != nil {
		return err
	}
	u.restart.Set()
	return nil
}

// StartAuthorized starts a session of an upstream that waits for an authorization.
func (m *Manager) StartAuthorized(id string) {
	if u, err := m.find(id); err == nil {
		u.mu.Lock() // a start in progress continues
		defer u.mu.Unlock()
		if u.state == AuthorizationRequired {
			u.restart.Set()
		}
	}
}

// AuthorizationTarget returns what an authorization of an upstream is requested for, without RedirectURL.
func (m *Manager) AuthorizationTarget(id string) (oauth.Target, error) {
	u, err := m.find(id)
	if err != nil {
		return oauth.Target{}, err
	}
	if !u.server.usesOAuth() {
		return oauth.Target{}, newError(errs.Conflict, id, "is not authorized with OAuth: it is a program, or its definition contains its token")
	}
	s, err := u.server.resolve(m.opts.LookupEnv, m.opts.IsProtected)
	if err != nil {
		return oauth.Target{}, newError(errs.UpstreamFailed, id, "cannot be authorized: %v", err)
	}
	return oauth.Target{Address: s.URL, ClientID: s.OAuth.ClientID, ClientSecret: s.OAuth.ClientSecret, Scopes: s.OAuth.Scopes, Mask: s.secrets.mask}, nil
}

// Tools returns the tools of an upstream sorted by name, read only, none unless it is ready.
func (m *Manager) Tools(id string) []*mcp.Tool {
	return itemsOf(m, id, func(c *catalogue) []*mcp.Tool { return c.tools.items })
}

// Resources returns the resources of an upstream sorted by URI, none unless it is ready.
func (m *Manager) Resources(id string) []*mcp.Resource {
	return itemsOf(m, id, func(c *catalogue) []*mcp.Resource { return c.resources.items })
}

// ResourceTemplates returns the resource templates of an upstream, none unless it is ready.
func (m *Manager) ResourceTemplates(id string) []*mcp.ResourceTemplate {
	return itemsOf(m, id, func(c *catalogue) []*mcp.ResourceTemplate { return c.templates.items })
}

// Prompts returns the prompts of an upstream sorted by name, none unless it is ready.
func (m *Manager) Prompts(id string) []*mcp.Prompt {
	return itemsOf(m, id, func(c *catalogue) []*mcp.Prompt { return c.prompts.items })
}

func itemsOf[T any](m *Manager, id string, of func(*catalogue) []T) []T {
	u, err := m.find(id)
	if err != nil {
		return nil
	}
	s := u.ready()
	if s == nil {
		return nil
	}
	return of(s.catalogue.Load())
}

// Apply replaces all upstreams of one source, e.g. a file: it starts new ones, restarts changed
// ones, stops missing ones, and does not wait for any of them. A definition that is invalid, or
// whose id another source has, is left out and named in the error; an upstream of this source with
// the same id stays. stopped are the ids of the missing ones.
func (m *Manager) Apply(_ context.Context, source string, servers []Server) (stopped []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var failures []error
	wanted := map[string]bool{}
	for _, s := range servers {
		if wanted[s.ID] {
			failures = append(failures, newError(errs.Conflict, s.ID, "is defined twice"))
			continue
		}
		wanted[s.ID] = true
		failures = append(failures, m.put(source, s))
	}
	for id, u := range m.upstreams {
		if u.source == source && !wanted[id] {
			m.remove(u)
			stopped = append(stopped, id)
		}
	}
	return stopped, errors.Join(failures...)
}

// Put adds one upstream to a source, or changes it.
func (m *Manager) Put(_ context.Context, source string, s Server) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.put(source, s)
}

// Remove stops and removes one upstream of a source. It does not wait for its end.
func (m *Manager) Remove(_ context.Context, source, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.upstreams[id]
	switch {
	case u == nil:
		return newError(errs.NotFound, id, "does not exist")
	case u.source != source:
		return newError(errs.Conflict, id, "comes from %s and can be removed there only", u.source)
	}
	m.remove(u)
	return nil
}

// put adds, changes or keeps one upstream. The caller holds m.mu.
func (m *Manager) put(source string, s Server) error {
	if err := s.Validate(); err != nil {
		return err
	}
	old := m.upstreams[s.ID]
	switch {
	case m.stopped:
		return newError(errs.Unavailable, s.ID, "cannot be started: comet is stopping")
	case old == nil && len(m.upstreams) >= MaxServers:
		return newError(errs.InvalidRequest, s.ID, "exceeds the limit of %d upstreams", MaxServers)
	case old != nil && old.source != source:
		return newError(errs.Conflict, s.ID, "is already defined by %s", old.source)
	case old != nil && old.server.equal(s):
		return nil
	case old != nil:
		m.remove(old)
	}
	var before *supervisor
	for _, u := range m.stopping { // the last one with the id counts
		if u.server.ID == s.ID {
			before = u
		}
	}
	u := newSupervisor(s, source, &m.opts, m.enqueue, before)
	m.upstreams[s.ID] = u
	if m.started {
		_ = u.Start(context.Background()) // it never fails
	}
	return nil
}

// remove stops an upstream without waiting for its end; Stop waits. The caller holds m.mu.
func (m *Manager) remove(u *supervisor) {
	delete(m.upstreams, u.server.ID)
	m.stopping = append(m.stopping, u)
	m.stops.Go(func() {
		_ = u.Stop(context.Background()) // its context does not end
		m.mu.Lock()
		defer m.mu.Unlock()
		m.stopping = slices.DeleteFunc(m.stopping, func(x *supervisor) bool { return x == u })
	})
}

// maxPending limits the distinct changes that wait; further updates of resources are dropped.
const maxPending = 10_000

func (m *Manager) enqueue(c Change) {
	if c.Kind != ResourceUpdated || m.changes.Len() < maxPending {
		m.changes.Add(c)
	}
}

// notify delivers changes until ctx ends, then those that are still pending.
func (m *Manager) notify(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-m.changes.Signal:
		case <-ctx.Done():
		}
		for _, c := range m.changes.Take() {
			m.opts.OnChange(c)
		}
	}
}
