package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"comet/cmd/comet/browser"
	"comet/openapi/client"
)

// login verifies a token and stores it in the client configuration, with the address of its server.
// On a terminal the token that is typed is not shown.
func login(ctx context.Context, c *call) error {
	text, err := []byte(nil), error(nil)
	switch stdin := int(os.Stdin.Fd()); {
	case c.changed("token"):
	case term.IsTerminal(stdin):
		printLine(c.messages, "Paste the token for %s:", c.server)
		state, _ := term.GetState(stdin) // it is a terminal
		defer context.AfterFunc(ctx, func() { _ = term.Restore(stdin, state) })()
		text, err = term.ReadPassword(stdin)
	default:
		text, err = c.readInput("-")
	}
	if err != nil {
		return err
	}
	c.hint = ""
	c.token = cmp.Or(strings.TrimSpace(string(text)), c.token)
	stored := settings{Server: c.server, Token: c.token, CAFile: c.caFile}
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
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path+".new", fmt.Appendf(nil, "server: %q\ntoken: %q\nca_file: %q\n", s.Server, s.Token, s.CAFile), 0o600)
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// trust adds the certificate authorities in a file to those that the clients of this program trust.
func trust(caFile string) error {
	if caFile == "" {
		return nil
	}
	pem, err := os.ReadFile(caFile)
	all, poolErr := x509.SystemCertPool()
	if err = cmp.Or(err, poolErr); err != nil {
		return usagef("the certificate authorities cannot be read: %w", err)
	}
	if !all.AppendCertsFromPEM(pem) {
		return usagef("the file %s contains no certificate in PEM", caFile)
	}
	if transport, ok := http.DefaultTransport.(*http.Transport); ok {
		transport.TLSClientConfig = &tls.Config{RootCAs: all, MinVersion: tls.VersionTLS12}
	}
	return nil
}

// openDashboard opens the dashboard in the browser with a code that logs in, or prints its address.
func openDashboard(ctx context.Context, c *call) error {
	var code client.LoginCode
	_, err := c.do(ctx, http.MethodPost, "/api/v1/logins/codes", nil, &code)
	address := strings.TrimSuffix(c.server, "/") + code.Path
	if err == nil && (given[bool](c, "print") || !browser.Open(ctx, address)) {
		err = c.print(c.out.w, address)
	}
	return err
}

// showStatus prints the state of the server, the token in use and how much there is of each kind.
func showStatus(ctx context.Context, c *call) error {
	status := map[string]any{"server": c.server}
	for _, part := range []struct{ name, path string }{
		{"readiness", "/readyz"}, {"me", "/api/v1/me"}, {"agents", "/api/v1/agents?total=true&limit=1"}, {"workers", "/api/v1/workers?limit=1000"},
		{"upstreams", "/api/v1/upstreams"}, {"tasks", "/api/v1/tasks?state=running&limit=1000"},
	} {
		var page map[string]any
		_, err := c.do(ctx, http.MethodGet, part.path, nil, &page)
		switch entries, isList := page[part.name].([]any); {
		case err != nil && exitCode(err) != exitForbidden || err != nil && part.name == "me":
			return err
		case isList:
			status[part.name] = cmp.Or(page["total"], any(len(entries)))
			if page["next_cursor"] != nil && page["total"] == nil {
				status[part.name] = fmt.Sprintf("more than %d", len(entries))
			}
		case err == nil:
			status[part.name] = page
		}
	}
	body, err := json.Marshal(status)
	if err != nil {
		return err
	}
	return c.printResponse(body)
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
