package v5

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// authMark is what stands before the three parts of the pair auth, and nowhere else in
// a line: what is signed are the bytes before it.
const authMark = ";" + keyAuth + "="

// The lengths of the parts of a signature, in hex digits (PROTOCOL_V5 §11.1).
const (
	nonceLength     = 4
	signatureLength = 8
)

// Auth is the pair auth=SID:NONCE:SIG, which is always the last of DATA (§11). Its
// parts are as they were written.
type Auth struct {
	// Session is the session's id with its S.
	Session string
	// Nonce is 4 hex digits.
	Nonce string
	// Signature is 8 hex digits, the first of HMAC-SHA256 over the bytes of the line
	// that stand before ;auth=. It does not cover the two other parts.
	Signature string
}

// Sign returns the line with the pair auth behind it. It does not judge the line, which
// may be one of V4, but that must have neither auth nor a line break yet. The error is
// an *Error with E90: one of those, an empty key, or a session or nonce that is none.
func Sign(line string, key []byte, session, nonce string) (string, error) {
	switch {
	case line == "" || strings.Contains(line, authMark) || strings.ContainsAny(line, "\r\n"):
		return "", refusal(E90, ReasonAuth, SegmentLine, "the line to sign must have neither auth nor a line break")
	case len(key) == 0 || !isContext(session) || !isHex(nonce, nonceLength):
		return "", refusal(E90, ReasonAuth, SegmentData, "a signature needs a key, a session such as S1 and a nonce of 4 hex digits")
	}
	sum := signature(line, key)
	return line + authMark + session + ":" + nonce + ":" + hex.EncodeToString(sum[:]), nil
}

// Verify checks the signature of a line as it was received, with or without its line
// break, in constant time. The error is an *Error with E90 and one of ReasonUnsigned,
// ReasonAuth and ReasonSignature. A replay is for the caller to find.
func Verify(line string, key []byte) error {
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	body, auth, ok := cutAuth(line)
	switch {
	case !ok:
		return refusal(E90, ReasonAuth, SegmentData, "auth must be the last pair: a session, 4 hex digits and 8, with colons between them")
	case auth == Auth{}:
		return refusal(E90, ReasonUnsigned, SegmentData, "the line is not signed")
	}
	given, err := hex.DecodeString(auth.Signature)
	want := signature(body, key)
	if len(key) == 0 || err != nil || !hmac.Equal(given, want[:]) {
		return refusal(E90, ReasonSignature, SegmentData, "the signature is not that of the line")
	}
	return nil
}

func signature(text string, key []byte) [signatureLength / 2]byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text)) // never fails
	return [signatureLength / 2]byte(mac.Sum(nil))
}

// cutAuth takes the pair auth off the end of DATA, or of a line. ok is false where
// something else stands for it; a semicolon may follow it.
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

// append writes the pair, nothing for the zero Auth.
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
