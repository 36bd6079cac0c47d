package signature_test

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/webhooks/signature"
)

// The examples that the published libraries of Standard Webhooks are tested with.
const (
	exampleID         = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	exampleTime       = 1614265330
	exampleBody       = `{"test": 2432232314}`
	exampleSecret     = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	exampleSignature  = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	exampleSigningKey = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk="
	exampleAsymmetric = "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
)

func TestThePublishedExamples(t *testing.T) {
	t.Parallel()
	at := time.Unix(exampleTime, 0)
	secret, err := signature.ParseSecret(exampleSecret)
	require.NoError(t, err)
	require.Equal(t, exampleSignature, signature.Sign(secret, exampleID, at, []byte(exampleBody)))

	seed, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(exampleSigningKey, "whsk_"))
	require.NoError(t, err)
	require.Equal(t, exampleAsymmetric, signature.SignAsymmetric(seed, exampleID, at, []byte(exampleBody)))

	for _, key := range []string{exampleSecret, signature.PublicKey(seed)} {
		v, err := signature.NewVerifier(key)
		require.NoError(t, err)
		require.NoError(t, v.Verify(headers(exampleID, "1614265330", exampleSignature+" "+exampleAsymmetric), []byte(exampleBody), at), key)
	}
}

func TestParsedKeysAreWhatIsWritten(t *testing.T) {
	t.Parallel()
	for _, n := range []int{24, 25, 26, 32, 64} {
		secret := bytes.Repeat([]byte{0xfb}, n) // + and / in base64
		got, err := signature.ParseSecret(signature.FormatSecret(secret))
		require.NoError(t, err)
		require.Equal(t, secret, got)
	}
	require.Len(t, signature.NewSecret(), 32)
	one, other := signature.NewSecret(), signature.NewSecret()
	require.NotEqual(t, one, other)
	key, err := signature.ParsePublicKey(signature.PublicKey(signature.NewSigningKey()))
	require.NoError(t, err)
	require.Len(t, key, 32)
}

func TestWhatIsNoKeyIsRefusedWithoutRepeatingIt(t *testing.T) {
	t.Parallel()
	of := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, n)) }
	for text, says := range map[string]string{
		"":                       "begins with whsec_",
		of(24):                   "begins with whsec_",
		"WHSEC_" + of(24):        "begins with whsec_",
		"whpk_" + of(32):         "begins with whsec_",
		"whsec_":                 "24 to 64 bytes, not 0",
		"whsec_" + of(23):        "24 to 64 bytes, not 23",
		"whsec_" + of(65):        "24 to 64 bytes, not 65",
		"whsec_" + of(25)[:34]:   "base64", // without its padding
		"whsec_" + of(24) + "\n": "base64",
		"whsec_" + of(24)[:16] + "\r\n" + of(24)[16:]:            "base64",
		"whsec_ " + of(24):                                       "base64",
		"whsec_" + strings.NewReplacer("+", "-").Replace(of(24)): "base64",
		"whsec_" + of(25)[:33] + "x==":                           "base64", // bits behind the end
	} {
		_, err := signature.ParseSecret(text)
		require.True(t, errs.Is(err, errs.InvalidRequest), text)
		require.ErrorContains(t, err, says, text)
		require.NotContains(t, err.Error(), "+/", "%q repeats the secret", text)
	}
	for _, n := range []int{31, 33} {
		_, err := signature.ParsePublicKey("whpk_" + of(n))
		require.ErrorContains(t, err, "has 32 bytes")
		_, err = signature.NewVerifier("whpk_" + of(n))
		require.Error(t, err)
	}
	_, err := signature.NewVerifier()
	require.Error(t, err)
	_, err = signature.NewVerifier(exampleSecret, "nonsense")
	require.Error(t, err)
}

func headers(id, timestamp, signatures string) http.Header {
	h := http.Header{}
	h.Set(signature.HeaderID, id)
	h.Set(signature.HeaderTimestamp, timestamp)
	h.Set(signature.HeaderSignature, signatures)
	return h
}

func TestVerify(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_767_225_600, 0)
	body := []byte(`{"type":"agent.created"}`)
	secret, old := signature.NewSecret(), signature.NewSecret()
	seed := signature.NewSigningKey()
	good := signature.Sign(secret, "id", now, body)
	goodToo := signature.SignAsymmetric(seed, "id", now, body)
	other := signature.Sign(old, "id", now, body)
	at := signature.Timestamp(now)
	v, err := signature.NewVerifier(signature.FormatSecret(secret), signature.PublicKey(seed))
	require.NoError(t, err)

	for name, signatures := range map[string]string{
		"one signature":                   good,
		"an asymmetric one":               goodToo,
		"the second of two":               other + " " + good,
		"one behind an unknown version":   "v2," + strings.TrimPrefix(good, "v1,") + " " + good,
		"one behind what is no signature": "v1 v1a, x,y v1,!!! " + goodToo,
		"the last that is looked at":      strings.Repeat(other+" ", 15) + good,
	} {
		t.Run(name+" verifies", func(t *testing.T) {
			t.Parallel()
			require.NoError(t, v.Verify(headers("id", at, signatures), body, now))
		})
	}

	for name, c := range map[string]struct {
		header http.Header
		body   string
		code   errs.Code
	}{
		"another body":                  {headers("id", at, good+" "+goodToo), `{"type":"agent.updated"}`, errs.Unauthenticated},
		"a body with one more byte":     {headers("id", at, good+" "+goodToo), string(body) + "\n", errs.Unauthenticated},
		"another id":                    {headers("id2", at, good+" "+goodToo), "", errs.Unauthenticated},
		"another time":                  {headers("id", signature.Timestamp(now.Add(time.Second)), good+" "+goodToo), "", errs.Unauthenticated},
		"another secret":                {headers("id", at, other), "", errs.Unauthenticated},
		"a signature of the other kind": {headers("id", at, "v1a,"+strings.TrimPrefix(good, "v1,")+" v1,"+strings.TrimPrefix(goodToo, "v1a,")), "", errs.Unauthenticated},
		"a cut signature":               {headers("id", at, good[:len(good)-4]), "", errs.Unauthenticated},
		"an empty signature":            {headers("id", at, "v1, v1a,"), "", errs.Unauthenticated},
		"one too far back in the list":  {headers("id", at, strings.Repeat(other+" ", 16)+good), "", errs.Unauthenticated},
		"no id":                         {headers("", at, good), "", errs.InvalidHeader},
		"no time":                       {headers("id", "", good), "", errs.InvalidHeader},
		"no signature":                  {headers("id", at, " "), "", errs.InvalidHeader},
		"a time that is no number":      {headers("id", "soon", good), "", errs.InvalidHeader},
		"a time before 1970":            {headers("id", "-1", good), "", errs.InvalidHeader},
		"a time with a sign":            {headers("id", "+"+at, good), "", errs.InvalidHeader},
		"a time with zeros before it":   {headers("id", "0"+at, good), "", errs.InvalidHeader},
		"a time with a fraction":        {headers("id", at+".5", good), "", errs.InvalidHeader},
		"a time beyond 64 bits":         {headers("id", "99999999999999999999", good), "", errs.InvalidHeader},
		"the last time there is":        {headers("id", "9223372036854775807", good), "", errs.Unauthenticated},
	} {
		t.Run(name+" does not", func(t *testing.T) {
			t.Parallel()
			if c.body == "" {
				c.body = string(body)
			}
			err := v.Verify(c.header, []byte(c.body), now)
			require.Equal(t, c.code, errs.CodeOf(err), "%v", err)
		})
	}

	t.Run("the border between id and time cannot be moved", func(t *testing.T) {
		t.Parallel()
		moved := signature.Sign(secret, "id", now, []byte(at+".x"))
		require.NoError(t, v.Verify(headers("id", at, moved), []byte(at+".x"), now))
		require.True(t, errs.Is(v.Verify(headers("id."+at, at, moved), []byte("x"), now), errs.InvalidHeader))
	})
	t.Run("the clocks may differ by five minutes, not by a second more", func(t *testing.T) {
		t.Parallel()
		for _, off := range []time.Duration{-signature.Tolerance, signature.Tolerance} {
			require.NoError(t, v.Verify(headers("id", at, good), body, now.Add(off)))
		}
		for _, off := range []time.Duration{-signature.Tolerance - time.Second, signature.Tolerance + time.Second} {
			require.True(t, errs.Is(v.Verify(headers("id", at, good), body, now.Add(off)), errs.Unauthenticated))
		}
	})
}
