package envelope

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxClip is the maximum number of characters of a received value in an error text.
const maxClip = 64

// clip returns s, or its first maxClip characters and an ellipsis.
func clip(s string) string {
	count := 0
	for i := range s {
		if count == maxClip {
			return s[:i] + "…"
		}
		count++
	}
	return s
}

// quote returns clip(s) in double quotes, with unprintable characters escaped.
func quote(s string) string { return strconv.Quote(clip(s)) }

// fieldName returns a JSON pointer in the form payload.step[0].x.
func fieldName(pointer jsontext.Pointer) string {
	const maxField = 240 // bytes, approximately
	var b strings.Builder
	for token := range pointer.Tokens() {
		if b.Len() > maxField {
			return b.String() + "…"
		}
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
