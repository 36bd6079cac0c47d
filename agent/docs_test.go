package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocumentedProgramBuilds builds the program of docs/agents.md in a module of its own, beside a
// checkout of comet, without a network.
func TestDocumentedProgramBuilds(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/agents.md")
	require.NoError(t, err)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	parent := t.TempDir()
	require.NoError(t, os.Symlink(root, filepath.Join(parent, "comet")))
	dir := filepath.Join(parent, "deployer")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for name, begin := range map[string]string{"go.mod": "```text\nmodule deployer", "main.go": "```go\npackage main"} {
		_, rest, found := strings.Cut(string(page), begin)
		require.True(t, found, name)
		_, begin, _ = strings.Cut(begin, "\n")
		text, _, found := strings.Cut(rest, "```\n")
		require.True(t, found, name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(begin+text), 0o600))
	}
	require.Contains(t, string(page), "$ go get comet/agent\n")
	for _, command := range []string{"go get comet/agent", "go vet .", "go build -o deployer ."} {
		words := strings.Fields(command)
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
	}
}
