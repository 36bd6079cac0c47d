package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/redact"
	"comet/internal/upstream"
	"comet/models"
	"comet/store"
	"comet/store/credentials"
	"comet/store/quotas"
)

const (
	// apiSource is the source of upstreams of the API; that of others is the path of the file.
	apiSource = "api"
	// filePollInterval is how often the file is checked for changes.
	filePollInterval = 2 * time.Second
	// maxConfig is the longest definition of an upstream, in bytes.
	maxConfig = 64 << 10
)

// Upstreams returns the status of the upstreams with tools that a token may call, sorted by id.
func (svc *Service) Upstreams(ctx context.Context, by models.Principal) ([]upstream.Status, error) {
	p, err := svc.cachedPolicyOf(ctx, by.TokenID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(svc.upstreams.Servers(), func(s upstream.Status) bool { return !p.allowsServer(s.ID) }), nil
}

// UpstreamFor returns the status of an upstream with tools that a token may call and the version of its
// definition, 0 if a file configures it, or errs.NotFound.
func (svc *Service) UpstreamFor(ctx context.Context, by models.Principal, id string) (s upstream.Status, version int64, err error) {
	p, err := svc.cachedPolicyOf(ctx, by.TokenID)
	if err != nil {
		return s, 0, err
	}
	if !p.allowsServer(id) {
		return s, 0, errs.New(errs.NotFound, "there is no upstream %q", input.Clip(id))
	}
	if s, err = svc.Upstream(id); err == nil && s.Source == apiSource {
		var stored []models.Upstream
		stored, err = svc.store.Tools(ctx).Upstreams(id)
		for _, u := range stored {
			version = u.Version
		}
	}
	return s, version, err
}

// Upstream returns the status of an upstream, or errs.NotFound.
func (svc *Service) Upstream(id string) (upstream.Status, error) {
	s, ok := svc.upstreams.Server(id)
	if !ok {
		return s, errs.New(errs.NotFound, "there is no upstream %q", input.Clip(id))
	}
	return s, nil
}

// PutUpstream creates or replaces an upstream of the API. config is an entry of "mcpServers"
// whose secrets are references, ${NAME} or ${file:/path}. The error is errs.InvalidRequest for an
// invalid entry, errs.Conflict for an id of the file, the error of the precondition, or errs.LimitReached.
func (svc *Service) PutUpstream(ctx context.Context, by models.Principal, id string, config json.RawMessage, pre models.Precondition) (models.Upstream, error) {
	u := models.Upstream{ID: id, Config: config, TokenID: by.TokenID, CreatedBy: by.Name}
	server, err := svc.parseUpstream(id, config)
	if err := cmp.Or(err, svc.upstreams.CheckFiles(server)); err != nil {
		return u, err
	}
	svc.loader.applying.Lock() // a load in progress does not know of it
	defer svc.loader.applying.Unlock()
	if s, known := svc.upstreams.Server(id); known && s.Source != apiSource {
		return u, errs.New(errs.Conflict, "the upstream %q is defined by %s; change it there", id, s.Source)
	}
	err = svc.store.Write(ctx, func(tx *store.Tx) error {
		err := tx.Tools().SaveUpstream(&u)
		if err := cmp.Or(err, pre.Check(u.Version-1)); err != nil {
			return err
		}
		if u.Version == 1 {
			if err := quotas.Add(tx, by, "upstreams", id); err != nil {
				return err
			}
		}
		return tx.Events().Emit(events.UpstreamSaved, id, upstreamChanged{ID: id, Actor: by.Name})
	})
	if err != nil {
		return u, err
	}
	return u, svc.upstreams.Put(ctx, apiSource, server)
}

// UpdateUpstream changes members of the definition of an upstream of the API. patch is a JSON merge patch (RFC 7396).
// It returns errs.NotFound, errs.Conflict for an upstream of the file or if another request changes the definition at the
// same time, or an error of PutUpstream.
func (svc *Service) UpdateUpstream(ctx context.Context, by models.Principal, id string, patch map[string]any, pre models.Precondition) (models.Upstream, error) {
	stored, err := svc.store.Tools(ctx).Upstreams(id)
	if err == nil && len(stored) != 1 {
		var s upstream.Status
		if s, err = svc.Upstream(id); err == nil && s.Source == apiSource { // another replica has deleted it
			err = errs.New(errs.NotFound, "there is no upstream %q", id)
		} else if err == nil {
			err = errs.New(errs.Conflict, "the upstream %q is defined by %s; change it there", id, s.Source)
		}
	}
	if err != nil {
		return models.Upstream{}, err
	}
	var config map[string]any
	if err := json.Unmarshal(stored[0].Config, &config); err != nil {
		return models.Upstream{}, err
	}
	merged, err := json.Marshal(mergePatch(config, patch))
	if err != nil {
		return models.Upstream{}, err
	}
	return svc.PutUpstream(ctx, by, id, merged, func(version int64) error {
		if err := pre.Check(version); err != nil || version == stored[0].Version {
			return err
		}
		return errs.New(errs.Conflict, "the upstream %q was changed during this request; repeat it", id)
	})
}

// mergePatch applies a JSON merge patch (RFC 7396) to an object. It modifies and returns the object: null deletes a member,
// and objects are merged.
func mergePatch(object, patch map[string]any) map[string]any {
	if object == nil {
		object = map[string]any{}
	}
	for name, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(object, name)
		case map[string]any:
			inner, _ := object[name].(map[string]any)
			object[name] = mergePatch(inner, v)
		default:
			object[name] = v
		}
	}
	return object
}

// RemoveUpstream removes an upstream of the API and the approvals of its tools. It returns errs.NotFound,
// errs.Conflict for an upstream of the file, or the error of the precondition.
func (svc *Service) RemoveUpstream(ctx context.Context, by models.Principal, id string, pre models.Precondition) error {
	svc.loader.applying.Lock()
	defer svc.loader.applying.Unlock()
	s, known := svc.upstreams.Server(id)
	if known && s.Source != apiSource {
		return errs.New(errs.Conflict, "the upstream %q is defined by %s; remove it there", id, s.Source)
	}
	err := svc.store.Write(ctx, func(tx *store.Tx) error {
		version, err := tx.Tools().DeleteUpstream(id)
		if err := cmp.Or(err, pre.Check(version)); err != nil {
			return err
		}
		if err := errors.Join(tx.Tools().DeleteDefinitions(id), credentials.Delete(tx, id)); err != nil {
			return err
		}
		return tx.Events().Emit(events.UpstreamRemoved, id, upstreamChanged{ID: id, Actor: by.Name})
	})
	if err == nil && known {
		err = svc.upstreams.Remove(ctx, apiSource, id)
		svc.stale.Add(id)
	}
	return err
}

// RestartUpstream restarts an upstream.
func (svc *Service) RestartUpstream(id string) error {
	if _, err := svc.Upstream(id); err != nil {
		return err
	}
	return svc.upstreams.Restart(id)
}

// ToolDefinitions returns the stored definitions of an upstream's tools.
func (svc *Service) ToolDefinitions(ctx context.Context, id string) ([]models.ToolDefinition, error) {
	if id == "" { // the store returns the definitions of all upstreams for ""
		_, err := svc.Upstream(id)
		return nil, err
	}
	list, err := svc.store.Tools(ctx).Definitions(id)
	if err == nil && len(list) == 0 {
		_, err = svc.Upstream(id)
	}
	return list, err
}

// parseUpstream parses and checks the definition of an upstream of the API.
func (svc *Service) parseUpstream(id string, config json.RawMessage) (upstream.Server, error) {
	if svc.isOwnServer(id) {
		return upstream.Server{}, errs.New(errs.InvalidRequest, "the id %q is comet's own; choose another", id)
	}
	if len(config) > maxConfig {
		return upstream.Server{}, errs.New(errs.BodyTooLarge, "the definition of an upstream may have at most %d bytes", maxConfig)
	}
	if err := upstream.ValidateID(id); err != nil {
		return upstream.Server{}, err
	}
	file, err := json.Marshal(map[string]map[string]json.RawMessage{"mcpServers": {id: config}})
	if err != nil {
		return upstream.Server{}, errs.Wrap(errs.MalformedJSON, err, "the definition is not JSON")
	}
	servers, _, err := upstream.ParseServers(file)
	if err != nil {
		return upstream.Server{}, withoutFilePosition(id, err)
	}
	if svc.opts.RejectCommands && servers[0].Command != "" {
		return upstream.Server{}, errs.New(errs.InvalidRequest, "programs are allowed only in the upstreams file, because mcp.add_commands is off")
	}
	if svc.opts.RejectCommands && refersToForeignVariables(config) {
		return upstream.Server{}, errs.New(errs.InvalidRequest, "a definition may reference only variables that begin with MCP_, because mcp.add_commands is off")
	}
	return servers[0], checkSecrets(servers[0])
}

// refersToForeignVariables reports whether a definition references more than variables with MCP_.
func refersToForeignVariables(config json.RawMessage) bool {
	for _, m := range regexp.MustCompile(`\$\{([^}]*)`).FindAllSubmatch(config, -1) {
		if !strings.HasPrefix(strings.TrimPrefix(string(m[1]), "env:"), "MCP_") {
			return true
		}
	}
	return false
}

// withoutFilePosition removes lines and the file's path from an error of a definition.
func withoutFilePosition(id string, err error) error {
	e := errs.From(err)
	texts := strings.NewReplacer(" (line 1)", "", "mcpServers."+id+".", "")
	e.Detail = texts.Replace(e.Detail)
	for i := range e.Fields {
		f := &e.Fields[i]
		f.Detail, f.Line = texts.Replace(f.Detail), 0
		f.Pointer = strings.TrimPrefix(f.Pointer, "/mcpServers/"+id)
	}
	return e
}

// checkSecrets rejects values that look like secrets, because the database stores them.
func checkSecrets(s upstream.Server) error {
	var v errs.Violations
	secret := regexp.MustCompile(`(?i)(token|secret|passw|api_?key|credential|private|auth|cookie|(^|[_-])key$)`)
	reference := regexp.MustCompile(`^([A-Za-z]+ )?\$\{[^}]+\}$`) // optionally after a word such as Bearer
	check := func(pointer, name, value string) {
		named := secret.MatchString(name) && value != "" && !reference.MatchString(value)
		if named || redact.Credential(value) {
			v.Add(errs.InvalidRequest, pointer, "reference", "%s looks like a secret; use a reference, %s or ${file:/path}, and set the variable where comet runs", name, referenceFor(name, value))
		}
	}
	for name, value := range s.Env {
		check("/env/"+name, name, value)
	}
	for name, value := range s.Headers {
		check("/headers/"+name, name, value)
	}
	check("/comet/bearer", "bearer token", s.Bearer)
	check("/comet/oauth/client_secret", "client_secret", s.OAuth.ClientSecret)
	for i, arg := range s.Args { // --token=value and --token value
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

// referenceFor returns the reference for a value, after the scheme of an HTTP credential.
func referenceFor(name, value string) string {
	word := ""
	if first, _, ok := strings.Cut(value, " "); ok && strings.EqualFold(name, "Authorization") {
		word = first + " "
	}
	if strings.HasPrefix(name, "the password") {
		name = "password"
	}
	return word + "${" + strings.ToUpper(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(name, "_")) + "}"
}
