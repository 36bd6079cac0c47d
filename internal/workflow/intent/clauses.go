package intent

import (
	_ "embed"
	"slices"
	"strings"
)

// wordsText is the table of words; its head describes the format.
//
//go:embed words.txt
var wordsText string

// lexicon is the table of words.
type lexicon struct {
	lists map[string]map[string]bool
	// names and values are the names and the values that a word stands for.
	names, values map[string][]string
}

func newLexicon() *lexicon {
	l := &lexicon{lists: map[string]map[string]bool{"verbs": {}}, names: map[string][]string{}, values: map[string][]string{}}
	for line := range strings.SplitSeq(wordsText, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		for _, w := range words[1:] {
			switch head := words[0]; {
			case strings.HasSuffix(head, ":"):
				l.names[w] = append(l.names[w], head[:len(head)-1])
			case strings.HasSuffix(head, "|"):
				l.values[w] = append(l.values[w], head[:len(head)-1])
			case head == "verbs_er":
				for _, ending := range []string{"er", "e", "es", "ez"} {
					l.lists["verbs"][strings.TrimSuffix(w, "er")+ending] = true
				}
			default:
				if l.lists[head] == nil {
					l.lists[head] = map[string]bool{}
				}
				if w != "=" || words[1] != w || len(words) == 2 {
					l.lists[head][w] = true
				}
			}
		}
	}
	l.lists["connectives"]["="] = true
	return l
}

// has reports whether a list has a word or a separator.
func (l *lexicon) has(list string, t token) bool {
	return t.kind == word && l.lists[list][t.plain] || t.kind == separator && l.lists[list][t.text]
}

// clause is the part of a sentence that one step executes.
type clause struct {
	tokens []token
	// sequential is true where "then" or a like word begins the clause.
	sequential bool
}

// split splits a sentence at conjunctions and separators that a verb follows, and at "then".
func (l *lexicon) split(tokens []token) []*clause {
	current := &clause{}
	out := []*clause{current}
	for i := 0; i < len(tokens); {
		end, sequential := i, false
		for end < len(tokens) && (tokens[end].kind == separator || l.has("conjunctions", tokens[end])) {
			sequential = sequential || l.has("sequential", tokens[end])
			end++
		}
		if end > i && end < len(tokens) && len(current.tokens) > 0 && (sequential || l.isImperative(tokens[end:])) {
			current = &clause{sequential: sequential}
			out = append(out, current)
		} else {
			end = max(end, i+1)
			current.tokens = append(current.tokens, tokens[i:end]...)
		}
		i = end
	}
	return out
}

// isImperative reports whether the first word that is no filler is a verb.
func (l *lexicon) isImperative(tokens []token) bool {
	for i, t := range tokens {
		t.plain, _, _ = strings.Cut(t.plain, "-") // "donne-moi"
		isNoun := i > 0 && l.has("clitics", tokens[i-1]) && !strings.HasSuffix(t.plain, "r") && !strings.HasSuffix(t.plain, "re")
		isHow := t.plain == "comment" && i+1 < len(tokens) && l.has("verbs", tokens[i+1]) // in French
		switch {
		case l.has("verbs", t) && !isNoun && !isHow:
			return true
		case t.kind != separator && !l.has("fillers", t) && !l.has("sequential", t):
			return false
		}
	}
	return false
}

// text returns the text to search tools for: the words that are not explained, with words for paths and URLs.
func (l *lexicon) text(c *clause, explained map[int]bool) string {
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
		case t.kind == filePath && !file && !t.isRepository():
			out, file = append(out, map[bool]string{true: "directory", false: "file"}[strings.HasSuffix(t.text, "/")]), true
		}
	}
	return strings.Join(out, " ")
}
