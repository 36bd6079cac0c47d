package signature

import (
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"comet/internal/errs"
)

// Tolerance is how far an attempt's timestamp may be from the receiver's clock.
const Tolerance = 5 * time.Minute

// maxSignatures limits the checked signatures of a header; senders use two or four.
const maxSignatures = 16

// Verifier knows the keys of a sender. It is safe for concurrent use.
type Verifier struct {
	secrets [][]byte
	keys    []ed25519.PublicKey
}

// NewVerifier returns a verifier for one or more secrets (whsec_…) and public keys (whpk_…), or
// errs.InvalidRequest.
func NewVerifier(keys ...string) (*Verifier, error) {
	if len(keys) == 0 {
		return nil, errs.New(errs.InvalidRequest, "a secret or a public key is needed to verify webhooks")
	}
	v := &Verifier{}
	for _, text := range keys {
		if strings.HasPrefix(text, publicKeyPrefix) {
			key, err := ParsePublicKey(text)
			if err != nil {
				return nil, err
			}
			v.keys = append(v.keys, key)
			continue
		}
		secret, err := ParseSecret(text)
		if err != nil {
			return nil, err
		}
		v.secrets = append(v.secrets, secret)
	}
	return v, nil
}

// Verify returns nil where a signature in the header is one of body by a key of the
// verifier, and the attempt was made within Tolerance of now. The receiver still has
// to remember the ids it has seen. The errors are errs.InvalidHeader for a header
// that is missing or cannot be read, and errs.Unauthenticated.
func (v *Verifier) Verify(header http.Header, body []byte, now time.Time) error {
	id, timestamp := header.Get(HeaderID), header.Get(HeaderTimestamp)
	// What is signed is joined with full stops: one in the id would move its border.
	if id == "" || strings.Contains(id, ".") {
		return errs.New(errs.InvalidHeader, "%s is missing or contains a full stop", HeaderID)
	}
	at, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || at < 0 || strconv.FormatInt(at, 10) != timestamp {
		return errs.New(errs.InvalidHeader, "%s is missing or is not a number of seconds", HeaderTimestamp)
	}
	if off := now.Unix() - at; max(off, -off) > int64(Tolerance/time.Second) {
		return errs.New(errs.Unauthenticated, "%s differs from the current time by more than 5 minutes: the attempt is too old, or one of the clocks is wrong", HeaderTimestamp)
	}
	signatures := strings.Fields(header.Get(HeaderSignature))
	if len(signatures) == 0 {
		return errs.New(errs.InvalidHeader, "%s is missing", HeaderSignature)
	}
	for _, signature := range signatures[:min(len(signatures), maxSignatures)] {
		if v.matches(signature, id, timestamp, body) {
			return nil
		}
	}
	return errs.New(errs.Unauthenticated, "no signature matches")
}

// matches reports whether one of the keys made the signature, of a known version.
func (v *Verifier) matches(signature, id, timestamp string, body []byte) bool {
	version, text, _ := strings.Cut(signature, ",")
	given, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	switch version {
	case symmetric:
		for _, secret := range v.secrets {
			if hmac.Equal(given, digest(secret, id, timestamp, body)) {
				return true
			}
		}
	case asymmetric:
		for _, key := range v.keys {
			if ed25519.Verify(key, content(id, timestamp, body), given) {
				return true
			}
		}
	}
	return false
}
