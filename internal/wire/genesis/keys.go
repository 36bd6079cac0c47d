package genesis

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

const (
	keyWant = "an Ed25519 public key: 32 bytes in base64 or 64 hex digits, or its SubjectPublicKeyInfo in base64 or PEM"
	// maxKey is the length limit of a key in any encoding, in bytes.
	maxKey = 1024
	// spkiPrefix precedes the 32 bytes of a key in its SubjectPublicKeyInfo (RFC 8410 §4).
	spkiPrefix = "\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00"
)

// ParsePublicKey parses an Ed25519 public key: its 32 bytes in base64, in base64url or as 64 hex
// digits, or its SubjectPublicKeyInfo in base64, in base64url or as PEM. Padding may be missing. It
// rejects the keys of small order, for which anyone can forge signatures.
func ParsePublicKey(text string) (ed25519.PublicKey, error) {
	if len(text) > maxKey {
		return nil, errors.New("it is too long")
	}
	raw, err := decodeKey(text)
	if err != nil {
		return nil, err
	}
	key, isSPKI := bytes.CutPrefix(raw, []byte(spkiPrefix))
	switch {
	case len(key) != ed25519.PublicKeySize && len(raw) > ed25519.PublicKeySize && raw[0] == spkiPrefix[0] && !isSPKI:
		return nil, errors.New("the SubjectPublicKeyInfo is not that of an Ed25519 key")
	case len(key) != ed25519.PublicKeySize:
		return nil, fmt.Errorf("it has %d bytes", len(key))
	case hasSmallOrder(key):
		return nil, errors.New("the key has a small order; generate another one")
	}
	return key, nil
}

func decodeKey(text string) ([]byte, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "-----BEGIN") {
		block, rest := pem.Decode([]byte(strings.TrimSpace(text)))
		switch {
		case block == nil || len(rest) > 0:
			return nil, errors.New("the PEM is malformed")
		case block.Type != "PUBLIC KEY":
			return nil, errors.New("the PEM is not that of a public key")
		}
		return block.Bytes, nil
	}
	if len(text) == hex.EncodedLen(ed25519.PublicKeySize) {
		if raw, err := hex.DecodeString(text); err == nil {
			return raw, nil
		}
	}
	return decodeBase64(text)
}

// decodeBase64 decodes base64 or base64url with or without padding.
func decodeBase64(text string) ([]byte, error) {
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if raw, err := encoding.Strict().DecodeString(text); err == nil && len(raw) > 0 && !strings.ContainsAny(text, "\r\n") {
			return raw, nil
		}
	}
	return nil, errors.New("it is not valid base64")
}

// hasSmallOrder reports whether the order of a key divides 8.
func hasSmallOrder(key []byte) bool {
	y := bytes.Clone(key)
	y[len(y)-1] &= 0x7f // without the sign
	switch hex.EncodeToString(y) {
	case "0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f":
		return true
	}
	return false
}
