package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/redact"
	"comet/internal/upstream"
	"comet/models"
	"comet/store"
)

const (
	// apiSource is where upstreams come from that were added at run time; those of a file
	// come from its path.
	apiSource = "api"
	// filePollInterval is how often the file is looked at for changes.
	filePollInterval = 2 * time.Second
	// maxConfig is how long the definition of an upstream may be, in bytes.
	maxConfig = 64 << 10
)

// Upstreams returns how the upstreams stand whose tools a token may call, in the order of
// their ids.
func (h *Service) Upstreams(ctx context.Context, by models.Principal) ([]upstream.Status, error) {
	p, err := h.policies.get(ctx, by.TokenID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(h.upstreams.Servers(), func(s upstream.Status) bool { return !p.allowsServer(s.ID) }), nil
}

// UpstreamFor is Upstream for the holder of a token: one of whose tools it may call none is
// not there.
func (h *Service) UpstreamFor(ctx context.Context, by models.Principal, id string) (upstream.Status, error) {
	p, err := h.policies.get(ctx, by.TokenID)
	if err != nil {
		return upstream.Status{}, err
	}
	if !p.allowsServer(id) {
		return upstream.Status{}, errs.New(errs.NotFound, "there is no upstream %q", clip(id))
	}
	return h.Upstream(id)
}

// Upstream returns how one stands, or errs.NotFound.
func (h *Service) Upstream(id string) (upstream.Status, error) {
	s, ok := h.status(id)
	if !ok {
		return s, errs.New(errs.NotFound, "there is no upstream %q", clip(id))
	}
	return s, nil
}

// status returns how an upstream stands, and whether there is one.
func (h *Service) status(id string) (upstream.Status, bool) {
	s, err := h.upstreams.Server(id)
	return s, err == nil
}

// PutUpstream adds an upstream, or changes one that was added. config is an entry of
// "mcpServers"; secrets are named in it, ${NAME} or ${file:/path}, and not said. It returns
// errs.InvalidRequest for what is not such an entry, and errs.Conflict for an id of the file.
func (h *Service) PutUpstream(ctx context.Context, by models.Principal, id string, config json.RawMessage) (models.Upstream, error) {
	u := models.Upstream{ID: id, Config: config, CreatedBy: by.Name}
	server, err := h.parseUpstream(id, config)
	if err != nil {
		return u, err
	}
	h.loader.applying.Lock() // what is being loaded knows nothing of it yet
	defer h.loader.applying.Unlock()
	if s, known := h.status(id); known && s.Source != apiSource {
		return u, errs.New(errs.Conflict, "the upstream %q is defined by %s; change it there", id, s.Source)
	}
	err = h.store.Write(ctx, func(tx *store.Tx) error {
		if err := tx.SaveUpstream(&u); err != nil {
			return err
		}
		return tx.Emit(models.EventUpstreamSaved, id, models.UpstreamChanged{ID: id, Actor: by.Name})
	})
	if err != nil {
		return u, err
	}
	return u, toErrs(h.upstreams.Put(ctx, apiSource, server))
}

// RemoveUpstream removes one that was added, with what was approved of its tools.
func (h *Service) RemoveUpstream(ctx context.Context, by models.Principal, id string) error {
	h.loader.applying.Lock()
	defer h.loader.applying.Unlock()
	s, known := h.status(id)
	if known && s.Source != apiSource {
		return errs.New(errs.Conflict, "the upstream %q is defined by %s; remove it there", id, s.Source)
	}
	err := h.store.Write(ctx, func(tx *store.Tx) error {
		if err := tx.DeleteUpstream(id); err != nil {
			return err
		}
		if err := tx.DeleteToolDefinitions(id); err != nil {
			return err
		}
		return tx.Emit(models.EventUpstreamRemoved, id, models.UpstreamChanged{ID: id, Actor: by.Name})
	})
	if err == nil && known {
		err = toErrs(h.upstreams.Remove(ctx, apiSource, id))
		h.refreshSoon(id)
	}
	return err
}

// RestartUpstream starts an upstream anew.
func (h *Service) RestartUpstream(id string) error {
	if _, err := h.Upstream(id); err != nil {
		return err
	}
	return toErrs(h.upstreams.Restart(id))
}

// ToolDefinitions returns what is known about the tools of an upstream.
func (h *Service) ToolDefinitions(ctx context.Context, id string) ([]models.ToolDefinition, error) {
	if id == "" { // which is every upstream to the store
		_, err := h.Upstream(id)
		return nil, err
	}
	list, err := h.store.ToolDefinitions(ctx, id)
	if err == nil && len(list) == 0 {
		_, err = h.Upstream(id)
	}
	return list, err
}

// parseUpstream reads the definition of an upstream that is to be added.
func (h *Service) parseUpstream(id string, config json.RawMessage) (upstream.Server, error) {
	if id == agentCardsServer || id == cometServer {
		return upstream.Server{}, errs.New(errs.InvalidRequest, "the id %q is comet's own; choose another", id)
	}
	if len(config) > maxConfig {
		return upstream.Server{}, errs.New(errs.BodyTooLarge, "the definition of an upstream may have %d bytes", maxConfig)
	}
	if err := upstream.ValidateID(id); err != nil {
		return upstream.Server{}, toErrs(err)
	}
	file, err := json.Marshal(map[string]map[string]json.RawMessage{"mcpServers": {id: config}})
	if err != nil {
		return upstream.Server{}, errs.Wrap(errs.MalformedJSON, err, "the definition is no JSON")
	}
	servers, _, err := upstream.ParseServers(file)
	if err != nil {
		return upstream.Server{}, withoutFilePosition(id, err)
	}
	if len(servers) != 1 {
		return upstream.Server{}, errs.New(errs.InvalidRequest, "the definition must be one object")
	}
	if h.opts.RejectCommands && servers[0].Command != "" {
		return upstream.Server{}, errs.New(errs.InvalidRequest, "programs can be added in the file of upstreams only: mcp.add_commands is off")
	}
	if h.opts.RejectCommands && refersToForeignVariables(config) {
		return upstream.Server{}, errs.New(errs.InvalidRequest, "a definition over the API may name variables that begin with MCP_ only: mcp.add_commands is off")
	}
	return servers[0], checkSecrets(servers[0])
}

// refersToForeignVariables reports whether a definition names anything but variables made for it.
func refersToForeignVariables(config json.RawMessage) bool {
	for _, m := range regexp.MustCompile(`\$\{([^}]*)`).FindAllSubmatch(config, -1) {
		if !strings.HasPrefix(strings.TrimPrefix(string(m[1]), "env:"), "MCP_") {
			return true
		}
	}
	return false
}

// withoutFilePosition is an error of a definition that came without a file: there are no lines in it,
// and it is the whole document.
func withoutFilePosition(id string, err error) error {
	e := errs.From(err)
	for i := range e.Fields {
		f := &e.Fields[i]
		f.Detail, f.Line = strings.TrimSuffix(f.Detail, fmt.Sprintf(" (line %d)", f.Line)), 0
		f.Pointer = strings.TrimPrefix(f.Pointer, "/mcpServers/"+id)
		e.Detail = strings.ReplaceAll(e.Detail, " (line 1)", "")
	}
	return e
}

// referencePattern is a reference, perhaps behind a word such as Bearer.
func referencePattern() *regexp.Regexp { return regexp.MustCompile(`^([A-Za-z]+ )?\$\{[^}]+\}$`) }

// checkSecrets refuses what looks like a secret: it would stand in the database.
func checkSecrets(s upstream.Server) error {
	var v errs.Violations
	secret := regexp.MustCompile(`(?i)(token|secret|passw|api_?key|credential|private|auth|cookie|(^|[_-])key$)`)
	reference := referencePattern()
	check := func(pointer, name, value string) {
		named := secret.MatchString(name) && value != "" && !reference.MatchString(value)
		if named || redact.Credential(value) {
			v.Add(errs.InvalidRequest, pointer, "reference", "%s looks like a secret; name it, as %s or ${file:/path}, and set the variable where comet runs", name, referenceFor(name, value))
		}
	}
	for name, value := range s.Env {
		check("/env/"+name, name, value)
	}
	for name, value := range s.Headers {
		check("/headers/"+name, name, value)
	}
	check("/comet/bearer", "bearer token", s.Bearer)
	for i, arg := range s.Args { // --token=value, and --token value
		name, value, both := strings.Cut(arg, "=")
		if !both && i+1 < len(s.Args) && strings.HasPrefix(arg, "-") {
			value = s.Args[i+1]
		}
		if strings.HasPrefix(name, "-") && !strings.HasPrefix(value, "-") {
			check("/args/"+strconv.Itoa(i), strings.TrimLeft(name, "-"), value)
		} else if redact.Credential(arg) {
			check("/args/"+strconv.Itoa(i), "argument "+strconv.Itoa(i), arg)
		}
	}
	if u, err := url.Parse(s.URL); err == nil {
		if _, has := u.User.Password(); has {
			check("/url", "the password in the URL", u.User.String())
		}
		for name, values := range u.Query() {
			check("/url", name, strings.Join(values, ""))
		}
	}
	return v.Err()
}

// referenceFor is how a value is named instead, with the word before a credential of HTTP.
func referenceFor(name, value string) string {
	word := ""
	if first, _, ok := strings.Cut(value, " "); ok && strings.EqualFold(name, "Authorization") {
		word = first + " "
	}
	if strings.HasPrefix(name, "the password") {
		name = "password"
	}
	return word + "${" + variableName(name) + "}"
}

func variableName(name string) string {
	return strings.ToUpper(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(name, "_"))
}

// toErrs is an error of the upstreams as one of comet's.
func toErrs(err error) error {
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
