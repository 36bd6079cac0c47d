// Package words repeats client input in messages: cut to a
// length a person reads, and a place in a document the way people write one. What
// is repeated is bounded here, so that no answer grows with the mistakes in a
// request.
package words

import (
	"strconv"
	"strings"
	"time"
)

// MaxName is the longest name of a member that a document may have, in bytes.
// Each mistake below a member repeats its name, so the readers of documents
// refuse longer ones and do not look below them.
const MaxName = 256

const (
	maxClip    = 64   // characters of a value in a sentence; an agent's id has no more
	maxField   = 240  // bytes of a place in a sentence, about
	maxPointer = 1024 // bytes of a pointer, about
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

// Quote is Clip in double quotes, with everything unprintable escaped.
func Quote(s string) string { return strconv.Quote(Clip(s)) }

// Field writes a JSON pointer the way people write a path: agents[3].level. A
// long one ends in an ellipsis.
func Field(pointer string) string {
	if pointer == "" {
		return "the document"
	}
	var b strings.Builder
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if b.Len() > maxField {
			b.WriteString("…")
			break
		}
		if isIndex(token) && b.Len() > 0 {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(Clip(unescape(token)))
	}
	return b.String()
}

func isIndex(token string) bool {
	_, err := strconv.ParseUint(token, 10, 32)
	return err == nil
}

// unescape returns the name a token of a JSON pointer stands for (RFC 6901 §4).
func unescape(token string) string {
	if !strings.Contains(token, "~") {
		return token
	}
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// Escape returns the token of a JSON pointer that stands for a name.
func Escape(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// Pointer returns a JSON pointer fit for an answer: names longer than MaxName are
// cut as Clip does, and the rest of a very long pointer is left out.
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

// Duration writes 1m and 720h where the standard library has 1m0s and 720h0m0s.
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
