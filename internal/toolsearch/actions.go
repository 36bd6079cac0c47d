package toolsearch

import "slices"

// action is a set of the kinds of things that a verb does.
type action uint8

const (
	reads   action = 1 << iota // and changes nothing
	creates                    // something new
	updates                    // something that exists
	deletes                    // something, or ends it
	acts                       // otherwise: clicks, runs, waits
)

const (
	// otherAction is the factor for a tool whose name has a verb of another kind than the query.
	otherAction = 0.7
	// unwantedDelete is the factor for a tool that deletes where the query has no such verb.
	unwantedDelete = 0.6
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

// wantedAction returns what a query wants done: to read, where it begins as a question, or else
// what its first word does. terms are its words after spelling was corrected. Deleting counts
// wherever the query mentions it.
func (v *vocabulary) wantedAction(q *parsedQuery, terms []queryTerm) (out action) {
	first := slices.IndexFunc(q.words, func(word string) bool { return !v.isStopWord(withoutAccents(word), q.language) })
	switch {
	case v.isQuestion(q.words):
		out = reads
	case first >= 0:
		out = v.actionOf(q.words[first], q.language)
	}
	if out == 0 && len(terms) > 0 {
		out = v.actionOf(terms[0].word, q.language)
	}
	for i := range terms {
		out |= v.actionOf(terms[i].word, q.language) & deletes
	}
	return out
}

// isQuestion reports whether words begin a question, other than how to do something.
func (v *vocabulary) isQuestion(words []string) bool {
	if len(words) == 0 || !v.questionWords[withoutAccents(words[0])] {
		return false
	}
	return len(words) == 1 || !v.questionWords[withoutAccents(words[0]+" "+words[1])]
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

// demote lowers the scores of tools whose names do something else than is wanted. A hit stays
// one.
func (s *snapshot) demote(wanted action, acc *accumulator) {
	for _, doc := range acc.touched {
		factor := float32(1)
		switch a := s.docs[doc].action; {
		case a == deletes && wanted&deletes == 0:
			factor = unwantedDelete
		case a != 0 && wanted != 0 && a&wanted == 0:
			factor = otherAction
		}
		if total := acc.total[doc]; total >= minScore {
			acc.total[doc] = max(total*factor, minScore)
		}
	}
}
