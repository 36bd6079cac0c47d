package roster

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// sentence begins a detail with the place it is about.
func sentence(pointer, detail string) string {
	if pointer == "" {
		return detail
	}
	return nameOf(pointer) + ": " + detail
}

// nameOf writes a JSON pointer the way people write a path: agents[3].level.
func nameOf(pointer string) string {
	if pointer == "" {
		return "the document"
	}
	var b strings.Builder
	for token := range jsontext.Pointer(pointer).Tokens() {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil && b.Len() > 0 {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(clip(token))
	}
	return b.String()
}

// clip keeps what a document holds from filling the sentence about it.
func clip(s string) string {
	const most = 60
	count := 0
	for i := range s {
		if count == most {
			return s[:i] + "…"
		}
		count++
	}
	return s
}
