package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImageContext proves that .dockerignore lets every file through that the image is built from.
func TestImageContext(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.dockerignore")
	require.NoError(t, err)

	t.Run("every source file is in the context", func(t *testing.T) {
		t.Parallel()
		rules := parseIgnore(string(text))
		missing := map[string]string{} // folder below the top → one of its files
		for _, file := range imageSources(t) {
			if rules.leavesOut(file) {
				folder, _, _ := strings.Cut(file, "/")
				missing[folder] = file
			}
		}
		for _, folder := range slices.Sorted(maps.Keys(missing)) {
			t.Errorf(".dockerignore leaves out %s, but the image is built from %s: add !%s to .dockerignore", folder, missing[folder], folder)
		}
	})

	t.Run("a pattern means what it means to docker", func(t *testing.T) {
		t.Parallel()
		rules := parseIgnore("# a comment\n\n*\n!/go.mod\n!api/\n!store\n**/*_test.go\n**/testdata\n!store/testdata/kept.sql\nstore/a?[0-9].txt\n")
		for file, out := range map[string]bool{
			"README.md": true, "agent/client.go": true, "go.mod": false, "sub/go.mod": true, "api/api.go": false,
			"api/docs/index.html": false, "apis/api.go": true, "api/api_test.go": true, "main_test.go": true,
			"store/testdata/x.sql": true, "store/testdata/kept.sql": false, "store/deep/testdata/x/y.sql": true,
			"store/ab1.txt": true, "store/ab.txt": false, "store/deep/ab1.txt": false,
		} {
			require.Equal(t, out, rules.leavesOut(file), file)
		}
	})
}

// imageSources lists the files below the top of the repository that "go build ./cmd/comet" reads
// for the image, by their slash-separated paths.
func imageSources(t *testing.T) []string {
	t.Helper()
	top, err := filepath.Abs("../..")
	require.NoError(t, err)
	sources := []string{"go.mod", "go.sum"}
	var module struct {
		Replace []struct{ New struct{ Path string } }
	}
	require.NoError(t, json.Unmarshal(goCommand(t, top, "mod", "edit", "-json"), &module))
	for _, r := range module.Replace {
		if strings.HasPrefix(r.New.Path, "./") {
			sources = append(sources, filepath.ToSlash(filepath.Join(r.New.Path, "go.mod")))
		}
	}
	packages := json.NewDecoder(bytes.NewReader(goCommand(t, top, "list", "-deps", "-json", "./cmd/comet")))
	for {
		var p struct {
			Dir                                 string
			GoFiles, SFiles, HFiles, EmbedFiles []string
		}
		err := packages.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		dir, err := filepath.Rel(top, p.Dir)
		if err != nil || !filepath.IsLocal(dir) {
			continue // of the standard library or the module cache
		}
		for _, name := range slices.Concat(p.GoFiles, p.SFiles, p.HFiles, p.EmbedFiles) {
			sources = append(sources, filepath.ToSlash(filepath.Join(dir, name)))
		}
	}
	require.Contains(t, sources, "cmd/comet/main.go")
	return sources
}

// goCommand runs the go command for the image's platform and returns its output.
func goCommand(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	out, err := cmd.Output()
	require.NoError(t, err)
	return out
}

// ignoreRules are the patterns of a .dockerignore file in their order.
type ignoreRules []ignoreRule

type ignoreRule struct {
	pattern *regexp.Regexp
	keeps   bool // the pattern begins with "!"
}

// parseIgnore reads a .dockerignore file: comments, "!", "*", "?", "[a-z]" and "**".
func parseIgnore(text string) (rules ignoreRules) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, keeps := strings.CutPrefix(line, "!")
		pattern = strings.Trim(pattern, "/")
		expression := regexp.QuoteMeta(pattern)
		for _, r := range [][2]string{{`\*\*/`, `(.*/)?`}, {`\*\*`, `.*`}, {`\*`, `[^/]*`}, {`\?`, `[^/]`}, {`\[`, `[`}, {`\]`, `]`}} {
			expression = strings.ReplaceAll(expression, r[0], r[1])
		}
		rules = append(rules, ignoreRule{regexp.MustCompile("^" + expression + "(/.*)?$"), keeps}) // a folder stands for its files
	}
	return rules
}

// leavesOut reports whether a file does not reach the builder: the last pattern that matches
// decides.
func (rules ignoreRules) leavesOut(file string) bool {
	for _, r := range slices.Backward(rules) {
		if r.pattern.MatchString(file) {
			return !r.keeps
		}
	}
	return false
}
