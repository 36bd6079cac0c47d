package api

import "strconv"

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
