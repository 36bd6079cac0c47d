package main

import (
	"fmt"
	"path"
	"regexp"
	"sort"
	"strings"
)

// glossaryPage holds the rejected words in the table below the heading "Words that CI rejects".
const glossaryPage = "docs/glossary.md"

// allowMark on a line states that a rejected word is a name of something else there.
const allowMark = "glossary:allow"

// rejected is a word or phrase that the code base does not use, with its replacement.
type rejected struct {
	phrase  string
	instead string
	first   string         // its first word
	text    *regexp.Regexp // in comments, strings and prose
	name    *regexp.Regexp // as a part of an identifier, nil for phrases
}

// checkGlossary looks for rejected words in Go code, SQL, scripts and docs.
func checkGlossary(t *tree) ([]finding, error) {
	words, err := t.rejectedWords()
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	first := map[string]string{}
	for _, f := range t.files {
		if !hasVocabulary(f) {
			continue
		}
		text, err := t.read(f)
		if err != nil {
			return nil, err
		}
		for n, line := range strings.Split(text, "\n") {
			if strings.Contains(line, allowMark) {
				continue
			}
			lower := strings.ToLower(line)
			for _, w := range words {
				if !w.matches(line, lower) {
					continue
				}
				p := folderOf(f)
				counts[p]++
				if first[p] == "" {
					first[p] = fmt.Sprintf("%s:%d has %q, say %s", f, n+1, w.phrase, w.instead)
				}
			}
		}
	}
	var found []finding
	for _, p := range sortedKeys(counts) {
		found = append(found, t.over("glossary", p, counts[p], 0, "rejected words; "+first[p])...)
	}
	return found, nil
}

// matches looks for the phrase in a line; lower is the line in lower case, which rules out most
// lines without a regular expression.
func (r rejected) matches(line, lower string) bool {
	if !strings.Contains(lower, r.first) {
		return false
	}
	return r.text.MatchString(line) || r.name != nil && r.name.MatchString(line)
}

// rejectedWords reads the table of the glossary.
func (t *tree) rejectedWords() ([]rejected, error) {
	text, err := t.read(glossaryPage)
	if err != nil {
		return nil, err
	}
	_, table, ok := strings.Cut(text, "## Words that CI rejects")
	if !ok {
		return nil, fmt.Errorf("%s has no section \"Words that CI rejects\"", glossaryPage)
	}
	var words []rejected
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.Contains(cells[1], "---") || strings.TrimSpace(cells[1]) == "rejected" {
			continue
		}
		for _, phrase := range strings.Split(cells[1], ",") {
			words = append(words, newRejected(strings.TrimSpace(phrase), strings.TrimSpace(cells[2])))
		}
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("%s lists no rejected word", glossaryPage)
	}
	return words, nil
}

func newRejected(phrase, instead string) rejected {
	first, _, _ := strings.Cut(phrase, " ")
	r := rejected{phrase: phrase, instead: instead, first: first, text: regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(regexp.QuoteMeta(phrase), " ", `\s+`) + `\b`)}
	if !strings.Contains(phrase, " ") {
		title := strings.ToUpper(phrase[:1]) + phrase[1:]
		r.name = regexp.MustCompile(`(\b|[a-z0-9_])` + title + `([A-Z0-9_]|s?\b)|\b` + phrase + `(s?[A-Z_0-9])|_` + phrase + `s?\b`)
	}
	return r
}

// hasVocabulary reports whether a file's words are the project's own: not those of source
// documents, recorded traffic, sample data, generated code, old names in the changelog or the
// glossary itself.
func hasVocabulary(f string) bool {
	if hasFolder(f, "testdata") && path.Ext(f) != ".go" && path.Ext(f) != ".txtar" {
		return false
	}
	switch {
	case f == glossaryPage, f == "CHANGELOG.md", f == "LICENSE", f == "examples/roster.yaml", strings.HasPrefix(f, "tools/gates/"),
		strings.HasPrefix(f, "openapi/"), strings.HasPrefix(f, "third_party/js/"), strings.HasPrefix(f, "internal/dashboard/dist/"), strings.Contains(f, "vocabulary"), strings.HasSuffix(f, "package-lock.json"):
		return false
	}
	switch path.Ext(f) {
	case ".go", ".md", ".sql", ".sh", ".mjs", ".ts", ".tsx", ".py", ".yml", ".yaml", ".txtar", "":
		return true
	}
	return false
}

// folderOf returns the package or folder that a file belongs to.
func folderOf(f string) string {
	d := path.Dir(f)
	if i := strings.Index(d, "/testdata"); i >= 0 {
		d = d[:i]
	}
	return d
}

func sortedKeys(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
