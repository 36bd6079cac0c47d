package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for a condition. It is not an expectation: a busy machine may need it.
const patience = 90 * time.Second

// pause is the time between the first two checks of a condition.
const pause = 20 * time.Millisecond

// next returns the time until the next check. It grows, so that waiting costs little.
func next(wait time.Duration) time.Duration { return min(wait*5/4, 5*pause) }

// server is a comet program with a data folder of its own.
type server struct {
	t       testing.TB
	dir     string
	url     string
	process *exec.Cmd
	token   string // of the administrator
	link    string // the login link of the first start
	flags   []string
}

// startServer starts a server with additional flags. It stops when the test ends.
func startServer(t testing.TB, flags ...string) *server {
	s := &server{t: t, dir: t.TempDir(), flags: flags}
	s.start("127.0.0.1:0")
	token, err := os.ReadFile(filepath.Join(s.dir, "admin.token"))
	require.NoError(t, err)
	s.token = strings.TrimSpace(string(token))
	t.Cleanup(s.kill)
	return s
}

// start starts the program and waits until it listens.
func (s *server) start(address string) {
	s.process = exec.Command(os.Getenv("PROGRAM"), append([]string{"serve", "--data", s.dir, "--listen", address}, s.flags...)...)
	for _, setting := range os.Environ() { // those of CI are not for the server
		if !strings.HasPrefix(setting, "COMET_") {
			s.process.Env = append(s.process.Env, setting)
		}
	}
	out, err := s.process.StdoutPipe()
	require.NoError(s.t, err)
	errors := &bytes.Buffer{}
	s.process.Stderr = errors
	require.NoError(s.t, s.process.Start())
	lines := bufio.NewScanner(out)
	for s.url == "" || !strings.Contains(lines.Text(), "Dashboard") {
		require.True(s.t, lines.Scan(), "the server ended: %s", errors)
		if _, rest, ok := strings.Cut(lines.Text(), "comet listens on "); ok {
			s.url, _, _ = strings.Cut(rest, " ")
		}
	}
	s.link = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "Dashboard"))
	go func() { _, _ = io.Copy(io.Discard, out) }()
	eventually(s.t, "the server is ready", func() bool {
		r, err := http.Get(s.url + "/readyz")
		if err == nil {
			_ = r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	})
}

// kill kills the program with SIGKILL.
func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// restart starts the program again at the same address.
func (s *server) restart() { s.start(strings.TrimPrefix(s.url, "http://")) }

// call sends a request of the REST API with a token and decodes the response.
func (s *server) call(token, method, path string, body, into any) int {
	s.t.Helper()
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		require.NoError(s.t, err)
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, content)
	require.NoError(s.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	if into != nil {
		require.NoError(s.t, json.Unmarshal(text, into), "%s %s: %s", method, path, text)
	}
	return response.StatusCode
}

// do is call by the administrator, which must succeed.
func (s *server) do(method, path string, body, into any) {
	s.t.Helper()
	var raw json.RawMessage
	status := s.call(s.token, method, path, body, &raw)
	require.Less(s.t, status, 300, "%s %s: %s", method, path, raw)
	if into != nil {
		require.NoError(s.t, json.Unmarshal(raw, into))
	}
}

// object is a JSON object.
type object = map[string]any

// createToken creates a token and returns its id and secret.
func (s *server) createToken(name, agent string, scopes ...string) (id, secret string) {
	draft := object{"name": name, "scopes": scopes}
	if agent != "" {
		draft["agent_id"] = agent
	}
	var issued struct{ ID, Token string }
	s.do(http.MethodPost, "/api/v1/tokens", draft, &issued)
	return issued.ID, issued.Token
}

// createAgent creates an agent of level 2 that can greet.
func (s *server) createAgent(id string) {
	s.do(http.MethodPost, "/api/v1/agents", object{"id": id, "name": "Agent " + id, "level": 2, "parent_id": "orch-my-team", "type": "demo", "capabilities": []string{"custom:greet"}, "token_budget": 5000}, nil)
}

// startWorker starts a worker of an agent, which runs a shell command for each task.
func (s *server) startWorker(agent, command string) {
	_, secret := s.createToken("worker "+agent, agent, "messages:send")
	worker := exec.Command(os.Getenv("PROGRAM"), "worker", "--", "sh", "-c", command)
	worker.Dir = s.t.TempDir()
	worker.Env = append(os.Environ(), "COMET_SERVER="+s.url, "COMET_TOKEN="+secret)
	require.NoError(s.t, worker.Start())
	s.t.Cleanup(func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
	})
	eventually(s.t, "the worker is connected", func() bool {
		var w struct{ State string }
		return s.call(s.token, http.MethodGet, "/api/v1/workers/"+agent, nil, &w) == http.StatusOK && w.State == "online"
	})
}

// submit submits a task and returns its id.
func (s *server) submit(parameters object) string {
	var task struct{ ID string }
	s.do(http.MethodPost, "/api/v1/tasks", object{"capabilities": []string{"custom:greet"}, "parameters": parameters}, &task)
	return task.ID
}

// waitForTask waits until a task has a state.
func (s *server) waitForTask(id, state string) {
	eventually(s.t, fmt.Sprintf("task %s is %s", id, state), func() bool {
		var task struct{ State string }
		s.do(http.MethodGet, "/api/v1/tasks/"+id, nil, &task)
		return task.State == state
	})
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end, wait := time.Now().Add(patience), pause; !condition(); wait = next(wait) {
		require.True(t, time.Now().Before(end), "waited too long: %s", what)
		<-time.After(wait)
	}
}
