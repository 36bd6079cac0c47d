package intent

import (
	_ "embed"
	"slices"
	"strings"
)

// wordsText is the table of words; the comment at its beginning describes the format.
//
//go:embed words.txt
var wordsText string

// lexicon is the table of words: lists by name.
type lexicon map[string]map[string]bool

func newLexicon() lexicon {
	l := lexicon{}
	for line := range strings.Lines(wordsText) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if l[words[0]] == nil {
			l[words[0]] = map[string]bool{}
		}
		for _, w := range words[1:] {
			l[words[0]][w] = true
		}
	}
	return l
}

// has reports whether a list has a word or a separator.
func (l lexicon) has(list string, t token) bool {
	return t.kind == word && l[list][t.plain] || t.kind == separator && l[list][t.text]
}

func (l lexicon) isVerb(t token) bool {
	t.plain, _, _ = strings.Cut(t.plain, "-") // "donne-moi"
	imperative := func(ending string) bool {
		root, ok := strings.CutSuffix(t.plain, ending)
		return ok && l["verbs_er"][root+"er"]
	}
	return l.has("verbs", t) || t.kind == word && slices.ContainsFunc([]string{"er", "e", "es", "ez"}, imperative)
}

// isRequest reports whether the first word that is no filler is a verb.
func (l lexicon) isRequest(tokens []token) bool {
	for i, t := range tokens {
		isNoun := i > 0 && l.has("clitics", tokens[i-1]) && !strings.HasSuffix(t.plain, "r") && !strings.HasSuffix(t.plain, "re")
		isHow := t.plain == "comment" && i+1 < len(tokens) && l.isVerb(tokens[i+1]) // in French
		switch {
		case l.isVerb(t) && !isNoun && !isHow:
			return true
		case t.kind != separator && !l.has("fillers", t) && !l.has("sequential", t):
			return false
		}
	}
	return false
}

// clause is the part of a sentence that one step executes.
type clause struct {
	tokens []token
	// sequential is set if the clause follows "then" or a similar word.
	sequential bool
}

// split splits a sentence at conjunctions and separators that a verb follows, and at "then".
func (l lexicon) split(tokens []token) []*clause {
	out := []*clause{{}}
	for i := 0; i < len(tokens); {
		end, sequential := i, false
		for end < len(tokens) && (tokens[end].kind == separator || l.has("conjunctions", tokens[end])) {
			sequential = sequential || l.has("sequential", tokens[end])
			end++
		}
		current := out[len(out)-1]
		if end > i && end < len(tokens) && len(current.tokens) > 0 && (sequential || l.isRequest(tokens[end:])) {
			out = append(out, &clause{sequential: sequential})
		} else {
			end = max(end, i+1)
			current.tokens = append(current.tokens, tokens[i:end]...)
		}
		i = end
	}
	return out
}

// text returns the text to search tools for: the words that are not explained, with words for paths and URLs.
func (l lexicon) text(c *clause, explained map[int]bool) string {
	var out []string
	file := slices.ContainsFunc(c.tokens, func(t token) bool { return l.has("files", t) })
	for i, t := range c.tokens {
		switch {
		case explained[i]:
		case t.kind == word:
			out = append(out, strings.ReplaceAll(t.text, "-", " "))
		case t.kind == webURL:
			out = append(out, "URL")
		case t.kind == email:
			out = append(out, "email")
		case t.kind == filePath && !file:
			out, file = append(out, map[bool]string{true: "directory", false: "file"}[strings.HasSuffix(t.text, "/")]), true
		}
	}
	return strings.Join(out, " ")
}
