package envelope

import (
	"bytes"
	"time"
)

// maxWorkType and maxAgentID are the longest names of a capability and of an agent,
// in bytes.
const (
	maxWorkType = 128
	maxAgentID  = 64
)

// isAgentType accepts the words an agent's type may be.
func isAgentType(text []byte) bool {
	return len(text) > 0 && len(text) <= MaxAgentType && isAlnum(text[0]) && all(text, func(c byte) bool {
		return isAlnum(c) || c == '-' || c == '_'
	})
}

// isAgentID accepts groups of lower-case letters and digits with single hyphens
// between them.
func isAgentID(text []byte) bool {
	return len(text) > 0 && len(text) <= maxAgentID && text[0] != '-' && text[len(text)-1] != '-' &&
		!bytes.Contains(text, []byte("--")) && all(text, func(c byte) bool { return isAlnum(c) || c == '-' })
}

// isWorkType accepts the names of capabilities.
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

// parseTime reads an RFC 3339 time and returns it in UTC. The standard library's
// reader also takes what the RFC does not have: a decimal comma, hours of one digit,
// offsets of 99 hours. A leap second is refused, Go has none.
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

// fits reports whether text begins like form, in which 0 stands for any digit and a
// letter for either case.
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
