package upstream

import (
	"context"
	"errors"
	"slices"
)

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
