package tools

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/internal/lifecycle"
	"comet/internal/upstream"
	"comet/models"
)

// loader brings the upstreams of the file and of the database to the manager, also when they
// change: the file by hand, the database by another replica. It hears of approvals and classes
// too.
type loader struct {
	*lifecycle.Loop
	h    *Service
	path string

	// loading is held by who takes definitions over.
	loading sync.Mutex
	seen    os.FileInfo // of the file
	missed  bool        // the last try to take over what was added failed
}

func newLoader(h *Service, path string) *loader {
	l := &loader{h: h, path: path}
	l.Loop = lifecycle.NewLoop(l.run)
	return l
}

func (l *loader) run(ctx context.Context) {
	changes, stop := l.changes(ctx)
	defer stop()
	tick := time.NewTicker(lookAtFile)
	defer tick.Stop()
	l.loadAdded(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			l.loadAdded(ctx)
		case <-tick.C:
			l.lookAgain(ctx)
		}
	}
}

// changes has one when upstreams were added or removed, on whichever replica. What is said
// about a tool has its server's looked at again.
func (l *loader) changes(ctx context.Context) (<-chan struct{}, func()) {
	out, done := make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(done)
		l.follow(ctx, out)
	}()
	return out, func() {
		cancel()
		<-done
	}
}

func (l *loader) follow(ctx context.Context, out chan<- struct{}) {
	sub, err := l.h.feed.SubscribeNew(ctx)
	for err != nil && ctx.Err() == nil {
		wait := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
		sub, err = l.h.feed.SubscribeNew(ctx)
	}
	if err != nil {
		return
	}
	sub.Only(models.EventUpstreamSaved, models.EventUpstreamRemoved, models.EventToolApproved, models.EventToolClassified)
	nudge := func() {
		select {
		case out <- struct{}{}:
		default:
		}
	}
	nudge() // what was added just before is told by nobody
	for {
		batch, err := sub.Next(ctx, 100)
		if err != nil {
			return
		}
		for _, e := range batch {
			if server, _, ok := splitID(e.Key); ok && strings.HasPrefix(string(e.Type), "tool.") {
				l.h.refreshSoon(server)
				continue
			}
			nudge()
		}
	}
}

// loadAdded takes over what was added at run time. What cannot be read now is tried again.
func (l *loader) loadAdded(ctx context.Context) {
	l.loading.Lock()
	defer l.loading.Unlock()
	kept, err := l.h.store.Upstreams(ctx)
	if ctx.Err() != nil {
		return
	}
	if l.missed = err != nil; l.missed {
		l.h.log.Warn("the upstreams that were added cannot be read", "error", err)
		return
	}
	var servers []upstream.Server
	for _, u := range kept {
		server, err := l.h.defined(u.ID, u.Config)
		if err != nil {
			l.h.log.Warn("an upstream that was added is not started", "upstream", u.ID, "error", err)
			continue
		}
		servers = append(servers, server)
	}
	applied, err := l.h.upstreams.Apply(ctx, addedSource, servers)
	for _, id := range applied.Stopped {
		l.h.refreshSoon(id)
	}
	if err != nil {
		l.h.log.Warn("some upstreams cannot be started", "error", err)
	}
}

// lookAgain loads the file where it is another than before, and what could not be loaded.
func (l *loader) lookAgain(ctx context.Context) {
	if l.again() {
		l.loadAdded(ctx)
	}
	if !l.changed() {
		return
	}
	if err := l.load(ctx); err != nil {
		l.h.log.Warn("the file of upstreams is not taken over; what it said before stays", "file", l.path, "error", err)
	}
}

func (l *loader) again() bool {
	l.loading.Lock()
	defer l.loading.Unlock()
	return l.missed
}

// changed reports whether the file is another than the one that was loaded.
func (l *loader) changed() bool {
	if l.path == "" {
		return false
	}
	l.loading.Lock()
	defer l.loading.Unlock()
	now, err := os.Stat(l.path)
	return err == nil && (l.seen == nil || !now.ModTime().Equal(l.seen.ModTime()) || now.Size() != l.seen.Size())
}

// load takes over the file. A file with a mistake changes nothing.
func (l *loader) load(ctx context.Context) error {
	if l.path == "" {
		return nil
	}
	l.loading.Lock()
	defer l.loading.Unlock()
	info, err := os.Stat(l.path)
	if err != nil {
		return l.mistake(err)
	}
	l.seen = info
	text, err := os.ReadFile(l.path)
	if err != nil {
		return l.mistake(err)
	}
	servers, warnings, err := upstream.ParseServers(text)
	if err != nil {
		return l.mistake(err)
	}
	for _, s := range servers {
		if s.ID == agentCards || s.ID == own {
			return errs.New(errs.InvalidRequest, "%s: the id %q is comet's own; choose another", l.path, s.ID)
		}
	}
	for _, s := range servers {
		if other, ok := l.h.status(s.ID); ok && other.Source != l.path {
			return errs.New(errs.Conflict, "the file of upstreams %s: the id %q is that of an upstream that was added; remove one of them", l.path, s.ID)
		}
	}
	for _, w := range warnings {
		l.h.log.Warn("the file of upstreams", "file", l.path, "warning", w)
	}
	applied, err := l.h.upstreams.Apply(ctx, l.path, servers)
	for _, id := range applied.Stopped {
		l.h.refreshSoon(id)
	}
	return asErrs(err)
}

// mistake is why the file is not taken over: one sentence that names it.
func (l *loader) mistake(err error) error {
	var system *os.PathError
	if errors.As(err, &system) {
		return errs.Wrap(errs.InvalidRequest, err, "the file of upstreams %s cannot be read: %v", l.path, system.Err)
	}
	return errs.New(errs.InvalidRequest, "the file of upstreams %s: %s", l.path, problemOf(err))
}

// ReloadUpstreams takes over the file now, or says what is wrong with it.
func (h *Service) ReloadUpstreams(ctx context.Context) error { return h.loader.load(ctx) }
