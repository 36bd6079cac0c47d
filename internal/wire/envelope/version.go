package envelope

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
)

// maxVersionPart is how many digits each part of a version may have.
const maxVersionPart = 6

// Negotiate returns the lowest version that is in both lists, compared by numbers, so
// that 1.10 comes after 1.9 (Chiffon §Protocol Versioning). Entries that are not
// versions are passed over; ok is false where nothing is common.
func Negotiate(theirs, ours []string) (version string, ok bool) {
	for _, t := range theirs {
		if !isVersion([]byte(t)) || ok && compareVersions(t, version) >= 0 {
			continue
		}
		for _, o := range ours {
			if t == o { // there is one way to write a version
				version, ok = t, true
			}
		}
	}
	return version, ok
}

// isVersion accepts two numbers with a full stop between them, without leading zeros.
func isVersion(text []byte) bool {
	major, minor, ok := bytes.Cut(text, []byte("."))
	return ok && isVersionPart(major) && isVersionPart(minor)
}

func isVersionPart(text []byte) bool {
	return len(text) > 0 && len(text) <= maxVersionPart && all(text, isDigit) && (text[0] != '0' || len(text) == 1)
}

// compareVersions compares two strings that isVersion accepts.
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
