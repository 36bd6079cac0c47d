package input

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
)

// MaxTokenLength is the longest bearer token, in bytes.
const MaxTokenLength = 8192

// MaxName is the maximum length of a member's name in a document, in bytes. A longer name is an
// error, and the value below it is not checked, because each error below repeats the name.
const MaxName = 256

// The functions below repeat input in error texts. They limit its length, so that the size of a
// response does not depend on the request.
const (
	maxClip    = 64   // characters of a value; the maximum length of an agent's id
	maxField   = 240  // approximate bytes of a field's name
	maxPointer = 1024 // approximate bytes of a pointer
)

// Clip returns s, or its first 64 characters and an ellipsis.
func Clip(s string) string { return ClipTo(s, maxClip) }

// ClipTo returns s, or its first most characters and an ellipsis.
func ClipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	count := 0
	for i := range s {
		if count == most {
			return s[:i] + "…"
		}
		count++
	}
	return s
}

// ClipBytes returns s, or at most its first most bytes and an ellipsis, cut between characters and
// with invalid UTF-8 replaced.
func ClipBytes(s string, most int) string {
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// SplitRune splits off an incomplete character at the end of text.
func SplitRune(text []byte) (complete, rest []byte) {
	for at := len(text) - 1; at >= 0 && at > len(text)-utf8.UTFMax; at-- {
		if utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				return text[:at], text[at:]
			}
			break
		}
	}
	return text, nil
}

// Quote returns Clip(s) in double quotes, with unprintable characters escaped.
func Quote(s string) string { return strconv.Quote(Clip(s)) }

// Field returns a JSON pointer in the form agents[3].level, or “the document”. A long one ends in
// an ellipsis.
func Field(pointer string) string {
	if pointer == "" {
		return "the document"
	}
	var b strings.Builder
	for token := range jsontext.Pointer(pointer).Tokens() {
		if b.Len() > maxField {
			b.WriteString("…")
			break
		}
		if _, err := strconv.ParseUint(token, 10, 32); err == nil && b.Len() > 0 {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(Clip(token))
	}
	return b.String()
}

// Respell returns an error for a request whose members have other names than those of the operation that returns it. names has
// the pointers that differ; all pointers are below another one in the request, "" for none. A sentence that begins with the name
// of its member gets the new name.
func Respell(err error, below string, names map[string]string) error {
	e := errs.From(err)
	if err == nil || e.Code == errs.Internal || len(e.Fields) == 0 {
		return err
	}
	out := *e
	out.Fields = slices.Clone(e.Fields)
	for i := range out.Fields {
		f := &out.Fields[i]
		at, summary := f.Pointer, f.Detail == e.Detail
		f.Pointer = below + at
		for from, to := range names {
			if rest, ok := strings.CutPrefix(at, from); ok && (rest == "" || rest[0] == '/') {
				f.Pointer = below + to + rest
			}
		}
		for { // a sentence may name the member alone, without the members around it
			if rest, ok := strings.CutPrefix(f.Detail, Field(at)+" "); ok {
				f.Detail = Field(f.Pointer) + " " + rest
				break
			}
			if at == "" {
				break
			}
			at = at[1+strings.IndexByte(at[1:]+"/", '/'):]
		}
		if summary {
			out.Detail = f.Detail
		}
	}
	return &out
}

// Escape returns the token of a JSON pointer that represents a name (RFC 6901 §4).
func Escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// Pointer returns a JSON pointer with names longer than MaxName cut as in Clip. A very long pointer
// ends in an ellipsis.
func Pointer(pointer string) string {
	if len(pointer) <= MaxName {
		return pointer
	}
	var b strings.Builder
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if b.Len() > maxPointer {
			b.WriteString("/…")
			break
		}
		if len(token) > MaxName {
			token = strings.TrimSuffix(strings.TrimSuffix(Clip(token), "…"), "~") + "…" // no half of an escape
		}
		b.WriteString("/" + token)
	}
	return b.String()
}

// Duration formats d as 1m or 720h where the standard library has 1m0s or 720h0m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
