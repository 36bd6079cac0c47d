package toolsearch

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// vocabularyText is the table of synonyms; its head describes the format.
//
//go:embed vocabulary.txt
var vocabularyText string

// Weights of terms that stand for a word of a query; the word itself has weight 1.
const (
	synonymWeight = 0.85 // of a two-way row
	// translationWeight is the weight of the heads of a French word's row.
	translationWeight = 0.95
	// besideTranslationWeight is the weight of the other English words of the row.
	besideTranslationWeight = 0.5
	// Words of one-way rows have several meanings: heads weigh less, but the first one more.
	firstHeadWeight, headWeight = 0.5, 0.4
)

// weightedTerm is an index term that can stand for a word of a query.
type weightedTerm struct {
	text   string
	weight float32
}

// alternatives are the terms that can stand for one word; the best one that a tool has counts.
type alternatives []weightedTerm

// vocabulary knows English and French: stop words, synonyms and verbs. It is read only.
type vocabulary struct {
	stopWords [2]map[string]bool // by language, without accents
	// synonyms maps the stems of a word or a phrase, with spaces, to the groups of terms it stands
	// for. A tool needs a term of each group: "PR" stands for "pull" and "request".
	synonyms      [2]map[string][]alternatives
	longestPhrase int // in words
	actions       [2]map[string]action
	// questionWords are the words a question begins with, and phrases of two that begin none.
	questionWords map[string]bool
	words         [2]map[string]string // single words of the table, without accents → as written
	spellings     []spelling           // the same and the stop words, sorted
}

//nolint:gochecknoglobals // parsed once; it does not change
var newVocabulary = sync.OnceValue(func() *vocabulary {
	v := &vocabulary{longestPhrase: 1}
	for l := range 2 {
		v.synonyms[l], v.actions[l], v.words[l] = map[string][]alternatives{}, map[string]action{}, map[string]string{}
	}
	for line := range strings.SplitSeq(vocabularyText, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			v.addLine(line)
		}
	}
	v.spellings = v.vocabularySpellings()
	return v
})

// addLine adds one line of the table: "heads = English | French" or "heads < English | French".
func (v *vocabulary) addLine(line string) {
	at := strings.IndexAny(line, "=<")
	head := strings.TrimSpace(line[:at])
	en, fr, _ := strings.Cut(line[at+1:], "|")
	words := [2][]string{strings.Fields(en), strings.Fields(fr)}
	switch a := actionOfRow(head); {
	case a != 0:
		v.addActions(a, words)
	case head == "stop_words":
		v.stopWords = [2]map[string]bool{set(words[inEnglish]), set(words[inFrench])}
	case head == "question_words":
		v.questionWords = set(slices.Concat(words[inEnglish], words[inFrench]))
	case line[at] == '<':
		v.addOneWay(head, words)
	default:
		v.addTwoWay(strings.Fields(head), words)
	}
}

// set returns words and phrases without accents, phrases with spaces.
func set(words []string) map[string]bool {
	out := map[string]bool{}
	for _, w := range words {
		out[withoutAccents(strings.ReplaceAll(w, "_", " "))] = true
	}
	return out
}

// addTwoWay adds a row of English words that are synonyms, with their French translations.
func (v *vocabulary) addTwoWay(heads []string, words [2][]string) {
	headTerms := terms(heads, synonymWeight)
	for _, word := range slices.Concat(heads, words[inEnglish]) {
		group := slices.Clone(headTerms)
		if slices.Contains(heads, word) {
			group = append(group, terms(words[inEnglish], synonymWeight)...)
		}
		v.define(word, inEnglish, group)
	}
	beside := terms(words[inEnglish], besideTranslationWeight)
	for _, word := range words[inFrench] {
		v.define(word, inFrench, append(terms(heads, translationWeight), beside...))
	}
}

// addOneWay adds a row whose words stand for its heads, not the reverse. A head with "+" has
// several parts, of which a tool needs each; "/" stands between the alternatives of a part.
func (v *vocabulary) addOneWay(head string, words [2][]string) {
	var groups []alternatives
	if strings.Contains(head, "+") {
		for part := range strings.SplitSeq(head, "+") {
			groups = append(groups, terms(strings.Split(strings.TrimSpace(part), "/"), synonymWeight))
		}
	} else {
		heads := strings.Fields(head)
		groups = []alternatives{append(terms(heads[:1], firstHeadWeight), terms(heads[1:], headWeight)...)}
	}
	for l, list := range words {
		for _, word := range list {
			v.define(word, language(l), groups...)
		}
	}
}

// terms returns the English terms of words, without phrases.
func terms(words []string, weight float32) alternatives {
	out := make(alternatives, 0, len(words))
	for _, w := range words {
		if !strings.Contains(w, "_") {
			out = append(out, weightedTerm{stem(w, inEnglish), weight})
		}
	}
	return out
}

// define adds what a word or a phrase stands for. Several groups replace a single one permanently.
func (v *vocabulary) define(word string, l language, groups ...alternatives) {
	parts := strings.Split(word, "_")
	v.longestPhrase = max(v.longestPhrase, len(parts))
	if len(parts) == 1 {
		v.words[l][withoutAccents(word)] = word
	}
	key := phraseKey(parts, l)
	switch known := v.synonyms[l][key]; {
	case len(known) == 1 && len(groups) == 1:
		known[0] = known[0].merge(groups[0])
	case len(known) <= 1:
		v.synonyms[l][key] = slices.Clone(groups)
	}
}

// merge returns the terms of both groups, each with the higher weight.
func (a alternatives) merge(other alternatives) alternatives {
	out := slices.Clone(a)
	for _, t := range other {
		if at := slices.IndexFunc(out, func(o weightedTerm) bool { return o.text == t.text }); at >= 0 {
			out[at].weight = max(out[at].weight, t.weight)
			continue
		}
		out = append(out, t)
	}
	return out
}

func phraseKey(parts []string, l language) string {
	stems := make([]string, 0, len(parts))
	for _, p := range parts {
		stems = append(stems, stem(p, l))
	}
	return strings.Join(stems, " ")
}

// isStopWord reports whether a word has no meaning for the search. Where the language is
// unknown, it has none in both, or it is a French word of at most two letters.
func (v *vocabulary) isStopWord(word string, l language) bool {
	if l == inUnknown {
		return v.stopWords[inEnglish][word] || v.stopWords[inFrench][word] && len(word) <= 2
	}
	return v.stopWords[l][word]
}

// lookup returns the groups of terms that a word stands for with itself, and whether it is known.
func (v *vocabulary) lookup(word string, l language) (groups []alternatives, known bool) {
	en := stem(word, inEnglish)
	own := alternatives{{en, 1}}
	inTable := v.synonyms[inEnglish][en]
	if l != inEnglish {
		own = append(own, weightedTerm{frenchTerm(word), 1})
		if meanings := v.synonyms[inFrench][stem(word, inFrench)]; meanings != nil {
			return withMeanings(own, meanings), true
		}
	}
	if l == inFrench && len(inTable) < 2 { // an English word in French is mostly a false friend, "PR" is not
		return []alternatives{own}, inTable != nil
	}
	return withMeanings(own, inTable), inTable != nil
}

// withMeanings adds the word itself to each group of its meanings.
func withMeanings(own alternatives, meanings []alternatives) []alternatives {
	if len(meanings) == 0 {
		return []alternatives{own}
	}
	out := make([]alternatives, 0, len(meanings))
	for _, m := range meanings {
		out = append(out, own.merge(m))
	}
	return out
}

// lookupPhrase returns the length in words and the meanings of the longest phrase, 0 for none.
func (v *vocabulary) lookupPhrase(words []string, l language) (length int, groups []alternatives) {
	for n := min(v.longestPhrase, len(words)); n > 1; n-- {
		if l != inEnglish {
			if g := v.synonyms[inFrench][phraseKey(words[:n], inFrench)]; g != nil {
				return n, g
			}
		}
		if g := v.synonyms[inEnglish][phraseKey(words[:n], inEnglish)]; g != nil {
			return n, g
		}
	}
	return 0, nil
}

// languageOf returns the language of a text, by its stop words and by accents.
func (v *vocabulary) languageOf(words []string) language {
	var en, fr int
	for _, word := range words {
		plain := withoutAccents(word)
		stopEnglish, stopFrench := v.stopWords[inEnglish][plain], v.stopWords[inFrench][plain]
		switch {
		case stopEnglish && !stopFrench:
			en++
		case stopFrench && !stopEnglish && v.synonyms[inEnglish][stem(word, inEnglish)] == nil, plain != word: // "comment" is "how" in French
			fr++
		}
	}
	switch {
	case fr > en:
		return inFrench
	case en > fr:
		return inEnglish
	}
	return inUnknown
}

// action is a set of the kinds of things that a verb does.
type action uint8

const (
	reads   action = 1 << iota // and changes nothing
	creates                    // something new
	updates                    // something that exists
	deletes                    // something, or ends it
	acts                       // otherwise: clicks, runs, waits
)

// actionOfRow returns the action whose verbs a row of the vocabulary has, 0 for other rows.
func actionOfRow(head string) action {
	return map[string]action{
		"reading_verbs": reads, "creating_verbs": creates, "updating_verbs": updates, "deleting_verbs": deletes, "other_verbs": acts,
	}[head]
}

func (v *vocabulary) addActions(a action, words [2][]string) {
	for l, list := range words {
		for _, word := range list {
			v.actions[l][stem(word, language(l))] |= a
		}
	}
}

// actionOf returns what a word does in a language; 0 for a word that is no verb of the table.
func (v *vocabulary) actionOf(word string, l language) (out action) {
	if l != inFrench {
		out |= v.actions[inEnglish][stem(word, inEnglish)]
	}
	if l != inEnglish {
		out |= v.actions[inFrench][stem(word, inFrench)]
	}
	return out
}

// actionOfName returns what a tool does by the first verb of its name.
func (v *vocabulary) actionOfName(name []string) action {
	for _, word := range name {
		if a := v.actionOf(word, inEnglish); a != 0 {
			return a
		}
	}
	return 0
}

// spelling is a word as tools or the vocabulary have it, without accents.
type spelling struct {
	plain, word string // word has accents; it is empty for a stop word
	term        string
	letters     uint64
	language
}

// vocabularySpellings returns the single words of the vocabulary and the stop words, sorted.
func (v *vocabulary) vocabularySpellings() []spelling {
	var out []spelling
	for l := range language(2) {
		for plain, word := range v.words[l] {
			out = append(out, spelling{plain, word, stem(word, inEnglish), letterSet(plain), l})
		}
		for plain := range v.stopWords[l] {
			out = append(out, spelling{plain, "", "", letterSet(plain), l})
		}
	}
	return sortSpellings(out)
}

func sortSpellings(all []spelling) []spelling {
	slices.SortFunc(all, func(a, b spelling) int { return strings.Compare(a.plain, b.plain) })
	return all
}

// letterSet returns the letters of a word as bits, to skip words that are far apart.
func letterSet(word string) uint64 {
	var set uint64
	for i := range len(word) {
		set |= 1 << (word[i] % 64)
	}
	return set
}
