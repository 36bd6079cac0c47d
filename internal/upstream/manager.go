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
)

// Manager holds the upstreams. It is a lifecycle.Service and safe for concurrent use;
// nothing but Stop waits for an upstream longer than it says.
type Manager struct {
	opts     Options
	notifier *changeNotifier

	mu        sync.RWMutex
	started   bool
	stopped   bool
	upstreams map[string]*upstream
	stopping  []*upstream    // taken out, not ended yet
	stops     sync.WaitGroup // of their ends
}

// New returns a manager without upstreams.
func New(o *Options) *Manager {
	m := &Manager{opts: o.orDefaults(), upstreams: map[string]*upstream{}}
	m.notifier = newChangeNotifier(m.opts.OnChange)
	return m
}

// Start begins to start the upstreams that are there and those that come. It waits for
// none of them.
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

// Stop ends every upstream at the same time, and returns when they have ended or ctx is
// done.
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

// find returns the upstream of that id.
func (m *Manager) find(id string) (*upstream, error) {
	m.mu.RLock()
	u := m.upstreams[id]
	m.mu.RUnlock()
	if u == nil {
		return nil, newError(KindUnknownServer, id, "does not exist")
	}
	return u, nil
}

// session returns the session of an upstream that is ready, or says why there is none. It
// waits for the first start, up to Options.Patience.
func (m *Manager) session(ctx context.Context, id string) (*ready, error) {
	u, err := m.find(id)
	if err != nil {
		return nil, err
	}
	if r := u.ready(); r != nil {
		return r, nil
	}
	patience := time.NewTimer(m.opts.FirstStartWait)
	defer patience.Stop()
	select {
	case <-u.firstAttempt:
	case <-patience.C:
	case <-ctx.Done():
		return nil, newError(KindCancelled, id, "was not asked: the caller has gone").withCause(ctx.Err())
	}
	if r := u.ready(); r != nil {
		return r, nil
	}
	return nil, u.unavailable()
}

func (u *upstream) ready() *ready {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.current
}

// unavailable says why there is no session.
func (u *upstream) unavailable() *Error {
	s := u.status()
	switch {
	case s.State == Disabled:
		return newError(KindDown, s.ID, "is disabled")
	case s.State == Stopped:
		return newError(KindDown, s.ID, "has been stopped")
	case s.Error != "":
		return newError(KindDown, s.ID, "is down: %s", s.Error)
	}
	return newError(KindDown, s.ID, "is being started")
}

// Servers describes all upstreams in the order of their ids.
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

// Server describes one upstream.
func (m *Manager) Server(id string) (Status, error) {
	u, err := m.find(id)
	if err != nil {
		return Status{}, err
	}
	return u.status(), nil
}

// Restart ends the session of an upstream, or the wait for the next one, and starts
// another. It returns at once.
func (m *Manager) Restart(id string) error {
	u, err := m.find(id)
	if err != nil {
		return err
	}
	select {
	case u.restart <- struct{}{}:
	default:
	}
	return nil
}

// Tools returns the tools of an upstream in the order of their names: none unless it is
// ready. Nobody may change them.
func (m *Manager) Tools(id string) []*mcp.Tool {
	return itemsOf(m, id, func(c *catalogue) []*mcp.Tool { return c.tools.items })
}

// Resources is Tools for resources, in the order of their URIs.
func (m *Manager) Resources(id string) []*mcp.Resource {
	return itemsOf(m, id, func(c *catalogue) []*mcp.Resource { return c.resources.items })
}

// ResourceTemplates is Tools for the templates of resources, in their own order.
func (m *Manager) ResourceTemplates(id string) []*mcp.ResourceTemplate {
	return itemsOf(m, id, func(c *catalogue) []*mcp.ResourceTemplate { return c.templates.items })
}

// Prompts is Tools for prompts.
func (m *Manager) Prompts(id string) []*mcp.Prompt {
	return itemsOf(m, id, func(c *catalogue) []*mcp.Prompt { return c.prompts.items })
}

func itemsOf[T any](m *Manager, id string, of func(*catalogue) []T) []T {
	u, err := m.find(id)
	if err != nil {
		return nil
	}
	r := u.ready()
	if r == nil {
		return nil
	}
	return of(r.catalogue)
}

// ApplyResult is what Apply did, ids in order.
type ApplyResult struct{ Started, Changed, Stopped, Unchanged []string }

// Apply makes servers all the upstreams of one source, e.g. a file: new ones are started,
// changed ones started anew, missing ones stopped, and the others not touched. It waits
// for none of that. A definition that breaks a rule or has the id of another source's is
// named in the error and otherwise left out; what has its id in this source stays.
func (m *Manager) Apply(_ context.Context, source string, servers []Server) (ApplyResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out ApplyResult
	var failures []error
	wanted := map[string]bool{}
	for _, s := range servers {
		if wanted[s.ID] {
			failures = append(failures, newError(KindConflict, s.ID, "is defined twice"))
			continue
		}
		wanted[s.ID] = true
		failures = append(failures, m.put(source, s, &out))
	}
	for id, u := range m.upstreams {
		if u.source == source && !wanted[id] {
			m.remove(u)
			out.Stopped = append(out.Stopped, id)
		}
	}
	for _, ids := range [][]string{out.Started, out.Changed, out.Stopped, out.Unchanged} {
		slices.Sort(ids)
	}
	return out, errors.Join(failures...)
}

// Put adds one upstream to a source, or changes it there.
func (m *Manager) Put(_ context.Context, source string, s Server) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.put(source, s, &ApplyResult{})
}

// Remove stops one upstream of a source and forgets it. It does not wait for its end.
func (m *Manager) Remove(_ context.Context, source, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.upstreams[id]
	switch {
	case u == nil:
		return newError(KindUnknownServer, id, "does not exist")
	case u.source != source:
		return newError(KindConflict, id, "comes from %s and can be removed there only", u.source)
	}
	m.remove(u)
	return nil
}

// put adds, changes or keeps one upstream; m.mu is held.
func (m *Manager) put(source string, s Server, out *ApplyResult) error {
	if err := s.Validate(); err != nil {
		return err
	}
	old := m.upstreams[s.ID]
	switch {
	case m.stopped:
		return newError(KindDown, s.ID, "cannot be started: comet is being stopped")
	case old == nil && len(m.upstreams) >= MaxServers:
		return newError(KindInvalid, s.ID, "is one too many: there are %d", MaxServers)
	case old != nil && old.source != source:
		return newError(KindConflict, s.ID, "is defined by %s already", old.source)
	case old != nil && old.server.equal(s):
		out.Unchanged = append(out.Unchanged, s.ID)
		return nil
	case old != nil:
		m.remove(old)
		out.Changed = append(out.Changed, s.ID)
	default:
		out.Started = append(out.Started, s.ID)
	}
	u := newUpstream(s, source, &m.opts, m.notifier.enqueue, m.stoppingWithID(s.ID))
	m.upstreams[s.ID] = u
	if m.started {
		_ = u.Start(context.Background()) // it never fails
	}
	return nil
}

// stoppingWithID returns what had an id and is ending still.
func (m *Manager) stoppingWithID(id string) *upstream {
	for _, u := range slices.Backward(m.stopping) {
		if u.server.ID == id {
			return u
		}
	}
	return nil
}

// remove stops an upstream without waiting; Stop does. m.mu is held.
func (m *Manager) remove(u *upstream) {
	delete(m.upstreams, u.server.ID)
	m.stopping = append(m.stopping, u)
	m.stops.Go(func() {
		_ = u.Stop(context.Background()) // its context does not end
		m.mu.Lock()
		defer m.mu.Unlock()
		m.stopping = slices.DeleteFunc(m.stopping, func(x *upstream) bool { return x == u })
	})
}
