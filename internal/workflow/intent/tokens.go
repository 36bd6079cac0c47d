package intent

import (
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// kind is the kind of a token.
type kind uint8

const (
	word kind = iota
	separator
	quoted
	filePath   // a name or path of a file or a directory
	repository // owner/repo, or a path of this form
	webURL
	email
	number
	identifier // has digits or "_", such as C024BE91L
)

// token is a part of a sentence.
type token struct {
	kind
	text  string // without quotation marks
	plain string // in lower case, without accents
}

var (
	// tokenPattern has a group for each kind of quotation marks, then for URLs, words, and separators.
	tokenPattern = regexp.MustCompile("\"([^\"]*)\"|“([^”]*)”|«([^»]*)»|‘([^’]*)’|`([^`]*)`|(?:^|[\\s(:=])'([^']*)'" +
		"|([A-Za-z][A-Za-z0-9+.-]*://[^\\s\"<>«»“”]*[^\\s\"<>«»“”.,;:!?)'])|([^\\s,;=!?()\\[\\]{}\"«»“”`…]+)|([,;=!\"«»“”`])")
	wordPattern       = regexp.MustCompile(`^(?:(\pL+)(['’]|:[^\\/]))?(.*?)(?:['’]s)?([.:'’]*)$`)
	urlPattern        = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://\S+$`)
	emailPattern      = regexp.MustCompile(`^[\pL\pN._%+-]+@[\pL\pN-]+(\.[\pL\pN-]+)+$`)
	numberPattern     = regexp.MustCompile(`^#?-?\d{1,15}(?:\.\d{1,15})?$`)
	globPattern       = regexp.MustCompile(`^[^\s()]*\*[^\s()]*$`)
	pathPattern       = regexp.MustCompile(`^[\pL\pN_-][\pL\pN_.-]*\.[A-Za-z][A-Za-z0-9]{0,9}$|^\.[A-Za-z][\pL\pN_.-]*$|^(?:~|[A-Za-z]:)?[\pL\pN_./\\@+-]*[/\\][\pL\pN_./\\@+-]*$`)
	identifierPattern = regexp.MustCompile(`^[\pL\pN][\pL\pN:.-]*[\d_][\pL\pN_:.-]*$|^\d[\pL\pN_:.-]*$`)
	repositoryPattern = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9_.-]*)/([A-Za-z0-9_][A-Za-z0-9_.-]*)$`)
	// referencePattern matches what a plan could take for a reference.
	referencePattern = regexp.MustCompile(`(?:\$|\\u0024)(?:[A-Za-z_][A-Za-z0-9_-]*\.|OUTPUT\[)`)
)

// scan splits a sentence into tokens.
func scan(sentence string) (out []token) {
	const url, words = 7, 8
	for _, m := range tokenPattern.FindAllStringSubmatchIndex(sentence, -1) {
		g := 1
		for m[2*g] < 0 {
			g++
		}
		text := sentence[m[2*g]:m[2*g+1]]
		next, _ := utf8.DecodeRuneInString(sentence[m[1]:])
		switch {
		case g < url && (unicode.IsLetter(next) || unicode.IsDigit(next) || isQuote(next)), g > words && isQuote([]rune(text)[0]):
			out = append(out, token{kind: quoted}) // the marks are unclear, and no argument takes it
		case g < url:
			t := classify(strings.TrimSpace(text))
			if t.kind == word || t.kind == number || t.kind == identifier {
				t.kind = quoted
			}
			out = append(out, t)
		case g == url:
			out = append(out, token{kind: webURL, text: text})
		case g == words:
			out = appendWord(out, text)
		default:
			out = append(out, token{kind: separator, text: text})
		}
	}
	return out
}

func isQuote(r rune) bool { return strings.ContainsRune("\"'«»“”`", r) }

// appendWord appends a word without the marks around it: an elision or the name before ":" is a word of its own.
func appendWord(out []token, text string) []token {
	m := wordPattern.FindStringSubmatch(text)
	if m[1] != "" {
		out = append(out, classify(m[1]))
		if m[2][0] == ':' {
			out, m[3] = append(out, token{kind: separator, text: ":"}), m[2][1:]+m[3]
		}
	}
	if m[3] != "" {
		out = append(out, classify(m[3]))
	}
	if strings.ContainsAny(m[4], ".:") {
		out = append(out, token{kind: separator, text: m[4][:1]})
	}
	return out
}

func classify(text string) token {
	t := token{text: text, plain: plain(text)}
	switch {
	case urlPattern.MatchString(text):
		t.kind = webURL
	case emailPattern.MatchString(text):
		t.kind = email
	case numberPattern.MatchString(text):
		t.kind = number
	case globPattern.MatchString(text):
		t.kind = quoted
	case repositoryPattern.MatchString(text) && path.Ext(text) == "":
		t.kind = repository
	case pathPattern.MatchString(text):
		t.kind = filePath
	case identifierPattern.MatchString(text):
		t.kind = identifier
	}
	return t
}

// plain returns a text in lower case without accents.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, norm.NFD.String(s))
}
