package toolsearch

import "slices"

// actions are what is done with a thing, a set of bits.
type actions uint8

const (
	reads   actions = 1 << iota // and leaves it as it is
	makes                       // something new
	changes                     // what is there
	takes                       // it away, or ends it
	does                        // something else: clicks, runs, waits
)

const (
	// otherAction is what a tool counts whose name says that it does another kind of thing
	// than was asked for, and akin where the two are making and changing: a review is made
	// and a ticket changed by who would say "approve" and "comment".
	otherAction, akin = 0.7, 0.9
)

// actionRows are the rows of the vocabulary with the words of each action.
func actionRows() map[string]actions {
	return map[string]actions{"reading_words": reads, "making_words": makes, "changing_words": changes, "doing_words": does, "destroying_words": takes}
}

// addActions takes a row of words for what is done.
func (w *words) addActions(a actions, en, fr []string) {
	for _, word := range en {
		w.actions[anglais][stem(word, anglais)] |= a
	}
	for _, word := range fr {
		w.actions[francais][stem(word, francais)] |= a
	}
}

// action returns what a word in a language does.
func (w *words) action(word string, l language) (out actions) {
	if l != francais {
		out |= w.actions[anglais][stem(word, anglais)]
	}
	if l != anglais {
		out |= w.actions[francais][stem(word, francais)]
	}
	return out
}

// asks returns what a query wants done: to see, where it begins as a question, or else what
// its first word does that means anything. It is 0 where that says nothing.
func (w *words) asks(heard *said, wants []wanted) actions {
	list := heard.words
	if w.question(list) {
		return reads
	}
	at := slices.IndexFunc(list, func(word string) bool { return !w.stop(fold(word), heard.language) })
	if at < 0 {
		return 0
	}
	if a := w.action(list[at], heard.language); a != 0 || len(wants) == 0 {
		return a
	}
	return w.action(wants[0].word, heard.language) // as it was understood
}

// question reports whether words begin a question; who asks how to do it wants it done.
func (w *words) question(list []string) bool {
	if len(list) == 0 || !w.questions[fold(list[0])] {
		return false
	}
	return len(list) == 1 || !w.questions[plainly(list[:2])]
}

// does returns what a tool does by its name: by its first verb, by one behind an "or", and
// by one behind a method of HTTP, which in "post-search" says nothing.
func (w *words) does(name []string) (out actions) {
	for i, word := range name {
		a := w.action(word, anglais)
		switch before := fold(name[max(i-1, 0)]); {
		case out == 0, before == "or", before == "post", before == "put":
			out |= a
		}
	}
	return out
}

// compare puts tools back that do by their names something else than is wanted.
func (s *snapshot) compare(asked actions, a *scratch) {
	if asked == 0 {
		return
	}
	for _, doc := range a.touched {
		d := s.docs[doc].actions
		switch {
		case d == 0, d&asked != 0, d == takes: // what takes away is put back already
		case asked&(makes|changes) != 0 && d&(makes|changes) != 0:
			a.total[doc] *= akin
		default:
			a.total[doc] *= otherAction
		}
	}
}
