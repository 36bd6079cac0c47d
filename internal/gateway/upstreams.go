package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/lifecycle"
	"comet/internal/upstream"
	"comet/models"
	"comet/store"
)

const (
	// addedSource is where upstreams come from that were added at run time; those of a file
	// come from its path.
	addedSource = "api"
	// lookAtFile is how often the file is looked at for changes.
	lookAtFile = 2 * time.Second
	// maxConfig is how long the definition of an upstream may be, in bytes.
	maxConfig = 64 << 10
)

// Upstreams returns how all upstreams stand, in the order of their ids.
func (g *Gateway) Upstreams() []upstream.Status { return g.upstreams.Servers() }

// Upstream returns how one stands, or errs.NotFound.
func (g *Gateway) Upstream(id string) (upstream.Status, error) {
	s, ok := g.status(id)
	if !ok {
		return s, errs.New(errs.NotFound, "there is no upstream %q", clip(id))
	}
	return s, nil
}

// PutUpstream adds an upstream, or changes one that was added. config is an entry of
// "mcpServers"; secrets are named in it, ${NAME} or ${file:/path}, and not said. It returns
// errs.InvalidRequest for what is not such an entry, and errs.Conflict for an id of the file.
func (g *Gateway) PutUpstream(ctx context.Context, by models.Principal, id string, config json.RawMessage) (models.Upstream, error) {
	u := models.Upstream{ID: id, Config: config, CreatedBy: by.Name}
	server, err := g.defined(id, config)
	if err != nil {
		return u, err
	}
	if s, known := g.status(id); known && s.Source != addedSource {
		return u, errs.New(errs.Conflict, "the upstream %q is defined by %s; change it there", id, s.Source)
	}
	err = g.store.Write(ctx, func(tx *store.Tx) error {
		if err := tx.SaveUpstream(&u); err != nil {
			return err
		}
		return tx.Emit(models.EventUpstreamSaved, id, models.UpstreamChanged{ID: id, Actor: by.Name})
	})
	if err != nil {
		return u, err
	}
	return u, asErrs(g.upstreams.Put(ctx, addedSource, server))
}

// RemoveUpstream removes one that was added, with what was approved of its tools.
func (g *Gateway) RemoveUpstream(ctx context.Context, by models.Principal, id string) error {
	s, known := g.status(id)
	if known && s.Source != addedSource {
		return errs.New(errs.Conflict, "the upstream %q is defined by %s; remove it there", id, s.Source)
	}
	err := g.store.Write(ctx, func(tx *store.Tx) error {
		if err := tx.DropUpstream(id); err != nil {
			return err
		}
		if err := tx.DropToolDefinitions(id); err != nil {
			return err
		}
		return tx.Emit(models.EventUpstreamRemoved, id, models.UpstreamChanged{ID: id, Actor: by.Name})
	})
	if err == nil && known {
		err = asErrs(g.upstreams.Remove(ctx, addedSource, id))
		g.refreshSoon(id)
	}
	return err
}

// RestartUpstream starts an upstream anew.
func (g *Gateway) RestartUpstream(id string) error {
	if _, err := g.Upstream(id); err != nil {
		return err
	}
	return asErrs(g.upstreams.Restart(id))
}

// ToolDefinitions returns what is known about the tools of an upstream.
func (g *Gateway) ToolDefinitions(ctx context.Context, id string) ([]models.ToolDefinition, error) {
	list, err := g.store.ToolDefinitions(ctx, id)
	if err == nil && len(list) == 0 {
		_, err = g.Upstream(id)
	}
	return list, err
}

// defined reads the definition of an upstream that is to be added.
func (g *Gateway) defined(id string, config json.RawMessage) (upstream.Server, error) {
	if id == agentCards || id == own {
		return upstream.Server{}, errs.New(errs.InvalidRequest, "the id %q is comet's own; choose another", id)
	}
	if len(config) > maxConfig {
		return upstream.Server{}, errs.New(errs.BodyTooLarge, "the definition of an upstream may have %d bytes", maxConfig)
	}
	file, err := json.Marshal(map[string]map[string]json.RawMessage{"mcpServers": {id: config}})
	if err != nil {
		return upstream.Server{}, errs.Wrap(errs.MalformedJSON, err, "the definition is no JSON")
	}
	servers, _, err := upstream.ParseServers(file)
	if err != nil {
		return upstream.Server{}, err
	}
	if len(servers) != 1 {
		return upstream.Server{}, errs.New(errs.InvalidRequest, "the definition must be one object")
	}
	if g.opts.NoCommands && servers[0].Command != "" {
		return upstream.Server{}, errs.New(errs.InvalidRequest, "programs can be added in the file of upstreams only: mcp.add_commands is off")
	}
	return servers[0], checkSecrets(servers[0])
}

// checkSecrets refuses what looks like a secret: it would stand in the database.
func checkSecrets(s upstream.Server) error {
	var v errs.Violations
	secret := regexp.MustCompile(`(?i)(token|secret|passw|api_?key|credential|private|auth|cookie|(^|_)key$)`)
	check := func(pointer, name, value string) {
		if secret.MatchString(name) && value != "" && !strings.Contains(value, "${") {
			v.Add(errs.InvalidRequest, pointer, "reference", "%s looks like a secret; name it, as ${%s} or ${file:/path}, and set the variable where comet runs", name, variable(name))
		}
	}
	for name, value := range s.Env {
		check("/env/"+name, name, value)
	}
	for name, value := range s.Headers {
		check("/headers/"+name, name, value)
	}
	check("/comet/bearer", "bearer token", s.Bearer)
	return v.Err()
}

func variable(name string) string {
	return strings.ToUpper(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(name, "_"))
}

// asErrs is an error of the upstreams as one of comet's.
func asErrs(err error) error {
	var e *upstream.Error
	if !errors.As(err, &e) {
		return err
	}
	code := map[upstream.Kind]errs.Code{
		upstream.KindUnknownServer: errs.NotFound, upstream.KindConflict: errs.Conflict, upstream.KindInvalid: errs.InvalidRequest,
	}[e.Kind]
	if code == "" {
		code = errs.Unavailable
	}
	return errs.New(code, "%s", e.Detail)
}

// loader brings the upstreams of the file and of the database to the manager, also when they
// change: the file by hand, the database by another replica.
type loader struct {
	*lifecycle.Loop
	g    *Gateway
	path string

	seen os.FileInfo
}

func newLoader(g *Gateway, path string) *loader {
	l := &loader{g: g, path: path}
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

// changes has one when upstreams were added or removed, on whichever replica, and one when it
// begins to listen: what was added just before is told by nobody.
func (l *loader) changes(ctx context.Context) (<-chan struct{}, func()) {
	out, done := make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(done)
		sub, err := l.g.feed.SubscribeNew(ctx)
		for err != nil && ctx.Err() == nil {
			wait := time.NewTimer(time.Second)
			select {
			case <-ctx.Done():
			case <-wait.C:
			}
			wait.Stop()
			sub, err = l.g.feed.SubscribeNew(ctx)
		}
		if err != nil {
			return
		}
		sub.Only(models.EventUpstreamSaved, models.EventUpstreamRemoved)
		for err == nil {
			select {
			case out <- struct{}{}:
			default:
			}
			_, err = sub.Next(ctx, 100)
		}
	}()
	return out, func() {
		cancel()
		<-done
	}
}

// loadAdded takes over what was added at run time.
func (l *loader) loadAdded(ctx context.Context) {
	kept, err := l.g.store.Upstreams(ctx)
	if err != nil {
		l.g.log.Warn("the upstreams that were added cannot be read", "error", err)
		return
	}
	var servers []upstream.Server
	for _, u := range kept {
		file, err := json.Marshal(map[string]map[string]json.RawMessage{"mcpServers": {u.ID: u.Config}})
		if err != nil {
			continue // it was JSON when it was kept
		}
		list, _, err := upstream.ParseServers(file)
		if err != nil {
			l.g.log.Warn("an upstream that was added makes no sense any more", "upstream", u.ID, "error", err)
			continue
		}
		servers = append(servers, list...)
	}
	if _, err := l.g.upstreams.Apply(ctx, addedSource, servers); err != nil {
		l.g.log.Warn("some upstreams cannot be started", "error", err)
	}
}

// lookAgain loads the file where it is another than before.
func (l *loader) lookAgain(ctx context.Context) {
	if l.path == "" {
		return
	}
	now, err := os.Stat(l.path)
	if err != nil || l.seen != nil && now.ModTime().Equal(l.seen.ModTime()) && now.Size() == l.seen.Size() {
		return
	}
	if err := l.g.ReloadUpstreams(ctx); err != nil {
		l.g.log.Warn("the file of upstreams is not taken over; what it said before stays", "file", l.path, "error", err)
	}
}

// load takes over the file. A file with a mistake changes nothing.
func (l *loader) load(ctx context.Context) error {
	if l.path == "" {
		return nil
	}
	info, err := os.Stat(l.path)
	if err != nil {
		return errs.Wrap(errs.InvalidRequest, err, "the file of upstreams %s cannot be read", l.path)
	}
	l.seen = info
	text, err := os.ReadFile(l.path)
	if err != nil {
		return errs.Wrap(errs.InvalidRequest, err, "the file of upstreams %s cannot be read", l.path)
	}
	servers, warnings, err := upstream.ParseServers(text)
	if err != nil {
		return err
	}
	for _, s := range servers {
		if s.ID == agentCards || s.ID == own {
			return errs.New(errs.InvalidRequest, "%s: the id %q is comet's own; choose another", l.path, s.ID)
		}
	}
	for _, w := range warnings {
		l.g.log.Warn("the file of upstreams", "file", l.path, "warning", w)
	}
	applied, err := l.g.upstreams.Apply(ctx, l.path, servers)
	for _, id := range applied.Stopped {
		l.g.refreshSoon(id)
	}
	return asErrs(err)
}

// ReloadUpstreams takes over the file now, or says what is wrong with it.
func (g *Gateway) ReloadUpstreams(ctx context.Context) error {
	g.loading.Lock()
	defer g.loading.Unlock()
	return g.loader.load(ctx)
}
