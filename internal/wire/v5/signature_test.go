package v5_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

func requireReason(t *testing.T, err error, reason string) {
	t.Helper()
	var e *v5.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, codes.E90, e.Code())
	require.Equal(t, reason, e.Reason())
}

// TestSign: the signature is the first 8 hex digits of HMAC-SHA256, as computed by
// openssl dgst -sha256 -hmac 'the shared key'.
func TestSign(t *testing.T) {
	t.Parallel()
	key := []byte("the shared key")
	for line, want := range map[string]string{good: "7717ae71", "M1|O1>W1|R|T1|P1|N|-|data": "e03f0e41"} {
		signed, err := v5.Auth{Session: "S1", Nonce: "00aF"}.Sign(line, key)
		require.NoError(t, err)
		require.Equal(t, line+";auth=S1:00aF:"+want, signed)
		for _, end := range []string{"", ";", "\n", "\r\n", ";\r\n"} {
			require.NoError(t, v5.Verify(signed+end, key))
		}
		require.NoError(t, v5.Verify(strings.Replace(signed, want, strings.ToUpper(want), 1), key))
	}
	signed, err := v5.Auth{Session: "S1", Nonce: "00aF"}.Sign(good, key)
	require.NoError(t, err)
	m := parse(t, signed)
	require.Equal(t, v5.Auth{Session: "S1", Nonce: "00aF", Signature: "7717ae71"}, m.Auth)
	require.Equal(t, parse(t, good).Data, m.Data, "auth is no part of DATA")
	written, err := m.Format()
	require.NoError(t, err)
	require.Equal(t, signed, written)
}

// TestVerifyErrors: Verify rejects every message but the signed one.
func TestVerifyErrors(t *testing.T) {
	t.Parallel()
	key := []byte("the shared key")
	signed, err := v5.Auth{Session: "S1", Nonce: "00aa"}.Sign(good, key)
	require.NoError(t, err)
	mark := strings.Index(signed, ";auth=")
	for i := range mark {
		requireReason(t, v5.Verify(signed[:i]+"~"+signed[i+1:], key), codes.ReasonSignature)
	}
	digits := len(signed) - 8
	for i := digits; i < len(signed); i++ {
		other := "0"
		if signed[i] == '0' {
			other = "1"
		}
		requireReason(t, v5.Verify(signed[:i]+other+signed[i+1:], key), codes.ReasonSignature)
	}
	requireReason(t, v5.Verify(signed, []byte("another key")), codes.ReasonSignature)
	requireReason(t, v5.Verify(signed, nil), codes.ReasonSignature)
	requireReason(t, v5.Verify(good, key), codes.ReasonUnsigned)
	requireReason(t, v5.Verify("", key), codes.ReasonUnsigned)
	requireReason(t, v5.Verify(signed[:len(signed)-1], key), codes.ReasonAuth)
	requireReason(t, v5.Verify(signed+";x=1", key), codes.ReasonAuth)
	requireReason(t, v5.Verify(signed+signed[mark:], key), codes.ReasonAuth)
}

// TestSignErrors: Sign rejects what could not be verified.
func TestSignErrors(t *testing.T) {
	t.Parallel()
	key := []byte("the shared key")
	signed, err := v5.Auth{Session: "S1", Nonce: "00aa"}.Sign(good, key)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		line           string
		key            []byte
		session, nonce string
	}{
		"an empty line":     {"", key, "S1", "00aa"},
		"a signed line":     {signed, key, "S1", "00aa"},
		"a line break":      {good + "\n", key, "S1", "00aa"},
		"a return":          {good + "\r", key, "S1", "00aa"},
		"no key":            {good, nil, "S1", "00aa"},
		"no session":        {good, key, "1", "00aa"},
		"a long session":    {good, key, "Sabcdefgh", "00aa"},
		"a short nonce":     {good, key, "S1", "0aa"},
		"a nonce of no hex": {good, key, "S1", "00ag"},
	} {
		got, err := v5.Auth{Session: c.session, Nonce: c.nonce}.Sign(c.line, c.key)
		requireReason(t, err, codes.ReasonAuth)
		require.Empty(t, got, name)
	}
}
