package dashboard

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestModules checks that imports of modules have no cycles, and that only main imports the views that it shows.
func TestModules(t *testing.T) {
	t.Parallel()
	imports := map[string][]string{}
	files, err := filepath.Glob("ui/*.ts*")
	require.NoError(t, err)
	static, lazy := regexp.MustCompile(`from "\./([^"]+)"`), regexp.MustCompile(`import\("\./([^"]+)"\)`)
	var views []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		for _, m := range static.FindAllStringSubmatch(string(text), -1) {
			imports[name] = append(imports[name], m[1])
		}
		for _, m := range lazy.FindAllStringSubmatch(string(text), -1) {
			views = append(views, m[1])
		}
	}
	require.Contains(t, views, "task")
	for name, imported := range imports {
		for _, m := range imported {
			assert.NotContains(t, views, m, "%s imports a view", name)
		}
	}
	done := map[string]bool{}
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		require.NotContains(t, path, name, "the imports are a cycle")
		if done[name] {
			return
		}
		done[name] = true
		for _, m := range imports[name] {
			visit(m, append(slices.Clone(path), name))
		}
	}
	for name := range imports {
		visit(name, nil)
	}
}
