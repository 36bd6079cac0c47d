package app_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table in docs/performance.md is between these lines.
const (
	costsPage  = "../../docs/performance.md"
	costsBegin = "<!-- costs: written by go test ./internal/app -run TestCosts -update -->\n"
	costsEnd   = "<!-- end of costs -->\n"
)

// costsAreDocumented compares the table with the transcripts of both databases, or rewrites it.
func costsAreDocumented(t *testing.T) {
	raw, err := os.ReadFile(costsPage)
	require.NoError(t, err)
	before, rest, begins := strings.Cut(string(raw), costsBegin)
	table, after, ends := strings.Cut(rest, costsEnd)
	require.True(t, begins && ends, "%s has no place for the table of costs", costsPage)
	want := costsTable(t)
	if *updateCosts {
		require.NoError(t, os.WriteFile(costsPage, []byte(before+costsBegin+want+costsEnd+after), 0o644))
		return
	}
	require.Equal(t, want, table, "%s\n%s", costsPage, howToUpdate)
}

// costsTable returns one row for each transcript. If the databases differ, the figure of PostgreSQL
// follows that of SQLite.
func costsTable(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob("testdata/costs/sqlite/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	var out strings.Builder
	out.WriteString("| operation | commits | statements | rows written | transcript |\n|---|---|---|---|---|\n")
	for _, path := range paths {
		sqlite, postgres := headOf(t, path), headOf(t, filepath.Join("testdata/costs/postgres", filepath.Base(path)))
		both := func(key string) string {
			a, b := cmp.Or(sqlite[key], "0"), cmp.Or(postgres[key], "0")
			if a == b {
				return a
			}
			return a + " / " + b
		}
		commits := both("commits")
		if n := both("rollbacks"); n != "0" {
			commits += ", rolled back: " + n
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | `%s` |\n", sqlite["operation"], commits, both("statements"), both("rows written"), strings.TrimSuffix(filepath.Base(path), ".txt"))
	}
	return out.String()
}

var headLine = regexp.MustCompile(`(?m)^(operation|commits|rollbacks|statements|rows written): ([^\n]*?)(?: \(reads \d+, writes \d+\))?$`)

// headOf returns the figures at the beginning of a transcript.
func headOf(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err, howToUpdate)
	out := map[string]string{}
	for _, found := range headLine.FindAllStringSubmatch(string(text), -1) {
		out[found[1]] = found[2]
	}
	return out
}
