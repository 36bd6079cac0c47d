package api

import (
	"strconv"
	"strings"
	"time"
)

// clip keeps what a client sent from filling the sentence about it.
func clip(s string) string { return clipTo(s, 60) }

// clipPath bounds a path in logs and problem documents.
func clipPath(s string) string { return clipTo(s, 512) }

func clipTo(s string, most int) string {
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

// quote is clip in double quotes, with everything unprintable escaped.
func quote(s string) string { return strconv.Quote(clip(s)) }

// short writes a duration without the zeros at its end: 1h, not 1h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
