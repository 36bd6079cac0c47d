package upstream

import (
	"slices"
	"strings"

	"comet/internal/redact"
)

// minSecret is the shortest value that is hidden, in bytes: shorter ones are parts of
// ordinary words.
const minSecret = 6

// secrets hides values in what an upstream writes and in errors. The zero value hides
// what looks like a secret only.
type secrets struct {
	values   []string
	replacer *strings.Replacer
}

// add has a value hidden: as it is, each of its lines, and each of its words, since
// "Bearer x" is told as x.
func (s *secrets) add(value string) {
	s.values = append(s.values, value)
	s.values = append(s.values, strings.Split(value, "\n")...)
	s.values = append(s.values, strings.Fields(value)...)
}

// build ends adding.
func (s *secrets) build() {
	slices.SortFunc(s.values, func(a, b string) int { // a part must not be replaced before the whole
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	var pairs []string
	for _, v := range slices.Compact(s.values) {
		if len(v) >= minSecret {
			pairs = append(pairs, v, redact.Mask)
		}
	}
	s.values, s.replacer = nil, strings.NewReplacer(pairs...)
}

// mask returns text without any of the values, and without what looks like a secret.
func (s *secrets) mask(text string) string {
	if s != nil && s.replacer != nil {
		text = s.replacer.Replace(text)
	}
	return redact.Text(text)
}
