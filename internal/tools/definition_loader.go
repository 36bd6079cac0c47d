package tools

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/upstream"
)

// definitionLoader applies the upstreams of the file and of the database to the manager, also when
// they change by hand or by another replica, and follows approvals and classifications of tools.
type definitionLoader struct {
	svc  *Service
	path string

	// applying serialises changes of definitions.
	applying   sync.Mutex
	loadedFile os.FileInfo // of the last load
	poller     *background.PollLoop
	follower   *background.PollLoop
	// storedChanged says that the database may have other definitions than were loaded.
	storedChanged atomic.Bool
}

func newDefinitionLoader(svc *Service, path string) *definitionLoader {
	l := &definitionLoader{svc: svc, path: path}
	l.poller = background.NewPollLoop(background.PollOptions{Task: "reading the upstreams of the API", Logger: svc.log}, l.poll)
	l.follower = background.NewPollLoop(background.PollOptions{Task: "following the events of upstreams", Logger: svc.log}, l.followEvents)
	l.storedChanged.Store(true)
	return l
}

// poll reads the file, and the database when another replica has changed it.
func (l *definitionLoader) poll(ctx context.Context) (time.Duration, error) {
	if l.fileChanged() {
		if err := l.loadFile(ctx); err != nil {
			l.svc.log.Warn("the upstreams file is invalid; the earlier definitions stay", "file", l.path, "error", err)
		}
	}
	if l.storedChanged.Swap(false) {
		if err := l.loadStored(ctx); err != nil {
			l.storedChanged.Store(true)
			return 0, err
		}
	}
	return filePollInterval, nil
}

// followEvents has the database read again when a replica added or removed an upstream. Events of a
// tool refresh its server. It returns when it fails.
func (l *definitionLoader) followEvents(ctx context.Context) (time.Duration, error) {
	sub, err := l.svc.feed.SubscribeNew(ctx)
	if err != nil {
		return 0, err
	}
	sub.Only(events.UpstreamSaved, events.UpstreamRemoved, events.UpstreamAuthorized, events.ToolApproved, events.ToolClassified)
	for changed := true; ; { // the subscription has no events of the time before it
		if changed {
			l.storedChanged.Store(true)
			l.poller.Wake()
		}
		batch, err := sub.Next(ctx, 100)
		if err != nil {
			return 0, err
		}
		changed = false
		for _, e := range batch {
			if server, _, ok := splitID(e.Key); ok && strings.HasPrefix(string(e.Type), "tool.") {
				l.svc.stale.Add(server)
				continue
			}
			if e.Type == events.UpstreamAuthorized {
				l.applying.Lock() // FinishAuthorization restarts the upstreams that this replica authorizes
				l.svc.upstreams.StartAuthorized(e.Key)
				l.applying.Unlock()
			}
			changed = true
		}
	}
}

func (l *definitionLoader) loadStored(ctx context.Context) error {
	l.applying.Lock()
	defer l.applying.Unlock()
	stored, err := l.svc.store.Tools(ctx).Upstreams("")
	if err != nil {
		return err
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
	stopped, err := l.svc.upstreams.Apply(ctx, apiSource, servers)
	l.svc.stale.Add(stopped...)
	if err != nil {
		l.svc.log.Warn("start upstreams", "error", err)
	}
	return nil
}

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
		if l.svc.isOwnServer(s.ID) {
			return errs.New(errs.InvalidRequest, "%s: the id %q is comet's own; choose another", l.path, s.ID)
		}
	}
	for _, s := range servers {
		if other, ok := l.svc.upstreams.Server(s.ID); ok && other.Source != l.path {
			return errs.New(errs.Conflict, "the upstreams file %s: the id %q is already used by an upstream of the API; remove one of them", l.path, s.ID)
		}
	}
	for _, w := range warnings {
		l.svc.log.Warn("the upstreams file", "file", l.path, "warning", w)
	}
	stopped, err := l.svc.upstreams.Apply(ctx, l.path, servers)
	l.svc.stale.Add(stopped...)
	return err
}

// fileError returns an error of the file that names it.
func (l *definitionLoader) fileError(err error) error {
	if system, ok := errors.AsType[*os.PathError](err); ok {
		return errs.Wrap(errs.InvalidRequest, err, "the upstreams file %s cannot be read: %v", l.path, system.Err)
	}
	return errs.New(errs.InvalidRequest, "the upstreams file %s: %s", l.path, Detail(err))
}

// ReloadUpstreams applies the upstreams file now, or returns what is wrong with it.
func (svc *Service) ReloadUpstreams(ctx context.Context) error { return svc.loader.loadFile(ctx) }
