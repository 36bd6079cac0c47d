package tools

import (
	"crypto/sha256"
	"encoding/hex"

	"comet/internal/words"
)

func clip(s string) string { return words.Clip(s) }

// truncate is the beginning of a text, most bytes of it.
func truncate(s string, most int) string {
	if len(s) > most {
		return s[:most]
	}
	return s
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// shortDigest is enough of a digest to tell two names apart.
func shortDigest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:3])
}
