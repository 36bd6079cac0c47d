package store

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// micros is how times are kept: UTC, whole microseconds since 1970.
func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// hour is the number of the hour t lies in, since 1970 UTC.
func hour(t time.Time) int64 { return t.Unix() / 3600 }

// nullable passes a pointer's value to the driver, nil as NULL.
func nullable[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// encodeStrings makes the JSON array that decodeStrings reads; nil is an empty one.
func encodeStrings(list []string) (string, error) {
	if len(list) == 0 {
		return "[]", nil
	}
	b, err := json.Marshal(list)
	return string(b), err
}

// decodeStrings reads a JSON array of strings as encodeStrings writes it. Without
// escapes, which is the common case, every quotation mark is one around a string,
// and cutting the text up is ten times faster than a decoder.
func decodeStrings(s string) ([]string, error) {
	if s == "[]" {
		return []string{}, nil
	}
	if inner, ok := strings.CutPrefix(s, `["`); ok && !strings.Contains(inner, `\`) {
		if inner, ok := strings.CutSuffix(inner, `"]`); ok {
			if list := strings.Split(inner, `","`); strings.Count(inner, `"`) == 2*(len(list)-1) {
				return list, nil
			}
		}
	}
	var out []string
	err := json.Unmarshal([]byte(s), &out)
	return out, err
}

// whole returns a whole number that a driver filled into an interface, 0 for NULL.
func whole(v any) int64 {
	n, _ := v.(int64)
	return n
}

// truth is whole for a truth value, which is a number on SQLite.
func truth(v any) bool { return v == true || v == int64(1) }

// inList returns the placeholders of an IN list and their arguments.
func inList[T ~string](values []T) (string, []any) {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = string(v)
	}
	return "(?" + strings.Repeat(", ?", len(values)-1) + ")", args
}

// storable makes any text one that both databases keep: at most limit bytes of
// valid UTF-8 without NUL.
func storable(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
