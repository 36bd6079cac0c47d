package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/sandbox"
)

func TestTools(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	given := []sandbox.Tool{
		{Server: "github", Name: "list_commits"}, {Server: "my-server", Name: "getURL-list"}, {Server: "JSON", Name: "x"},
		{Server: "files", Name: "read_file"}, {Server: "files", Name: "readFile"}, {Server: "files", Name: "then"},
	}
	echo := func(_ context.Context, server, tool string, args json.RawMessage) (json.RawMessage, error) {
		if tool == "x" {
			return nil, errors.New("it is broken")
		}
		return json.Marshal([]any{server + ":" + tool, args})
	}
	for _, c := range []struct{ name, code, want string }{
		{"exact names", `github.list_commits({limit: 100})`, `["github:list_commits",{"limit":100}]`},
		{"camelCase", `await github.listCommits({limit: 100})`, `["github:list_commits",{"limit":100}]`},
		{"below mcp", `mcp.github.listCommits({})`, `["github:list_commits",{}]`},
		{"no arguments", `github.listCommits()`, `["github:list_commits",{}]`},
		{"a server in camelCase", `myServer.getUrlList({a: 1})`, `["my-server:getURL-list",{"a":1}]`},
		{"a server in snake_case", `my_server.get_url_list()`, `["my-server:getURL-list",{}]`},
		{"a server in quotes", `mcp["my-server"]["getURL-list"]()`, `["my-server:getURL-list",{}]`},
		{"exact names take precedence", `Promise.all([files.read_file(), files.readFile()])`, `[["files:read_file",{}],["files:readFile",{}]]`},
		{"a server hides no global", `typeof JSON.stringify`, `"function"`},
		{"a hidden server is still below mcp", `mcp.JSON.x().catch((e: any) => [e.name, e.message, e instanceof Error])`, `["ToolError","it is broken",true]`},
		{"an unknown tool", "try { github.nothing() } catch (e) { return e.message }", `"server \"github\" has no tool \"nothing\" here"`},
		{"an unknown server", "try { mcp.nowhere.x() } catch (e) { return e.message }", `"there is no server \"nowhere\" here"`},
		{"a server can be awaited", "const g = await github\nreturn typeof g.listCommits", `"function"`},
		{"arguments must be an object", "try { github.listCommits(1 as any) } catch (e) { return e.message }", `"a tool takes an object of arguments"`},
		{"arguments must not be too large", "try { github.listCommits({a: 'x'.repeat(2**20)}) } catch (e) { return e.message }", `"the arguments are too large"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := s.Run(t.Context(), sandbox.Request{Code: c.code, Tools: given, Call: echo})
			require.NoError(t, err)
			require.Equal(t, c.want, string(got.Value))
		})
	}
	f := fails(t, s, sandbox.Request{Code: "\nawait mcp.JSON.x()", Tools: given, Call: echo})
	require.Equal(t, sandbox.Error, f.Name)
	require.Equal(t, "ToolError: it is broken", f.Message)
	require.Equal(t, 1, f.Metrics.ToolCalls)
}

func TestCallsAreConcurrent(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	var mu sync.Mutex
	waiting, most := 0, 0
	full := make(chan struct{})
	call := func(ctx context.Context, _, _ string, args json.RawMessage) (json.RawMessage, error) {
		mu.Lock()
		waiting++
		most = max(most, waiting)
		if waiting == 16 {
			close(full)
		}
		mu.Unlock()
		select {
		case <-full:
		case <-ctx.Done():
		}
		mu.Lock()
		defer mu.Unlock()
		waiting--
		if waiting == 0 {
			full = make(chan struct{}) // the second half
		}
		return args, ctx.Err()
	}
	got, err := s.Run(t.Context(), sandbox.Request{
		Code:  "const all = await Promise.all(Array.from({length: 16}, (_, n) => a.b({n})))\nreturn all.map((x: any) => x.n).join()",
		Tools: []sandbox.Tool{{Server: "a", Name: "b"}}, Call: call,
	})
	require.NoError(t, err)
	require.Equal(t, `"0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"`, string(got.Value))
	require.Equal(t, 16, got.Metrics.ToolCalls)
	require.Equal(t, 16, most)
}

func TestConcurrentCallsAreLimited(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	var mu sync.Mutex
	waiting, most := 0, 0
	call := func(context.Context, string, string, json.RawMessage) (json.RawMessage, error) {
		mu.Lock()
		waiting++
		most = max(most, waiting)
		mu.Unlock()
		defer func() {
			mu.Lock()
			waiting--
			mu.Unlock()
		}()
		return json.RawMessage(`1`), nil
	}
	req := sandbox.Request{Code: "const all = await Promise.all(Array.from({length: context.n}, () => a.b()))\nreturn all.length", Tools: []sandbox.Tool{{Server: "a", Name: "b"}}, Call: call}
	req.Context = json.RawMessage(`{"n": 1000}`)
	got, err := s.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, `1000`, string(got.Value))
	require.LessOrEqual(t, most, 16)
	req.Context = json.RawMessage(`{"n": 1001}`)
	f := fails(t, s, req)
	require.Equal(t, sandbox.ToolCalls, f.Name)
	require.Equal(t, "the code made more than 1000 tool calls and file reads", f.Message)
}

func TestCallsEndWithTheRun(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	ended := make(chan error, 1)
	forever := func(ctx context.Context, _, _ string, _ json.RawMessage) (json.RawMessage, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
	req := sandbox.Request{Tools: []sandbox.Tool{{Server: "a", Name: "b"}}, Call: forever}

	req.Code = "a.b()\nawait null\nreturn 1" // the call is not awaited
	got, err := s.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, "1", string(got.Value))
	require.Error(t, <-ended)

	req.Code, req.Timeout = "await a.b()", 50e6
	require.Equal(t, sandbox.Timeout, fails(t, s, req).Name)
	require.Error(t, <-ended)

	ctx, cancel := context.WithCancel(t.Context())
	req.Timeout = long
	req.Call = func(ctx context.Context, server, tool string, args json.RawMessage) (json.RawMessage, error) {
		cancel() // the caller of Run is gone
		return forever(ctx, server, tool, args)
	}
	_, err = s.Run(ctx, req)
	require.ErrorIs(t, err, context.Canceled)
	require.Error(t, <-ended)
}

func TestReadTextFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(path, text string) string {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("data/a/one.txt", "one é")
	write("data/b/two.txt", "two")
	write("data/large.txt", strings.Repeat("x", 4<<20+1))
	single := write("single/file.txt", "single")
	write("single/other.txt", "other")
	write("secret/key.txt", "secret")
	link := func(to, at string) { require.NoError(t, os.Symlink(to, filepath.Join(dir, at))) }
	link("../secret/key.txt", "data/a/key.txt")
	link(filepath.Join(dir, "secret"), "data/a/secret")
	link("../b", "data/a/beside")
	link("one.txt", "data/a/same.txt")
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "data/pipe"), 0o600))
	protected := write("data/a/protected.txt", "protected")
	s := started(t, &sandbox.Options{
		ReadPaths: []string{filepath.Join(dir, "data"), single}, Protected: func(path string) bool { return path == protected },
	})

	read := func(t *testing.T, granted []string, path string) (string, error) {
		req := sandbox.Request{Code: "return await Deno.readTextFile(context.path)"}
		for _, g := range granted {
			req.ReadPaths = append(req.ReadPaths, filepath.Join(dir, g))
		}
		req.Context, _ = json.Marshal(map[string]string{"path": path})
		got, err := s.Run(t.Context(), req)
		return string(got.Value), err
	}
	for _, c := range []struct {
		name       string
		granted    []string
		path, want string // "" is denied, "!…" another error
	}{
		{"below a granted directory", []string{"data/a"}, "data/a/one.txt", `"one é"`},
		{"through a link within it", []string{"data/a"}, "data/a/same.txt", `"one é"`},
		{"below a directory of the server", []string{""}, "data/b/two.txt", `"two"`},
		{"a single file", []string{"single/file.txt"}, "single/file.txt", `"single"`},
		{"a protected file", []string{"data/a"}, "data/a/protected.txt", ""},
		{"only the granted file", []string{"single"}, "single/other.txt", ""},
		{"without a granted path", nil, "data/a/one.txt", ""},
		{"beside a granted directory", []string{"data/a"}, "data/b/two.txt", ""},
		{"through dots", []string{"data/a"}, "data/a/../b/two.txt", ""},
		{"through a link to a file", []string{"data/a"}, "data/a/key.txt", ""},
		{"through a link to a directory", []string{"data/a"}, "data/a/secret/key.txt", ""},
		{"through a link to another directory of the server", []string{"data/a"}, "data/a/beside/two.txt", ""},
		{"a missing file outside", []string{"data/a"}, "data/none.txt", ""},
		{"a missing file", []string{"data/a"}, "data/a/none.txt", "!no such file"},
		{"a file that is too large", []string{"data"}, "data/large.txt", "!more than"},
		{"a directory", []string{"data"}, "data/a", "!not a regular file"},
		{"a named pipe", []string{"data"}, "data/pipe", "!not a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := read(t, c.granted, dir+"/"+c.path)
			if c.want != "" && c.want[0] != '!' {
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				return
			}
			var f *sandbox.Failure
			require.ErrorAs(t, err, &f)
			if c.want == "" {
				require.Equal(t, sandbox.PathDenied, f.Name, f)
				return
			}
			require.Equal(t, sandbox.Error, f.Name)
			require.Contains(t, f.Message, c.want[1:])
		})
	}
	for _, path := range []string{"", "data/a/one.txt", "/etc/passwd", "/proc/self/environ", "\x00", dir + "/data/a/one.txt\x00", strings.Repeat("/x", 1<<20)} {
		_, err := read(t, []string{"data"}, path)
		require.ErrorContains(t, err, sandbox.PathDenied, path)
	}
	f := fails(t, s, sandbox.Request{ReadPaths: []string{filepath.Join(dir, "secret")}})
	require.Equal(t, sandbox.PathDenied, f.Name)
	f = fails(t, s, sandbox.Request{ReadPaths: []string{"data"}})
	require.Equal(t, sandbox.Config, f.Name)
	got := run(t, s, `readTextFile("/etc/passwd").catch((e: any) => e.name)`)
	require.Equal(t, `"SANDBOX_PATH_DENIED"`, got)
}
