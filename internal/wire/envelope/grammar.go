package envelope

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// maxWorkType and maxAgentID are length limits of names of capabilities and agents, in bytes.
const (
	maxWorkType = 128
	maxAgentID  = 64
)

// isAgentType reports whether text is a valid agent type.
func isAgentType(text []byte) bool {
	return len(text) > 0 && len(text) <= maxAgentType && isAlnum(text[0]) && all(text, func(c byte) bool {
		return isAlnum(c) || c == '-' || c == '_'
	})
}

// isAgentID reports whether text consists of groups of lower-case letters and digits, separated by
// single hyphens.
func isAgentID(text []byte) bool {
	return len(text) > 0 && len(text) <= maxAgentID && text[0] != '-' && text[len(text)-1] != '-' &&
		!bytes.Contains(text, []byte("--")) && all(text, func(c byte) bool { return isAlnum(c) || c == '-' })
}

// isWorkType reports whether text is a valid capability name.
func isWorkType(text []byte) bool {
	return len(text) > 0 && len(text) <= maxWorkType && isLetterOrDigit(text[0]) && all(text, func(c byte) bool {
		return isLetterOrDigit(c) || bytes.IndexByte([]byte("_.:/-"), c) >= 0
	})
}

func all(text []byte, ok func(c byte) bool) bool {
	for _, c := range text {
		if !ok(c) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool         { return '0' <= c && c <= '9' }
func isAlnum(c byte) bool         { return isDigit(c) || 'a' <= c && c <= 'z' }
func isLetterOrDigit(c byte) bool { return isAlnum(c) || 'A' <= c && c <= 'Z' }

// parseTime parses an RFC 3339 time and returns it in UTC. It rejects extensions of the standard
// library: a decimal comma, one-digit hours and offsets of 99 hours. It rejects leap seconds, which
// Go cannot represent.
func parseTime(text []byte) (at time.Time, ok bool) {
	const form = "0000-00-00T00:00:00"
	if len(text) <= len(form) || !fits(text, form) {
		return time.Time{}, false
	}
	zone := text[len(form):]
	if zone[0] == '.' {
		digits := 1
		for digits < len(zone) && isDigit(zone[digits]) {
			digits++
		}
		if digits == 1 {
			return time.Time{}, false
		}
		zone = zone[digits:]
	}
	if !isOffset(zone) {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, string(bytes.ToUpper(text)))
	if err != nil {
		return time.Time{}, false
	}
	at = at.UTC()
	return at, at.Year() >= 0 && at.Year() <= 9999
}

func isOffset(zone []byte) bool {
	if len(zone) == 1 {
		return zone[0] == 'Z' || zone[0] == 'z'
	}
	return len(zone) == 6 && (fits(zone, "+00:00") || fits(zone, "-00:00")) && string(zone[1:3]) < "24" && string(zone[4:6]) < "60"
}

// fits reports whether text begins like form, in which 0 stands for any digit and a letter for
// either case.
func fits(text []byte, form string) bool {
	for i := range len(form) {
		switch c := text[i]; form[i] {
		case '0':
			if !isDigit(c) {
				return false
			}
		case 'T':
			if c != 'T' && c != 't' {
				return false
			}
		default:
			if c != form[i] {
				return false
			}
		}
	}
	return true
}

// maxVersionPart limits the digits of each part of a version.
const maxVersionPart = 6

// Negotiate returns the lowest version in both lists, compared by numbers: 1.10 comes after 1.9
// (Chiffon §Protocol Versioning). It ignores invalid versions. ok is false if no version is common.
func Negotiate(theirs, ours []string) (version string, ok bool) {
	for _, t := range theirs {
		if !isVersion([]byte(t)) || ok && compareVersions(t, version) >= 0 {
			continue
		}
		for _, o := range ours {
			if t == o { // a version has only one notation
				version, ok = t, true
			}
		}
	}
	return version, ok
}

// isVersion reports whether text is two numbers with a full stop between them, without leading
// zeros.
func isVersion(text []byte) bool {
	major, minor, ok := bytes.Cut(text, []byte("."))
	return ok && isVersionPart(major) && isVersionPart(minor)
}

func isVersionPart(text []byte) bool {
	return len(text) > 0 && len(text) <= maxVersionPart && all(text, isDigit) && (text[0] != '0' || len(text) == 1)
}

// compareVersions compares two valid versions.
func compareVersions(a, b string) int {
	aMajor, aMinor, _ := strings.Cut(a, ".")
	bMajor, bMinor, _ := strings.Cut(b, ".")
	return cmp.Or(compareNumbers(aMajor, bMajor), compareNumbers(aMinor, bMinor))
}

func compareNumbers(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return cmp.Compare(x, y)
}

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
