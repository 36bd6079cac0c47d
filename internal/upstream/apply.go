package upstream

import (
	"context"
	"errors"
	"slices"
)

// Applied is what Apply did, ids in order.
type Applied struct{ Started, Changed, Stopped, Unchanged []string }

// Apply makes servers all the upstreams of one source, e.g. a file: new ones are started,
// changed ones started anew, missing ones stopped, and the others not touched. It waits
// for none of that. A definition that breaks a rule or has the id of another source's is
// named in the error and otherwise left out; what has its id in this source stays.
func (m *Manager) Apply(_ context.Context, source string, servers []Server) (Applied, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out Applied
	var failures []error
	wanted := map[string]bool{}
	for _, s := range servers {
		if wanted[s.ID] {
			failures = append(failures, fail(KindConflict, s.ID, "is defined twice"))
			continue
		}
		wanted[s.ID] = true
		failures = append(failures, m.put(source, s, &out))
	}
	for id, u := range m.all {
		if u.source == source && !wanted[id] {
			m.takeOut(u)
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
	return m.put(source, s, &Applied{})
}

// Remove stops one upstream of a source and forgets it. It does not wait for its end.
func (m *Manager) Remove(_ context.Context, source, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.all[id]
	switch {
	case u == nil:
		return fail(KindUnknownServer, id, "does not exist")
	case u.source != source:
		return fail(KindConflict, id, "comes from %s and can be removed there only", u.source)
	}
	m.takeOut(u)
	return nil
}

// put adds, changes or keeps one upstream; m.mu is held.
func (m *Manager) put(source string, s Server, out *Applied) error {
	if err := s.Validate(); err != nil {
		return err
	}
	old := m.all[s.ID]
	switch {
	case m.stopped:
		return fail(KindDown, s.ID, "cannot be started: comet is being stopped")
	case old == nil && len(m.all) >= MaxServers:
		return fail(KindInvalid, s.ID, "is one too many: there are %d", MaxServers)
	case old != nil && old.source != source:
		return fail(KindConflict, s.ID, "is defined by %s already", old.source)
	case old != nil && old.server.same(s):
		out.Unchanged = append(out.Unchanged, s.ID)
		return nil
	case old != nil:
		m.takeOut(old)
		out.Changed = append(out.Changed, s.ID)
	default:
		out.Started = append(out.Started, s.ID)
	}
	u := newUpstream(s, source, &m.opts, m.teller.add, m.last(s.ID))
	m.all[s.ID] = u
	if m.started {
		_ = u.Start(context.Background()) // it never fails
	}
	return nil
}

// last returns what had an id and is ending still.
func (m *Manager) last(id string) *upstream {
	for _, u := range slices.Backward(m.leaving) {
		if u.server.ID == id {
			return u
		}
	}
	return nil
}

// takeOut stops an upstream without waiting; Stop does. m.mu is held.
func (m *Manager) takeOut(u *upstream) {
	delete(m.all, u.server.ID)
	m.leaving = append(m.leaving, u)
	m.partings.Go(func() {
		_ = u.Stop(context.Background()) // its context does not end
		m.mu.Lock()
		defer m.mu.Unlock()
		m.leaving = slices.DeleteFunc(m.leaving, func(x *upstream) bool { return x == u })
	})
}
