package v5

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// data is checks 12 and 13 of PROTOCOL_V5 §3.5, and what they take for granted: that
// DATA is text on one line.
func (p *parser) data() {
	text, auth, ok := cutAuth(p.fields[SegmentData-1])
	if !ok {
		p.dataProblem(E90, ReasonAuth, max(0, strings.Index(p.fields[SegmentData-1], authMark)),
			"must have auth as the last of two or more pairs: a session, 4 hex digits and 8, with colons between them")
		return
	}
	if text == "" {
		p.dataProblem(E10, "", 0, "must not be empty; - says nothing")
		return
	}
	found := inspect(text)
	switch {
	case found.problem == notText:
		p.dataProblem(E10, "", found.at, "is not valid UTF-8")
		return
	case found.problem == forbidden:
		c, _ := utf8.DecodeRuneInString(text[found.at:])
		p.dataProblem(E12, "", found.at, fmt.Sprintf("must not have %q in it", c))
		return
	case found.runes > MaxData:
		text = firstRunes(text, MaxData)
		p.m.Warnings |= DataTruncated
	}
	if found.quotes%2 == 1 {
		p.m.Warnings |= QuoteOpen
	}
	p.m.Data, p.m.Auth = Data(text), auth
}

func (p *parser) dataProblem(code Code, reason string, at int, detail string) {
	p.fail(Problem{
		Code: code, Reason: reason, Segment: SegmentData,
		At: p.offset(SegmentData) + at, Detail: SegmentData.String() + " " + detail,
	})
}

// defect is why a text cannot stand in DATA.
type defect byte

const (
	sound defect = iota
	// forbidden: a bar, a > or a control character.
	forbidden
	// notText: bytes that are not UTF-8.
	notText
)

// inspection is what one pass over a text finds. It stops at the first problem, and
// runes then means nothing.
type inspection struct {
	runes   int
	quotes  int
	problem defect
	at      int
}

func inspect(text string) inspection {
	found := inspection{runes: len(text)}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case '>' < c && c < '|': // letters, most of a text
		case c < ' ' || c == '|' || c == '>' || c == 0x7f:
			found.problem, found.at = forbidden, i
			return found
		case c == '"':
			found.quotes++
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(text[i:])
			if found.problem = wide(r, size); found.problem != sound {
				found.at = i
				return found
			}
			i += size - 1
			found.runes -= size - 1
		}
	}
	return found
}

// wide judges a character beyond ASCII.
func wide(r rune, size int) defect {
	switch {
	case r == utf8.RuneError && size == 1:
		return notText
	case unicode.IsControl(r):
		return forbidden
	}
	return sound
}

// firstRunes cuts a text that is known to have more than n characters.
func firstRunes(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}
