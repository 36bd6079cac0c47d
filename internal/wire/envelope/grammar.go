package envelope

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// The patterns of names and times.
var (
	agentTypePattern = regexp.MustCompile(fmt.Sprintf(`^[a-z0-9][a-z0-9_-]{0,%d}$`, maxAgentType-1))
	agentIDPattern   = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	workTypePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$`)
	// versionPattern matches two numbers of up to six digits without leading zeros.
	versionPattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})$`)
	// timePattern matches RFC 3339 without extensions of the standard library: a decimal comma,
	// one-digit hours and offsets of 99 hours.
	timePattern = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)
)

// maxAgentID is the length limit of an agent's id, in bytes.
const maxAgentID = 64

// isAgentID reports whether text consists of groups of lower-case letters and digits, separated by
// single hyphens.
func isAgentID(text []byte) bool { return len(text) <= maxAgentID && agentIDPattern.Match(text) }

// parseTime parses an RFC 3339 time and returns it in UTC. It rejects leap seconds, which Go cannot
// represent.
func parseTime(text []byte) (at time.Time, ok bool) {
	if !timePattern.Match(text) {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, string(bytes.ToUpper(text)))
	if err != nil {
		return time.Time{}, false
	}
	at = at.UTC()
	return at, at.Year() >= 0 && at.Year() <= 9999
}

// Negotiate returns the lowest version in both lists, compared by numbers: 1.10 comes after 1.9
// (Chiffon §Protocol Versioning). It ignores invalid versions. ok is false if no version is common.
func Negotiate(theirs, ours []string) (version string, ok bool) {
	for _, t := range theirs {
		if !versionPattern.MatchString(t) || ok && compareVersions(t, version) >= 0 {
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

// compareVersions compares two valid versions.
func compareVersions(a, b string) int {
	aMajor, aMinor, _ := strings.Cut(a, ".")
	bMajor, bMinor, _ := strings.Cut(b, ".")
	return cmp.Or(compareNumbers(aMajor, bMajor), compareNumbers(aMinor, bMinor))
}

// compareNumbers compares two numbers without leading zeros.
func compareNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
