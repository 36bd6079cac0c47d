package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"comet/openapi/client"
)

// adminTokenFile is where a server that was started in the same directory stores its first token.
const adminTokenFile = "comet-data/admin.token"

// findAdminToken sets the token of a server on this machine from its data directory, if no token is
// configured. Others must not be able to read the file.
func (s *settings) findAdminToken() {
	u, err := url.Parse(s.Server)
	if s.Token != "" || err != nil || u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
		return
	}
	info, err := os.Stat(adminTokenFile)
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		return
	}
	if token, err := os.ReadFile(adminTokenFile); err == nil {
		s.Token, s.foundIn = strings.TrimSpace(string(token)), adminTokenFile
	}
}

// login verifies a token and stores it in the client configuration, with the address of its server.
// On a terminal the token that is typed is not shown.
func login(ctx context.Context, c *call) error {
	var text []byte
	var err error
	switch stdin := int(os.Stdin.Fd()); {
	case c.changed("token"):
	case term.IsTerminal(stdin):
		printLine(c.messages, "Paste the token for %s:", c.server)
		text, err = term.ReadPassword(stdin)
	default:
		text, err = c.readInput("-")
	}
	if err != nil {
		return err
	}
	c.token = cmp.Or(strings.TrimSpace(string(text)), c.token)
	stored := settings{Server: c.server, Token: c.token}
	if err := stored.check(); err != nil {
		return err
	}
	var me client.CallerIdentity
	if _, err := c.do(ctx, http.MethodGet, "/api/v1/me", nil, &me); err != nil {
		return err
	}
	path, _ := configPath(c.cmd.Flags())
	if err := stored.write(path); err != nil {
		return fmt.Errorf("the client configuration cannot be written: %w", err)
	}
	printLine(c.messages, "%s accepts the token %s; it is stored in %s", c.server, me.Token.Name, path)
	return nil
}

// write replaces a client configuration, which only its owner can read.
func (s *settings) write(path string) error {
	text, err := yaml.Marshal(map[string]string{"server": s.Server, "token": s.Token})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// showStatus prints the state of the server, the token in use and how much there is of each kind.
func showStatus(ctx context.Context, c *call) error {
	var refused *apiError
	ready, failed := c.do(ctx, http.MethodGet, "/readyz", nil, nil)
	if errors.As(failed, &refused) && json.Valid(refused.body) {
		ready = refused.body
	} else if failed != nil {
		return failed
	}
	status := map[string]any{"server": c.server, "readiness": json.RawMessage(ready)}
	me, err := c.do(ctx, http.MethodGet, "/api/v1/me", nil, nil)
	if err != nil {
		return errors.Join(failed, err)
	}
	status["me"] = json.RawMessage(me)
	for name, query := range map[string]string{"agents": "?total=true&limit=1", "workers": "?limit=1000", "upstreams": "", "tasks": "?limit=1000&state=running"} {
		body, err := c.do(ctx, http.MethodGet, "/api/v1/"+name+query, nil, nil)
		var page map[string]any
		if err == nil && json.Unmarshal(body, &page) == nil { // the token may not list everything
			entries, _ := page[name].([]any)
			if status[name] = cmp.Or(page["total"], any(len(entries))); page["next_cursor"] != nil && name != "agents" {
				status[name] = fmt.Sprintf("more than %d", len(entries))
			}
		}
	}
	body, err := json.Marshal(status)
	if err != nil {
		return err
	}
	return errors.Join(c.printResponse(body), failed)
}

// requestAPI sends any request and prints the response.
func requestAPI(ctx context.Context, c *call) error {
	path, method := c.args[0], strings.ToUpper(given[string](c, "method"))
	if !strings.HasPrefix(path, "/") {
		path = "/api/v1/" + path
	}
	if data := given[json.RawMessage](c, "data"); data != nil {
		c.sent["*"], method = []byte(data), cmp.Or(method, http.MethodPost)
	}
	for name, value := range given[map[string]string](c, "header") {
		c.sent[http.CanonicalHeaderKey(name)] = value
	}
	c.request = cmp.Or(method, http.MethodGet) + " " + path
	body, err := c.send(ctx)
	if err != nil {
		return err
	}
	if json.Valid(body) && c.out.format == formatTable {
		c.out.format = formatJSON
	}
	return c.out.show(body, func() error { return c.print(c.out.w, string(body)) })
}
