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

// definitionLoader brings the upstreams of the file and of the database to the manager, also when they
// change: the file by hand, the database by another replica. It hears of approvals and classes
// too.
type definitionLoader struct {
	*lifecycle.Loop
	svc  *Service
	path string

	// applying is held by who takes definitions over.
	applying     sync.Mutex
	loadedFile   os.FileInfo // of the file
	storedFailed bool        // the last try to take over what was added failed
}

func newDefinitionLoader(h *Service, path string) *definitionLoader {
	l := &definitionLoader{svc: h, path: path}
	l.Loop = lifecycle.NewLoop(l.run)
	return l
}

func (l *definitionLoader) run(ctx context.Context) {
	changes, stop := l.watch(ctx)
	defer stop()
	tick := time.NewTicker(filePollInterval)
	defer tick.Stop()
	l.loadStored(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			l.loadStored(ctx)
		case <-tick.C:
			l.reloadChanged(ctx)
		}
	}
}

// watch has one when upstreams were added or removed, on whichever replica. What is said
// about a tool has its server's looked at again.
func (l *definitionLoader) watch(ctx context.Context) (<-chan struct{}, func()) {
	out, done := make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(done)
		l.followEvents(ctx, out)
	}()
	return out, func() {
		cancel()
		<-done
	}
}

func (l *definitionLoader) followEvents(ctx context.Context, out chan<- struct{}) {
	sub, err := l.svc.feed.SubscribeNew(ctx)
	for err != nil && ctx.Err() == nil {
		wait := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
		sub, err = l.svc.feed.SubscribeNew(ctx)
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
				l.svc.refreshSoon(server)
				continue
			}
			nudge()
		}
	}
}

// loadStored takes over what was added at run time. What cannot be read now is tried again.
func (l *definitionLoader) loadStored(ctx context.Context) {
	l.applying.Lock()
	defer l.applying.Unlock()
	kept, err := l.svc.store.Upstreams(ctx)
	if ctx.Err() != nil {
		return
	}
	if l.storedFailed = err != nil; l.storedFailed {
		l.svc.log.Warn("the upstreams that were added cannot be read", "error", err)
		return
	}
	var servers []upstream.Server
	for _, u := range kept {
		server, err := l.svc.parseUpstream(u.ID, u.Config)
		if err != nil {
			l.svc.log.Warn("an upstream that was added is not started", "upstream", u.ID, "error", err)
			continue
		}
		servers = append(servers, server)
	}
	applied, err := l.svc.upstreams.Apply(ctx, apiSource, servers)
	for _, id := range applied.Stopped {
		l.svc.refreshSoon(id)
	}
	if err != nil {
		l.svc.log.Warn("some upstreams cannot be started", "error", err)
	}
}

// reloadChanged loads the file where it is another than before, and what could not be loaded.
func (l *definitionLoader) reloadChanged(ctx context.Context) {
	if l.hasStoredFailed() {
		l.loadStored(ctx)
	}
	if !l.fileChanged() {
		return
	}
	if err := l.loadFile(ctx); err != nil {
		l.svc.log.Warn("the file of upstreams is not taken over; what it said before stays", "file", l.path, "error", err)
	}
}

func (l *definitionLoader) hasStoredFailed() bool {
	l.applying.Lock()
	defer l.applying.Unlock()
	return l.storedFailed
}

// fileChanged reports whether the file is another than the one that was loaded.
func (l *definitionLoader) fileChanged() bool {
	if l.path == "" {
		return false
	}
	l.applying.Lock()
	defer l.applying.Unlock()
	now, err := os.Stat(l.path)
	return err == nil && (l.loadedFile == nil || !now.ModTime().Equal(l.loadedFile.ModTime()) || now.Size() != l.loadedFile.Size())
}

// loadFile takes over the file. A file with a mistake changes nothing.
func (l *definitionLoader) loadFile(ctx context.Context) error {
	if l.path == "" {
		return nil
	}
	l.applying.Lock()
	defer l.applying.Unlock()
	info, err := os.Stat(l.path)
	if err != nil {
		return l.fileError(err)
	}
	l.loadedFile = info
	text, err := os.ReadFile(l.path)
	if err != nil {
		return l.fileError(err)
	}
	servers, warnings, err := upstream.ParseServers(text)
	if err != nil {
		return l.fileError(err)
	}
	for _, s := range servers {
		if s.ID == agentCardsServer || s.ID == cometServer {
			return errs.New(errs.InvalidRequest, "%s: the id %q is comet's own; choose another", l.path, s.ID)
		}
	}
	for _, s := range servers {
		if other, ok := l.svc.status(s.ID); ok && other.Source != l.path {
			return errs.New(errs.Conflict, "the file of upstreams %s: the id %q is that of an upstream that was added; remove one of them", l.path, s.ID)
		}
	}
	for _, w := range warnings {
		l.svc.log.Warn("the file of upstreams", "file", l.path, "warning", w)
	}
	applied, err := l.svc.upstreams.Apply(ctx, l.path, servers)
	for _, id := range applied.Stopped {
		l.svc.refreshSoon(id)
	}
	return toErrs(err)
}

// fileError is why the file is not taken over: one sentence that names it.
func (l *definitionLoader) fileError(err error) error {
	var system *os.PathError
	if errors.As(err, &system) {
		return errs.Wrap(errs.InvalidRequest, err, "the file of upstreams %s cannot be read: %v", l.path, system.Err)
	}
	return errs.New(errs.InvalidRequest, "the file of upstreams %s: %s", l.path, detailOf(err))
}

// ReloadUpstreams takes over the file now, or says what is wrong with it.
func (h *Service) ReloadUpstreams(ctx context.Context) error { return h.loader.loadFile(ctx) }
