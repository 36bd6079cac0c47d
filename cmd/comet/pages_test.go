package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages returns the Markdown files of the repository, by path from its root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		require.NoError(t, err)
		for _, path := range found {
			out[strings.TrimPrefix(path, "../../")] = readText(t, path)
		}
	}
	return out
}

// TestLinks requires the target of each relative link, and the heading that it names.
func TestLinks(t *testing.T) {
	t.Parallel()
	all := pages(t)
	links := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for from, text := range all {
		for _, m := range links.FindAllStringSubmatch(withoutCode(text), -1) {
			if strings.Contains(m[1], "://") || from == "docs/adr/0000-template.md" {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := from
			if file != "" {
				target = filepath.Join(filepath.Dir(from), file)
				require.FileExists(t, existing("../../"+target), "%s links to %s", from, m[1])
			}
			if anchor != "" {
				require.Contains(t, anchors(all[target]), anchor, "%s links to %s", from, m[1])
			}
		}
	}
	index := all["docs/README.md"]
	for page := range all {
		if name, ok := strings.CutPrefix(page, "docs/"); ok && name != "README.md" && name != "adr/0000-template.md" {
			require.Contains(t, index, "]("+name+")", "docs/README.md lists every page")
		}
	}
}

// existing returns a file that exists if a folder does, for folders as targets of links.
func existing(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return "pages_test.go"
	}
	return path
}

// anchors returns the anchors of headings, as GitHub makes them.
func anchors(page string) (out []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(withoutCode(page), -1) {
		text := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(text, " ", "-"))
	}
	return out
}

// withoutCode removes fenced blocks.
func withoutCode(page string) string {
	return regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(page, "")
}

// TestTroubleshooting requires that each quoted message is a text of the program, and each quoted
// problem type or reason a value of the API description or of the program.
func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	page := readText(t, "../../docs/troubleshooting.md")
	program := sources(t)
	types := readDescription(t).at("components", "schemas", "ProblemCode")["enum"]
	rows := regexp.MustCompile(`(?m)^\| (.*?) \| .* \| .* \|$`).FindAllStringSubmatch(page, -1)
	quoted := 0
	for _, row := range rows {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			quoted++
			parts := strings.Split(m[1], "…")
			switch {
			case regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`).MatchString(m[1]):
				assert.Contains(t, types, m[1])
				continue
			case regexp.MustCompile(`^[a-z_]+$`).MatchString(m[1]):
				parts = []string{`"` + m[1] + `"`}
			}
			for _, part := range parts {
				if !strings.Contains(program, strings.TrimSpace(part)) { // Contains of assert prints the program
					assert.Fail(t, "the program has no such text", "%q", m[1])
				}
			}
		}
	}
	require.Greater(t, quoted, 50)
}

// sources returns the Go code of the program, without tests.
func sources(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, folder := range []string{"agent", "api", "cmd", "internal", "models", "store", "webhooks"} {
		err := filepath.WalkDir("../../"+folder, func(path string, _ os.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				out.WriteString(strings.ReplaceAll(readText(t, path), `\"`, `"`))
			}
			return err
		})
		require.NoError(t, err)
	}
	return out.String()
}

// TestConcepts requires that docs/concepts.md has an example for each term, with members of the
// API description only.
func TestConcepts(t *testing.T) {
	t.Parallel()
	d := readDescription(t)
	var schemas []string
	for _, b := range codeBlocks(readText(t, "../../docs/concepts.md")) {
		name, ok := strings.CutPrefix(b.word, "schema=")
		if !ok {
			continue
		}
		schemas = append(schemas, name)
		var example object
		require.NoError(t, json.Unmarshal([]byte(b.text), &example), "line %d", b.line)
		schema := d.at("components", "schemas", name)
		parts, _ := schema["allOf"].([]any)
		members := slices.Collect(maps.Keys(d.at("components", "schemas", name, "properties")))
		for _, part := range parts {
			part, _ := part.(object)
			reference, _ := part["$ref"].(string)
			properties, _ := part["properties"].(object)
			members = slices.AppendSeq(members, maps.Keys(properties))
			members = slices.AppendSeq(members, maps.Keys(d.at("components", "schemas", filepath.Base(reference), "properties")))
		}
		require.Subset(t, members, slices.Collect(maps.Keys(example)), "line %d", b.line)
	}
	require.Subset(t, schemas, []string{
		"AgentDetail", "AgentUsage", "AttemptView", "Reservation", "TaskView", "TokenView", "ToolView", "UpstreamView", "UsageFact", "WorkerView",
	})
}
