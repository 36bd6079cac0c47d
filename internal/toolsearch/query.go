package toolsearch

// maxQueryWords is how many words of a query count.
const maxQueryWords = 64

// parsedQuery is the text of a query in words.
type parsedQuery struct {
	words []string
	language
}

// queryTerm is a word or a part of a phrase that tools are searched for.
type queryTerm struct {
	alternatives
	word   string // as it was written, without accents
	plural bool
	known  bool // the vocabulary has it, so it is not a spelling mistake
	language
}

func (v *vocabulary) parse(text string) parsedQuery {
	words := tokenize(text)
	return parsedQuery{words, v.languageOf(words)}
}

// queryTerms returns the phrases and words of a query, with stop words if it has no others.
func (v *vocabulary) queryTerms(q *parsedQuery) []queryTerm {
	words := q.words[:min(len(q.words), maxQueryWords)]
	out := v.termsOf(words, q.language, true)
	if len(out) == 0 {
		out = v.termsOf(words, q.language, false)
	}
	return out
}

func (v *vocabulary) termsOf(words []string, l language, skipStopWords bool) (out []queryTerm) {
	for i := 0; i < len(words); {
		n, groups := v.lookupPhrase(words[i:], l)
		known := true
		if n == 0 {
			n = 1
			if !skipStopWords || !v.isStopWord(withoutAccents(words[i]), l) {
				groups, known = v.lookup(words[i], l)
			}
		}
		i += n
		out = append(out, newQueryTerms(groups, words[i-1], known, l)...)
	}
	return out
}

// newQueryTerms returns a term for each group that a word or a phrase that ends with it stands for.
func newQueryTerms(groups []alternatives, word string, known bool, l language) []queryTerm {
	out := make([]queryTerm, 0, len(groups))
	for _, g := range groups {
		out = append(out, queryTerm{alternatives: g, word: withoutAccents(word), plural: isPlural(word), known: known, language: l})
	}
	return out
}

// wantedAction returns the action that a query asks for: reading for a question, else that of its first word.
func (v *vocabulary) wantedAction(q *parsedQuery) action {
	if v.isQuestion(q.words) {
		return reads
	}
	for _, word := range q.words {
		if !v.isStopWord(withoutAccents(word), q.language) {
			return v.actionOf(word, q.language)
		}
	}
	return 0
}

// isQuestion reports whether words begin a question, other than how to do something.
func (v *vocabulary) isQuestion(words []string) bool {
	if len(words) == 0 || !v.questionWords[withoutAccents(words[0])] {
		return false
	}
	return len(words) == 1 || !v.questionWords[withoutAccents(words[0]+" "+words[1])]
}
