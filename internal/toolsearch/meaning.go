package toolsearch

import (
	"slices"
	"strings"
)

// meaning is what the first word of a row of meanings counts, and further the others: much
// less than a word that was said, for such rows are long and go one way.
const meaning, further = 0.5, 0.4

// addMeanings takes a row whose words and phrases mean any of those of its head, which do
// not mean them.
func (w *words) addMeanings(heads, en, fr []string) {
	for l, list := range [2][]string{en, fr} {
		for _, word := range list {
			weight := float32(meaning)
			g := group{}
			for _, h := range heads {
				g = append(g, choice{stem(h, anglais), weight})
				weight = further
			}
			w.addMeaning(strings.Split(word, "_"), language(l), g)
		}
	}
}

// addMeaning adds to what a word or a phrase means. Phrases that consist of small words, but
// for one at the most, are kept with them.
func (w *words) addMeaning(parts []string, l language, g group) {
	table := [2]map[string][]group{w.near, w.french}[l]
	key := w.key(parts, l)
	switch {
	case len(parts) == 1:
		w.enter(table, parts[0], l, g)
		return
	case !strings.Contains(key, " "):
		table, key = w.sayings[l], plainly(parts)
		w.begins[fold(parts[0])] = true
	}
	w.longest = max(w.longest, len(parts))
	switch old := table[key]; len(old) {
	case 0:
		table[key] = []group{g}
	case 1:
		old[0] = old[0].join(g)
	} // what stands for several words stands for these
}

// join adds what another group has, each term with the higher weight of both.
func (g group) join(other group) group {
	for _, c := range other {
		if at := slices.IndexFunc(g, func(o choice) bool { return o.term == c.term }); at >= 0 {
			g[at].weight = max(g[at].weight, c.weight)
			continue
		}
		g = append(g, c)
	}
	return g
}
