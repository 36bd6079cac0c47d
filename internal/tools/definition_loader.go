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

// definitionLoader applies the upstreams of the file and of the database to the manager, also
// when they change: the file by hand, the database by another replica. It also follows approvals
// and classifications of tools.
type definitionLoader struct {
	*lifecycle.Loop
	svc  *Service
	path string

	// applying serialises changes of definitions.
	applying     sync.Mutex
	loadedFile   os.FileInfo // of the last load
	storedFailed bool        // the last read of stored definitions failed
}

func newDefinitionLoader(svc *Service, path string) *definitionLoader {
	l := &definitionLoader{svc: svc, path: path}
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

// watch returns a channel that receives when a replica added or removed an upstream. Events of a
// tool refresh its server.
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
	nudge() // the subscription has no events of the time before it
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

// loadStored applies the definitions of the database. A failed read is retried.
func (l *definitionLoader) loadStored(ctx context.Context) {
	l.applying.Lock()
	defer l.applying.Unlock()
	stored, err := l.svc.store.Upstreams(ctx)
	if ctx.Err() != nil {
		return
	}
	if l.storedFailed = err != nil; l.storedFailed {
		l.svc.log.Warn("read the upstreams of the API; retrying", "error", err)
		return
	}
	var servers []upstream.Server
	for _, u := range stored {
		server, err := l.svc.parseUpstream(u.ID, u.Config)
		if err != nil {
			l.svc.log.Warn("an upstream of the API was not started", "upstream", u.ID, "error", err)
			continue
		}
		servers = append(servers, server)
	}
	applied, err := l.svc.upstreams.Apply(ctx, apiSource, servers)
	for _, id := range applied.Stopped {
		l.svc.refreshSoon(id)
	}
	if err != nil {
		l.svc.log.Warn("start upstreams", "error", err)
	}
}

// reloadChanged loads a changed file, and retries a failed read of the database.
func (l *definitionLoader) reloadChanged(ctx context.Context) {
	if l.hasStoredFailed() {
		l.loadStored(ctx)
	}
	if !l.fileChanged() {
		return
	}
	if err := l.loadFile(ctx); err != nil {
		l.svc.log.Warn("the upstreams file is invalid; the earlier definitions stay", "file", l.path, "error", err)
	}
}

func (l *definitionLoader) hasStoredFailed() bool {
	l.applying.Lock()
	defer l.applying.Unlock()
	return l.storedFailed
}

// fileChanged reports whether the file differs from the loaded one.
func (l *definitionLoader) fileChanged() bool {
	if l.path == "" {
		return false
	}
	l.applying.Lock()
	defer l.applying.Unlock()
	now, err := os.Stat(l.path)
	return err == nil && (l.loadedFile == nil || !now.ModTime().Equal(l.loadedFile.ModTime()) || now.Size() != l.loadedFile.Size())
}

// loadFile applies the file. A file with a mistake changes nothing.
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
			return errs.New(errs.Conflict, "the upstreams file %s: the id %q is already used by an upstream of the API; remove one of them", l.path, s.ID)
		}
	}
	for _, w := range warnings {
		l.svc.log.Warn("the upstreams file", "file", l.path, "warning", w)
	}
	applied, err := l.svc.upstreams.Apply(ctx, l.path, servers)
	for _, id := range applied.Stopped {
		l.svc.refreshSoon(id)
	}
	return toErrs(err)
}

// fileError returns an error of the file that names it.
func (l *definitionLoader) fileError(err error) error {
	var system *os.PathError
	if errors.As(err, &system) {
		return errs.Wrap(errs.InvalidRequest, err, "the upstreams file %s cannot be read: %v", l.path, system.Err)
	}
	return errs.New(errs.InvalidRequest, "the upstreams file %s: %s", l.path, detailOf(err))
}

// ReloadUpstreams applies the upstreams file now, or returns what is wrong with it.
func (svc *Service) ReloadUpstreams(ctx context.Context) error { return svc.loader.loadFile(ctx) }
