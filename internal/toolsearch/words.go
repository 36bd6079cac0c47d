package toolsearch

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/kljensen/snowball/english"
	snowball "github.com/kljensen/snowball/french"
)

// vocabulary is the table of words; its head says what it is for.
//
//go:embed vocabulary.txt
var vocabulary string

const (
	// nearby is what a word counts that means about the same as one that was asked for.
	nearby = 0.85
	// translated is what the English word for a French one counts where that is one of the
	// first two of its row, and loosely where it is a further one.
	translated, loosely = 0.95, 0.8
	// secondary is what the words count that stand beside a translation.
	secondary = 0.5
)

// choice is a term that may stand for a word, and what it counts.
type choice struct {
	term   string
	weight float32
}

// group is the terms that may stand for one word.
type group []choice

// wanted is a word that was asked for.
type wanted struct {
	group
	word    string // as it was written, folded
	plural  bool
	bridged bool // the vocabulary has it, or nobody has to look for it there
	general bool // the vocabulary has it
	language
	share float32 // of what a word weighs, 1 for all
}

// words is what is known of English and French. It is read only.
type words struct {
	stops [2]map[string]bool // by language, folded
	// near and french have the groups that stand for a stem, or for the stems of a phrase
	// with spaces between them. A word that means two in English ("PR") has two groups.
	near, french map[string][]group
	// intents are the same for words that stand for one of each group, by language: what else
	// they may mean does not count.
	intents [2]map[string][]group
	// sayings are the intents that are a phrase only with its small words ("note that"), by
	// language; begins has their first words, folded.
	sayings [2]map[string][]group
	begins  map[string]bool
	longest int // words of the longest phrase
	// destroyers are the words for taking something away or ending it, folded, and
	// destroying their terms.
	destroyers, destroying map[string]bool
	written                [2]map[string]string // single words of the vocabulary, by language and folded
	spelled                []spelled            // the same and the small words, sorted
	// domains and pictures are the endings of addresses, and of the names of pictures and
	// sounds.
	domains, pictures map[string]bool
	// actions are what stems do, by language; questions are the words a question begins
	// with, and phrases of two that begin none, folded.
	actions   [2]map[string]actions
	questions map[string]bool
}

type language uint8

const (
	anglais language = iota
	francais
	unclear
)

func newWords() *words {
	w := &words{near: map[string][]group{}, french: map[string][]group{}, longest: 1, intents: [2]map[string][]group{{}, {}}, sayings: [2]map[string][]group{{}, {}}, begins: map[string]bool{}, written: [2]map[string]string{{}, {}}, actions: [2]map[string]actions{{}, {}}}
	rows := actionRows()
	for line := range strings.SplitSeq(vocabulary, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if head, rest, means := strings.Cut(line, "<"); means {
			en, fr, _ := strings.Cut(rest, "|")
			w.addMeanings(strings.Fields(head), strings.Fields(en), strings.Fields(fr))
			continue
		}
		head, rest, _ := strings.Cut(line, "=")
		en, fr, _ := strings.Cut(rest, "|")
		if a := rows[strings.TrimSpace(head)]; a != 0 {
			w.addActions(a, strings.Fields(en), strings.Fields(fr))
		}
		switch head = strings.TrimSpace(head); head {
		case "small_words":
			w.stops[anglais], w.stops[francais] = set(en), set(fr)
		case "reading_words", "making_words", "changing_words", "doing_words":
		case "question_words":
			w.questions = phrases(en + " " + fr)
		case "endings_of_addresses":
			w.domains = set(en)
		case "endings_of_media":
			w.pictures = set(en)
		case "destroying_words":
			w.addDestroyers(strings.Fields(en), strings.Fields(fr))
		default:
			if strings.ContainsAny(head, "+/") {
				w.addIntent(head, strings.Fields(en), strings.Fields(fr))
				continue
			}
			w.add(strings.Fields(head), strings.Fields(en), strings.Fields(fr))
		}
	}
	w.spelled = w.spellings()
	return w
}

func set(list string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		out[fold(w)] = true
	}
	return out
}

// phrases is the set of a list of words and phrases, these with spaces.
func phrases(list string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		out[plainly(strings.Split(w, "_"))] = true
	}
	return out
}

// add takes a row of the table.
func (w *words) add(heads, en, fr []string) {
	if strings.Contains(heads[0], "_") {
		w.addPhrase(heads[0], en, fr)
		return
	}
	for _, word := range slices.Concat(heads, en) {
		g := group{}
		for _, h := range heads {
			g = append(g, choice{stem(h, anglais), nearby})
		}
		if slices.Contains(heads, word) {
			for _, e := range en {
				if !strings.Contains(e, "_") {
					g = append(g, choice{stem(e, anglais), nearby})
				}
			}
		}
		w.enter(w.near, word, anglais, g)
	}
	for i, word := range fr {
		weight := float32(translated)
		if i >= 2 {
			weight = loosely
		}
		g := group{}
		for _, h := range heads {
			g = append(g, choice{stem(h, anglais), weight})
		}
		for _, e := range en {
			if !strings.Contains(e, "_") {
				g = append(g, choice{stem(e, anglais), secondary})
			}
		}
		w.enter(w.french, word, francais, g)
	}
}

// addPhrase takes a row whose head is several words: all of them are meant.
func (w *words) addPhrase(head string, en, fr []string) {
	parts := strings.Split(head, "_")
	for _, part := range parts {
		g := group{{stem(part, anglais), translated}}
		for _, word := range en {
			key := w.key(strings.Split(word, "_"), anglais)
			w.near[key] = append(w.near[key], g)
		}
		for _, word := range fr {
			key := w.key(strings.Split(word, "_"), francais)
			w.french[key] = append(w.french[key], g)
		}
	}
}

// enter adds a group to a word, or joins it with what the word means already.
func (w *words) enter(table map[string][]group, word string, l language, g group) {
	parts := strings.Split(word, "_")
	w.longest = max(w.longest, len(parts))
	key := w.key(parts, l)
	if len(parts) == 1 {
		w.written[l][fold(word)] = word
	}
	if old := table[key]; len(old) == 1 && len(parts) == 1 {
		old[0] = old[0].join(g)
		return
	}
	table[key] = append(table[key], g)
}

// key is under what the words of a phrase are kept, without its small ones.
func (w *words) key(parts []string, l language) string {
	stems := make([]string, 0, len(parts))
	for _, p := range parts {
		if len(parts) == 1 || !w.stops[l][fold(p)] {
			stems = append(stems, stem(p, l))
		}
	}
	return strings.Join(stems, " ")
}

// stem returns the stem of a word in a language, folded.
func stem(word string, l language) string {
	if l == francais {
		return fold(snowball.Stem(word, true))
	}
	return fold(english.Stem(word, true))
}

// plural reports whether a word looks like several of something. English and French agree
// about most of them.
func plural(word string) bool {
	n := len(word)
	return n > 3 && (word[n-1] == 's' && !strings.ContainsRune("sui", rune(word[n-2])) || strings.HasSuffix(word, "aux") || strings.HasSuffix(word, "eux"))
}

// french is the term of a French word. It is no English one: to go (aller) is not all.
func french(word string) string { return "fr:" + stem(word, francais) }

// languageOf says in which language a text is written, by the words that carry none of
// its meaning, and by what only French has.
func (w *words) languageOf(text []string) language {
	var en, fr int
	for _, word := range text {
		plain := fold(word)
		inEnglish, inFrench := w.stops[anglais][plain], w.stops[francais][plain]
		switch {
		case inEnglish && !inFrench:
			en++
		case inFrench && !inEnglish && w.near[stem(word, anglais)] == nil, plain != word: // comment is how
			fr++
		}
	}
	switch {
	case fr > en:
		return francais
	case en > fr:
		return anglais
	}
	return unclear
}
