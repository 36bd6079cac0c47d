package app_test

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// programOf is a command of the real program with little in its environment.
func programOf(t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	return cmd
}

// hostileCodes are loops that do not end, more memory than there is, and promises without
// end, with how each run ends.
func hostileCodes() (out []struct{ code, ends string }) {
	add := func(times int, code, ends string) {
		for range times {
			out = append(out, struct{ code, ends string }{code, ends})
		}
	}
	add(8, "while (true) {}", "SANDBOX_TIMEOUT")
	add(4, "const all = []; while (true) { all.push(new Array(10000).fill(all.length)) }", "SANDBOX_MEMORY")
	add(2, "const again = () => Promise.resolve().then(again); await again()", "SANDBOX_TIMEOUT")
	return out
}

// TestTheServerGoesOnWhileHostileCodeRuns: every call of a cheap tool succeeds while code does
// its worst in the sandbox, and each of those runs ends as documented.
func TestTheServerGoesOnWhileHostileCodeRuns(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := serve(t, data, withTools(t), env("COMET_SANDBOX_TIMEOUT=2s", "COMET_SANDBOX_MEMORY_MB=64", "COMET_SANDBOX_RUNNING=14"))
	c := newClient(t, p.url(t), adminToken(t, data))
	cheap, hostile := c.mcpClient(t), c.mcpClient(t)
	codes := hostileCodes()
	ends, failures := make([]string, len(codes)), make([]error, len(codes))
	var running sync.WaitGroup
	for i, code := range codes {
		running.Go(func() {
			res, err := hostile.CallTool(t.Context(), &mcp.CallToolParams{Name: "agentcards:execute_code", Arguments: map[string]any{"code": code.code}})
			if failures[i] = err; err == nil {
				ends[i] = res.Content[0].(*mcp.TextContent).Text
			}
		})
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		running.Wait()
	}()
	calls := 0
	for going := true; going; calls++ {
		require.NoError(t, echo(t.Context(), cheap, fmt.Sprint(calls)))
		select {
		case <-over:
			going = false
		default:
		}
	}
	for i, code := range codes {
		require.NoError(t, failures[i])
		// Where many loops share few processors, the clock may end a run before its memory does.
		require.True(t, strings.HasPrefix(ends[i], code.ends) || strings.HasPrefix(ends[i], "SANDBOX_TIMEOUT"), "%s: %s", code.code, ends[i])
	}
	require.Greater(t, calls, 1)
	p.stop(t)
}
