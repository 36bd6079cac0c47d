package signature_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/webhooks/signature"
)

// FuzzParseSecret: what is read is written the same way again.
func FuzzParseSecret(f *testing.F) {
	f.Add(exampleSecret)
	f.Add("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw=")
	f.Add("whsec_" + strings.Repeat("A", 88))
	f.Fuzz(func(t *testing.T, text string) {
		secret, err := signature.ParseSecret(text)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, len(secret), signature.MinSecret)
		require.LessOrEqual(t, len(secret), signature.MaxSecret)
		require.Equal(t, text, signature.FormatSecret(secret))
	})
}

// FuzzVerify: what was signed verifies; nothing else does, whatever the header says.
func FuzzVerify(f *testing.F) {
	f.Add([]byte(`{"a":1}`), "id", int64(exampleTime), exampleSignature, []byte("tampered"))
	f.Add([]byte{}, "0", int64(0), "v1, v1a,AAAA", []byte{0})
	secret, seed := []byte(strings.Repeat("s", 32)), []byte(strings.Repeat("k", 32))
	v, err := signature.NewVerifier(signature.FormatSecret(secret), signature.PublicKey(seed))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, body []byte, id string, seconds int64, junk string, other []byte) {
		at := time.Unix(seconds, 0)
		header := headers(id, signature.Timestamp(at), junk)
		require.Error(t, v.Verify(header, body, at), "it was not signed")
		if id == "" || strings.Contains(id, ".") || seconds < 0 {
			return
		}
		for _, good := range []string{signature.Sign(secret, id, at, body), signature.SignAsymmetric(seed, id, at, body)} {
			header.Set(signature.HeaderSignature, good+" "+junk)
			require.NoError(t, v.Verify(header, body, at))
			if string(other) != string(body) {
				require.Error(t, v.Verify(header, other, at))
			}
		}
	})
}
