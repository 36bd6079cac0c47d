package toolsearch

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// mentioned is how much a word of a path, of an address or of a quotation weighs
	// against others: it is what a tool is to be called with, and seldom what it is called.
	mentioned = 0.25
	// implied is how much the kind of thing weighs that such a name is of: who writes
	// "notes.txt" means a file.
	implied = 0.6
	// maxKinds is how many kinds of things a query is taken to be about.
	maxKinds = 2
	// maxExtension is the longest ending of a file's name, in bytes.
	maxExtension = 5
	// minFile is the shortest name of a file that is taken for one, in bytes: "e.g" is none.
	minFile = 4
)

// said is a query taken apart.
type said struct {
	words []string // to be understood
	names []string // words of names of things
	kinds []string // what these are, in words of the vocabulary
	language
}

// listen tells the words of a query from the names in it: paths, files, addresses, and what
// is quoted. What is written with a capital is not taken for one: that was tried.
func (w *words) listen(text string) said {
	var s said
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	quoted := ""
	for _, token := range strings.Fields(text) {
		if quoted == "" {
			quoted = quotes(token)
		}
		kind, isName := w.kindOfName(token)
		switch {
		case quoted != "":
			s.names = append(s.names, split(token)...)
			if strings.HasSuffix(strings.TrimRight(token, ".,;:!?)"), quoted) {
				quoted = ""
			}
			kind = ""
		case isName:
			s.names = append(s.names, split(token)...)
		default:
			s.words = append(s.words, split(token)...)
		}
		if kind != "" {
			s.kinds = append(s.kinds, kind)
		}
	}
	s.language = w.languageOf(slices.Concat(s.words, s.names))
	if len(s.words) == 0 { // nothing but names: then they are meant
		s.words, s.names = s.names, nil
	}
	return s
}

// mentions adds the names of things to what is wanted, and what these are. No name is the
// one of a server: "memory.json" is not looked for in a memory.
func (w *words) mentions(out []wanted, heard *said) []wanted {
	for _, name := range heard.names[:min(len(heard.names), maxQueryWords)] {
		if !w.stop(fold(name), heard.language) {
			own := group{{stem(name, anglais), 1}}
			out = append(out, wanted{group: own, word: fold(name), plural: plural(name), bridged: true, general: true, language: heard.language, share: mentioned})
		}
	}
	kinds := slices.Compact(heard.kinds)
	for _, kind := range kinds[:min(len(kinds), maxKinds)] {
		found, _ := w.word(kind, anglais)
		for _, g := range found {
			out = append(out, wanted{group: g, word: kind, bridged: true, general: true, language: anglais, share: implied})
		}
	}
	return out
}

// quotes returns what ends a quotation that a token begins, "" for none.
func quotes(token string) string {
	switch r, _ := utf8.DecodeRuneInString(token); r {
	case '"', '`':
		return string(r)
	case '“':
		return "”"
	case '«':
		return "»"
	}
	return ""
}

// kindOfName reports whether a token is the name of a thing, and of what kind if that
// can be seen.
func (w *words) kindOfName(token string) (kind string, isName bool) {
	token = strings.Trim(token, ".,;:!?()'")
	plain := strings.ToLower(token)
	ending := strings.TrimPrefix(path.Ext(plain), ".")
	switch {
	case strings.Contains(plain, "://"), strings.HasPrefix(plain, "www."), w.domains[ending] && !strings.Contains(plain, "@"):
		return "url", true
	case isCoordinate(plain):
		return "coordinate", true
	case strings.HasPrefix(plain, "*"), strings.Contains(plain, "*."), strings.Contains(plain, "/*"):
		return "pattern", true
	case strings.HasPrefix(plain, "@"):
		return "user", true
	case strings.HasPrefix(plain, "#") && len(plain) > 1 && !unicode.IsDigit(rune(plain[1])):
		return "channel", true
	case w.pictures[ending]:
		return "image", true
	case isExtension(ending) && len(plain) >= minFile:
		return "file", true
	case strings.HasPrefix(plain, "/"), strings.HasPrefix(plain, "~"), strings.HasPrefix(plain, "./"), strings.HasSuffix(plain, "/"):
		return "directory", true
	case strings.Contains(plain, "/"):
		return "", !w.knows(split(plain)) // "read/write" is no path
	}
	return "", false
}

// knows reports whether the vocabulary has all of these words.
func (w *words) knows(list []string) bool {
	return !slices.ContainsFunc(list, func(word string) bool {
		return w.near[stem(word, anglais)] == nil && w.french[stem(word, francais)] == nil
	})
}

// isExtension reports whether the name of a file may end so: with a letter, and others or
// digits behind it.
func isExtension(ending string) bool {
	first, _ := utf8.DecodeRuneInString(ending)
	return len(ending) <= maxExtension && unicode.IsLetter(first) &&
		!strings.ContainsFunc(ending, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// isCoordinate reports whether a number is written like a degree of latitude or longitude.
func isCoordinate(number string) bool {
	whole, decimals, found := strings.Cut(strings.TrimPrefix(number, "-"), ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	return found && len(whole) <= 3 && len(decimals) >= 2 && digits(whole) && digits(decimals)
}
