package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"comet/cmd/comet/viewtext"
	"comet/internal/config"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/telemetry"
	"comet/openapi/client"
)

// requestTimeout limits one request. The server has its own, shorter limits; this one is for a
// network that fails silently.
const requestTimeout = 2 * time.Minute

// session is the context of a command: where results and messages are printed and, for a client
// command, the server.
type session struct {
	http     *http.Client
	server   string
	token    string
	caFile   string // trusted certificate authorities, "" for those of the system
	hint     string // about the token, for the status 401
	out      output
	in       func() ([]byte, error) // reads standard input; nil when it was read
	messages io.Writer
}

// newSession returns the session of a command, which talks to a server if it has clientFlags.
func newSession(cmd *cobra.Command) (*session, error) {
	s := &session{
		http: &http.Client{Timeout: requestTimeout}, out: output{w: cmd.OutOrStdout(), format: formatTable},
		in: func() ([]byte, error) { return readUntilDone(cmd.Context(), cmd.InOrStdin()) }, messages: cmd.ErrOrStderr(),
	}
	flags := cmd.Flags()
	if flags.Lookup(flagClientConfig) == nil {
		return s, nil
	}
	set, err := loadSettings(flags, cmd.Name() != "login") // login creates the file
	if err != nil {
		return nil, err
	}
	if err := trust(set.CAFile); err != nil {
		return nil, err
	}
	s.server, s.token, s.caFile, s.hint = set.Server, set.Token, set.CAFile, set.hint
	noHeaders, _ := flags.GetBool("no-headers") // it is registered as one
	s.out, err = newOutput(cmd.OutOrStdout(), set.Output, noHeaders)
	return s, err
}

// httpRequest makes a request to the server; body may be nil.
func (s *session) httpRequest(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.server, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	if body != nil && header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "comet/"+telemetry.ReadBuild(version).Version)
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	return req, nil
}

// do sends a request with a JSON body, none if in is nil, and decodes the response into out,
// unless that is nil. It returns the body of the response.
func (s *session) do(ctx context.Context, method, path string, in, out any) (body []byte, err error) {
	var data []byte
	if in != nil {
		if data, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}
	req, err := s.httpRequest(ctx, method, path, http.Header{}, data)
	if err != nil {
		return nil, err
	}
	if body, err = s.readResponse(s.http.Do(req)); err == nil && out != nil {
		err = decode(body, out)
	}
	return body, err
}

// readResponse reads the body of a response. Its errors are *apiError and *unreachableError.
func (s *session) readResponse(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, s.unreachable(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, s.unreachable(&url.Error{Op: resp.Request.Method, Err: err})
	}
	if resp.StatusCode >= http.StatusBadRequest {
		refused := newAPIError(resp, body)
		refused.hint = s.hint
		return nil, refused
	}
	return body, nil
}

// stream returns the body of a response that does not end, without a time limit.
func (s *session) stream(req *http.Request) (io.ReadCloser, error) {
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return nil, s.unreachable(err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		_, err := s.readResponse(resp, nil)
		return nil, err
	}
	return resp.Body, nil
}

// unreachable is the error of a request without a response, without the method and the URL that
// the client repeats.
func (s *session) unreachable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	failed := &unreachableError{server: s.server, cause: err}
	if inURL, ok := errors.AsType[*url.Error](err); ok {
		failed.cause, failed.reading = inURL.Err, strings.EqualFold(inURL.Op, http.MethodGet)
	}
	return failed
}

// decode decodes a JSON response into v.
func decode(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("the server's response cannot be read: %w", err)
	}
	return nil
}

// names returns the ids in a list of the API, sorted; nil if the token may not read it. A fragment
// in the path selects another member, which may be a list: /api/v1/agents#capabilities.
func (s *session) names(ctx context.Context, path string) (names []string) {
	var page map[string]any
	if path == "" {
		return nil
	}
	_, named, _ := strings.Cut(path, "#")
	if _, err := s.do(ctx, http.MethodGet, path, nil, &page); err != nil {
		return nil
	}
	for _, member := range page {
		entries, _ := member.([]any)
		for _, e := range entries {
			entry, _ := e.(map[string]any)
			value := cmp.Or(entry["id"], entry["workflow_id"], entry["agent_id"])
			if named != "" {
				value = entry[named]
			}
			if list, isList := value.([]any); isList {
				names = append(names, strings.Fields(viewtext.Join(list, " "))...)
			} else if value != nil {
				names = append(names, fmt.Sprint(value))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// warn prints the server's warnings about a request that it accepted. file is the name of the
// document that was sent, "" for none.
func (s *session) warn(warnings []client.FieldError, file string) {
	for i := range warnings {
		warnings[i].Pointer, warnings[i].Parameter = nil, nil // the detail names it
	}
	for _, line := range fieldLines(warnings, file) {
		printLine(s.messages, "warning: %s", strings.TrimSpace(line))
	}
}

const defaultServer = "http://127.0.0.1:8080"

// The environment of the client commands.
const (
	envServer       = "COMET_SERVER"
	envToken        = "COMET_TOKEN"
	envOutput       = "COMET_OUTPUT"
	envCAFile       = "COMET_CA_FILE"
	envClientConfig = "COMET_CLIENT_CONFIG"
	envProfile      = "COMET_PROFILE"
)

// flagClientConfig is a flag that only client commands have.
const flagClientConfig = "client-config"

// addClientFlags registers the flags of client commands for a command and its subcommands.
func addClientFlags(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	fs.String("server", "", "`address` of the server (COMET_SERVER; default "+defaultServer+")")
	fs.String("token", "", "bearer `token` (COMET_TOKEN; other users of the machine cannot see the variable)")
	fs.String(flagClientConfig, "", "`file` with server, token, token_file and output (COMET_CLIENT_CONFIG; default ~/.config/comet/client.yaml)")
	fs.String("profile", "", "`name` of a profile of comet login (COMET_PROFILE): NAME.yaml beside client.yaml")
	fs.String("ca-file", "", "`file` with trusted certificate authorities in PEM, besides those of the system (COMET_CA_FILE)")
	fs.StringP("output", "o", "", "output `format`: table, json or yaml (COMET_OUTPUT; default table)")
	fs.Bool("no-headers", false, "omit table headers")
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is registered two lines above
	}
}

// settings are what the flags, the environment and the client configuration set.
type settings struct {
	Server    string `json:"server"`
	Token     string `json:"token"`
	TokenFile string `json:"token_file"`
	CAFile    string `json:"ca_file"`
	Output    string `json:"output"`
	hint      string // about the token, for the status 401
}

// loadSettings combines them: a flag overrides the environment, which overrides the file, which
// overrides the default. An empty variable counts as not set.
func loadSettings(flags *pflag.FlagSet, mustExist bool) (settings, error) {
	s := settings{Server: defaultServer, hint: "Give a token with comet login, --token or COMET_TOKEN (comet --help)."}
	path, wanted := configPath(flags)
	if path != "" {
		if err := s.readFile(path, wanted && mustExist); err != nil {
			return settings{}, err
		}
	}
	for env, into := range map[string]*string{envServer: &s.Server, envToken: &s.Token, envOutput: &s.Output, envCAFile: &s.CAFile} {
		if v := os.Getenv(env); v != "" {
			*into = v
		}
		name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(env, "COMET_"), "_", "-"))
		if f := flags.Lookup(name); f.Changed && f.Value.Type() == "string" { // not a flag of one command
			*into = f.Value.String()
		}
	}
	if !strings.Contains(s.Server, "://") {
		s.Server = "http://" + s.Server
	}
	s.findAdminToken()
	return s, s.check()
}

// check rejects an address or a token that cannot be sent.
func (s *settings) check() error {
	u, err := url.Parse(s.Server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return usagef("the server's address must be of the form %s", defaultServer)
	}
	if u.User != nil {
		return usagef("the server's address must not contain credentials; use a token instead")
	}
	for _, r := range s.Token {
		if r <= ' ' || r > '~' {
			return usagef("the token must be printable ASCII without spaces")
		}
	}
	return nil
}

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
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		s.hint = fmt.Sprintf("The token in %s is not used, because other users can read the file; run: chmod 600 %s", adminTokenFile, adminTokenFile)
	} else if token, err := os.ReadFile(adminTokenFile); err == nil {
		s.Token = strings.TrimSpace(string(token))
		s.hint = fmt.Sprintf("The token is that of the file %s; set another one with --token, COMET_TOKEN or comet login.", adminTokenFile)
	}
}

// configPath returns the file to read, and whether the user named it, so that it must exist.
func configPath(flags *pflag.FlagSet) (path string, named bool) {
	flag, profile := flags.Lookup(flagClientConfig), cmp.Or(flags.Lookup("profile").Value.String(), os.Getenv(envProfile))
	if flag.Changed {
		return flag.Value.String(), flag.Value.String() != ""
	}
	if path := os.Getenv(envClientConfig); path != "" && profile == "" {
		return path, true
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", false
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "comet", filepath.Base(cmp.Or(profile, "client"))+".yaml"), profile != ""
}

// readFile reads the client configuration strictly. Problems are a *config.Error.
func (s *settings) readFile(path string, named bool) error {
	data, err := os.ReadFile(path)
	switch {
	case os.IsNotExist(err) && !named:
		return nil
	case err != nil:
		return usagef("the client configuration cannot be read; comet login creates it: %w", err)
	}
	doc := input.Parse(data, input.YAML)
	if err := doc.Decode(s); err != nil {
		return err
	}
	if s.Token != "" && s.TokenFile != "" {
		doc.Report(doc.Line("/token_file"), errs.InvalidRequest, "/token_file", "exclusive", "token and token_file exclude each other")
	}
	var problems []string
	for _, v := range doc.Violations() {
		problems = append(problems, fmt.Sprintf("%s:%d: %s.", path, v.Line, v.Detail))
	}
	if len(problems) > 0 {
		return &config.Error{Problems: problems}
	}
	if s.TokenFile != "" {
		s.Token, err = readToken(path, s.TokenFile)
	}
	return err
}

// readToken reads a token from a file; its path is relative to the configuration.
func readToken(configFile, path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", usagef("the token file cannot be found: %w", err)
		}
		path = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(configFile), path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("the token file cannot be read: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
