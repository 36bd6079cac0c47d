package signature

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"strings"

	"comet/internal/errs"
)

// What a secret's length may be, in bytes (Standard Webhooks, Signature scheme).
const (
	MinSecret = 24
	MaxSecret = 64
)

// madeSecret is the length of a generated secret, that of a SHA-256 hash.
const madeSecret = 32

// The prefixes identify the kind of a key for users and for programs that search for leaks.
const (
	secretPrefix    = "whsec_"
	publicKeyPrefix = "whpk_"
)

// NewSecret returns a random secret.
func NewSecret() []byte { return random(madeSecret) }

// FormatSecret writes a secret as whsec_….
func FormatSecret(secret []byte) string { return format(secretPrefix, secret) }

// ParseSecret reads whsec_… with 24 to 64 bytes, or returns errs.InvalidRequest without it.
func ParseSecret(text string) ([]byte, error) {
	return parse(text, secretPrefix, "a secret", MinSecret, MaxSecret)
}

// NewSigningKey returns a random Ed25519 seed of 32 bytes.
func NewSigningKey() []byte { return random(ed25519.SeedSize) }

// PublicKey returns the public half of an Ed25519 seed as whpk_….
func PublicKey(seed []byte) string {
	key := ed25519.NewKeyFromSeed(seed)
	return format(publicKeyPrefix, key[ed25519.SeedSize:])
}

// ParsePublicKey reads whpk_…. The error is errs.InvalidRequest.
func ParsePublicKey(text string) (ed25519.PublicKey, error) {
	return parse(text, publicKeyPrefix, "a public key", ed25519.PublicKeySize, ed25519.PublicKeySize)
}

func random(n int) []byte {
	key := make([]byte, n)
	_, _ = rand.Read(key) // never fails
	return key
}

func format(prefix string, key []byte) string {
	return prefix + base64.StdEncoding.EncodeToString(key)
}

// parse reads only what format writes, because receivers differ on other forms of base64.
func parse(text, prefix, what string, shortest, longest int) ([]byte, error) {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return nil, errs.New(errs.InvalidRequest, "%s begins with %s", what, prefix)
	}
	key, err := base64.StdEncoding.DecodeString(rest)
	if err != nil || format(prefix, key) != text {
		return nil, errs.New(errs.InvalidRequest, "%s is %s and base64 (A-Z, a-z, 0-9, + and /, padded with =)", what, prefix)
	}
	switch {
	case shortest == longest && len(key) != shortest:
		return nil, errs.New(errs.InvalidRequest, "%s has %d bytes, not %d", what, shortest, len(key))
	case len(key) < shortest || len(key) > longest:
		return nil, errs.New(errs.InvalidRequest, "%s has %d to %d bytes, not %d", what, shortest, longest, len(key))
	}
	return key, nil
}
