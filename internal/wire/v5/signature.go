package v5

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"comet/internal/wire/v5/codes"
)

// authMark is what precedes the three parts of the pair auth, and nothing else in a message: the
// bytes before it are signed.
const authMark = ";" + keyAuth + "="

// The lengths of the parts of a signature, in hex digits (PROTOCOL_V5 §11.1).
const (
	nonceLength     = 4
	signatureLength = 8
)

// Auth is the pair auth=SID:NONCE:SIG, which is always the last of DATA (§11). Its parts are as
// they were written.
type Auth struct {
	// Session is the session's id with its S.
	Session string
	// Nonce is 4 hex digits.
	Nonce string
	// Signature is 8 hex digits, the first of the HMAC-SHA256 over the bytes of the message
	// before ;auth=. It does not cover the two other parts.
	Signature string
}

// Sign returns the message with the pair auth of a's session and nonce. The message may be one of
// V4; Sign does not parse it, but it must have neither auth nor a line break. The error is an
// *Error with E90: one of those, an empty key, or an invalid session or nonce.
func (a Auth) Sign(line string, key []byte) (string, error) {
	switch {
	case line == "" || strings.Contains(line, authMark) || strings.ContainsAny(line, "\r\n"):
		return "", newError(codes.E90, codes.ReasonAuth, "the message to sign must have neither auth nor a line break")
	case len(key) == 0 || !isContext(a.Session) || !isHex(a.Nonce, nonceLength):
		return "", newError(codes.E90, codes.ReasonAuth, "a signature needs a key, a session such as S1 and a nonce of 4 hex digits")
	}
	sum := signature(line, key)
	return line + authMark + a.Session + ":" + a.Nonce + ":" + hex.EncodeToString(sum[:]), nil
}

// Verify verifies the signature of a received message, with or without its line break, in constant
// time. The error is an *Error with E90 and codes.ReasonUnsigned, ReasonAuth or ReasonSignature.
// The caller detects replays.
func Verify(line string, key []byte) error {
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	body, auth, ok := cutAuth(line)
	switch {
	case !ok:
		return newError(codes.E90, codes.ReasonAuth, "auth must be the last pair: a session, 4 hex digits and 8, with colons between them")
	case auth == Auth{}:
		return newError(codes.E90, codes.ReasonUnsigned, "the message is not signed")
	}
	given, err := hex.DecodeString(auth.Signature)
	want := signature(body, key)
	if len(key) == 0 || err != nil || !hmac.Equal(given, want[:]) {
		return newError(codes.E90, codes.ReasonSignature, "the signature does not match the message")
	}
	return nil
}

func signature(text string, key []byte) [signatureLength / 2]byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text)) // never fails
	return [signatureLength / 2]byte(mac.Sum(nil))
}

// cutAuth cuts the pair auth off the end of DATA, or of a message. ok is false where auth is
// malformed; a semicolon may follow it.
func cutAuth(text string) (body string, auth Auth, ok bool) {
	at := strings.Index(text, authMark)
	if at < 0 {
		return text, Auth{}, !strings.HasPrefix(text, authMark[1:])
	}
	session, rest, _ := strings.Cut(strings.TrimSuffix(text[at+len(authMark):], ";"), ":")
	nonce, sum, _ := strings.Cut(rest, ":")
	auth = Auth{Session: session, Nonce: nonce, Signature: sum}
	if !isContext(session) || !isHex(nonce, nonceLength) || !isHex(sum, signatureLength) {
		return text, Auth{}, false
	}
	return text[:at], auth, true
}

// append appends the pair, nothing for the zero Auth.
func (a Auth) append(line []byte) []byte {
	if a == (Auth{}) {
		return line
	}
	line = append(append(line, authMark...), a.Session...)
	line = append(append(line, ':'), a.Nonce...)
	return append(append(line, ':'), a.Signature...)
}

func isHex(text string, length int) bool {
	for i := range len(text) {
		if c := text[i]; c-'0' > 9 && c|0x20-'a' > 5 {
			return false
		}
	}
	return len(text) == length
}
