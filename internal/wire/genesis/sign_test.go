package genesis_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/genesis"
)

func testKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte("comet comet comet comet comet 32"))
}

// allForms are the forms in the order in which a receiver tries them.
func allForms() []genesis.Form {
	return []genesis.Form{genesis.AsSent, genesis.AsJavaScript, genesis.JCS}
}

// TestVectors verifies messages that the document's own code has signed in Node.js; see
// tools/genesis-verify. They match in the named forms, and in no form after a change.
func TestVectors(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	var file struct {
		PublicKey string
		Vectors   []struct {
			Name, Message string
			Forms         []string
		}
	}
	require.NoError(t, json.Unmarshal(data, &file))
	require.Len(t, file.Vectors, 24)
	key, err := genesis.ParsePublicKey(file.PublicKey)
	require.NoError(t, err)
	for _, v := range file.Vectors {
		m := parse(t, []byte(v.Message))
		require.Equal(t, key, m.PublicKey, v.Name)
		for _, form := range allForms() {
			found, err := m.Verify(key, form)
			switch named := strings.Contains(strings.Join(v.Forms, ","), form.String()); {
			case named:
				require.NoError(t, err, v.Name)
				require.Equal(t, form, found)
			case form == genesis.AsSent && err == nil: // the sender's text is that of JavaScript
				sent, _ := m.Signed(genesis.AsSent)
				printed, _ := m.Signed(genesis.AsJavaScript)
				require.Equal(t, string(printed), string(sent), v.Name)
			default:
				require.Error(t, err, v.Name+" "+form.String())
			}
		}
		_, err := m.Verify(key, allForms()...)
		require.NoError(t, err, v.Name)
		for _, pointer := range []string{"/id", "/from"} {
			value := map[string]string{"/id": `"8f14e45f-ceea-467f-a1d0-7c1b2f0e9aff"`, "/from": `"eve"`}[pointer]
			_, err := parse(t, changed(t, []byte(v.Message), pointer, value)).Verify(key, allForms()...)
			require.Error(t, err, v.Name)
		}
	}
}

// TestSign: every receiver can verify what comet signs, and detects every change of a message in the profile jcs.
func TestSign(t *testing.T) {
	t.Parallel()
	public, _ := testKey().Public().(ed25519.PublicKey)
	for _, m := range outgoing() {
		require.NoError(t, m.Sign(testKey(), genesis.ProfileJCS))
		require.Equal(t, int64(1767225600123456000), m.Timestamp, "microseconds")
		text, err := m.Format()
		require.NoError(t, err)
		received := parse(t, text)
		for _, form := range allForms() {
			found, err := received.Verify(public, form)
			require.NoError(t, err, string(text))
			require.Equal(t, form, found)
			ours, err := m.Signed(form)
			require.NoError(t, err)
			theirs, err := received.Signed(form)
			require.NoError(t, err)
			require.Equal(t, string(theirs), string(ours))
		}
		sent, _ := received.Signed(genesis.AsSent)
		printed, _ := received.Signed(genesis.AsJavaScript)
		require.Equal(t, string(printed), string(sent))

		added := parse(t, changed(t, text, "/added", "1"))
		_, err = added.Verify(public, genesis.AsSent, genesis.AsJavaScript)
		require.NoError(t, err, "v1 signs seven members")
		_, err = added.Verify(public, genesis.JCS)
		requireProblem(t, err, genesis.CodeSignatureInvalid, "/signatureJcs", "does not match the message")
	}
}

// TestSignRefuses: Sign returns an error for what Parse would reject, and leaves the message unchanged.
func TestSignRefuses(t *testing.T) {
	t.Parallel()
	good := outgoing()[len(outgoing())-1]
	request, _ := good.Body.(genesis.Request)
	with := func(change func(r *genesis.Request)) genesis.Message {
		m, r := good, request
		change(&r)
		m.Body = r
		return m
	}
	for _, c := range []struct {
		m               genesis.Message
		pointer, detail string
	}{
		{genesis.Message{}, "", "has no body"},
		{with(func(r *genesis.Request) { r.Intent = "" }), "/intent", "the name of a capability"},
		{with(func(r *genesis.Request) { r.Payload = []byte(`{`) }), "", "cannot be written"},
		{with(func(r *genesis.Request) { r.Payload = []byte("\"\xff\"") }), "", "is not valid UTF-8"},
		{with(func(r *genesis.Request) { r.Context = []byte(`[]`) }), "/context", "must be an object"},
		{with(func(r *genesis.Request) { r.Confidence = math.NaN() }), "", "cannot be written"},
		{with(func(r *genesis.Request) { r.Priority = 9 }), "/priority", "not 9"},
		{with(func(r *genesis.Request) { r.Payload = []byte(`"\ud800"`) }), "/payload", "has no canonical form"},
	} {
		before := c.m
		err := c.m.Sign(testKey(), genesis.ProfileJCS)
		requireProblem(t, err, genesis.CodeInvalidMessage, c.pointer, c.detail)
		require.Equal(t, withoutBody(before), withoutBody(c.m))
	}
	_, err := good.Format()
	require.ErrorContains(t, err, "/signature must be an Ed25519 signature: 64 bytes in base64")
	_, err = genesis.Message{}.Signed(genesis.AsSent)
	requireProblem(t, err, genesis.CodeInvalidMessage, "", "has no body")

	half := with(func(r *genesis.Request) { r.Payload = []byte(`"\ud800"`) })
	require.NoError(t, half.Sign(testKey(), genesis.ProfileV1))
	require.Nil(t, half.SignatureJCS)
}

func withoutBody(m genesis.Message) genesis.Message {
	m.Body = nil // NaN does not equal itself
	return m
}

// TestVerify: the forms are tried in their order, and the error is that of the last one.
func TestVerify(t *testing.T) {
	t.Parallel()
	public, _ := testKey().Public().(ed25519.PublicKey)
	m := outgoing()[0]
	require.NoError(t, m.Sign(testKey(), genesis.ProfileV1))
	form, err := m.Verify(public, genesis.JCS, genesis.AsJavaScript, genesis.AsSent)
	require.NoError(t, err)
	require.Equal(t, genesis.AsJavaScript, form)
	changed := m
	changed.From = "other"
	_, err = changed.Verify(public, genesis.AsSent)
	require.NoError(t, err, "the signature is that of the rendered message")
	_, err = m.Verify(public, genesis.JCS)
	requireProblem(t, err, genesis.CodeSignatureRequired, "/signatureJcs", "is missing")
	_, err = m.Verify(public)
	requireProblem(t, err, genesis.CodeSignatureRequired, "/signature", "is not verified, because no form was given")
	_, err = m.Verify(nil, genesis.AsSent)
	requireProblem(t, err, genesis.CodeSignatureInvalid, "/publicKey", "is not one of the sender's keys")
	other, _ := ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)
	_, err = m.Verify(other, allForms()[:2]...)
	requireProblem(t, err, genesis.CodeSignatureInvalid, "/signature", "does not match the message")
}

// TestSignedValue: SignedValue returns what was signed, not another spelling that has the same form.
func TestSignedValue(t *testing.T) {
	t.Parallel()
	public, _ := testKey().Public().(ed25519.PublicKey)
	m := outgoing()[len(outgoing())-1]
	request, _ := m.Body.(genesis.Request)
	request.Payload = []byte(`9007199254740992`)
	m.Body = request
	require.NoError(t, m.Sign(testKey(), genesis.ProfileJCS))
	text, err := m.Format()
	require.NoError(t, err)
	received := parse(t, changed(t, text, "/payload", "9007199254740993"))
	form, err := received.Verify(public, genesis.AsSent, genesis.AsJavaScript)
	require.NoError(t, err)
	require.Equal(t, genesis.AsJavaScript, form)
	require.Equal(t, "9007199254740992", string(received.SignedValue("payload", form)))
	require.Equal(t, "9007199254740993", string(received.SignedValue("payload", genesis.AsSent)))
	response := parse(t, changed(t, named(t, "response"), "/data", "9007199254740993"))
	require.Equal(t, "9007199254740992", string(response.SignedValue("data", genesis.JCS)))
	require.Nil(t, response.SignedValue("data", genesis.AsJavaScript), "v1 does not sign it")
	require.Nil(t, response.SignedValue("payload", genesis.JCS), "it has none")
}

// TestTimestampsSurviveJavaScript: microseconds are printed exactly until 2116.
func TestTimestampsSurviveJavaScript(t *testing.T) {
	t.Parallel()
	for i := range int64(100_000) {
		at := (i*46_116_860_184 + i%1000) * 1000
		text, err := genesis.JavaScript([]byte(jsonOf(t, at)))
		require.NoError(t, err)
		require.Equal(t, jsonOf(t, at), string(text))
	}
}

func jsonOf(tb testing.TB, value any) string {
	tb.Helper()
	text, err := json.Marshal(value)
	require.NoError(tb, err)
	return string(text)
}

func TestCheckTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(timestamp int64) error { return genesis.Message{Timestamp: timestamp}.CheckTime(now) }
	require.NoError(t, at(now.UnixNano()))
	require.NoError(t, at(now.Add(genesis.MaxSkew).UnixNano()))
	require.NoError(t, at(now.Add(-genesis.MaxSkew).UnixNano()))
	for timestamp, detail := range map[int64]string{
		now.Add(genesis.MaxSkew + 1).UnixNano():    "must be at most 5m from the current time of comet, in nanoseconds since 1970, but is 5m1s after it",
		now.Add(-genesis.MaxSkew - 1e9).UnixNano(): "but is 5m1s before it",
		math.MaxInt64:   "after it",
		1:               "before it",
		now.UnixMilli(): "it seems to be in milliseconds, so multiply it by 1000000",
		now.Unix():      "it seems to be in seconds, so multiply it by 1000000000",
	} {
		requireProblem(t, at(timestamp), genesis.CodeClockSkew, "/timestamp", detail)
	}
}

// TestPublicKeys: ParsePublicKey accepts every encoding of a key, and nothing else.
func TestPublicKeys(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed([]byte("a seed whose key has - and _ ???")).Public()
	raw, _ := key.(ed25519.PublicKey)
	spki, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	inPEM := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for _, bytes := range [][]byte{raw, spki} {
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
			got, err := genesis.ParsePublicKey(encoding.EncodeToString(bytes))
			require.NoError(t, err)
			require.Equal(t, raw, got)
		}
	}
	for _, text := range []string{
		hex.EncodeToString(raw), strings.ToUpper(hex.EncodeToString(raw)), inPEM("PUBLIC KEY", spki), "\n" + strings.TrimSpace(inPEM("PUBLIC KEY", spki)),
		strings.ReplaceAll(inPEM("PUBLIC KEY", spki), "\n", "\r\n"),
	} {
		got, err := genesis.ParsePublicKey(text)
		require.NoError(t, err, text)
		require.Equal(t, raw, got)
	}
	b64 := base64.StdEncoding.EncodeToString
	x25519 := append([]byte{}, spki...)
	x25519[8] = 0x6e
	for text, want := range map[string]string{
		"":                                    "it is not valid base64",
		"?":                                   "it is not valid base64",
		b64(raw) + "\n":                       "it is not valid base64",
		b64(raw) + "=":                        "it is not valid base64",
		b64(raw)[:42] + "B=":                  "it is not valid base64",
		hex.EncodeToString(raw)[:63] + "g":    "it has 48 bytes",
		b64(raw[:31]):                         "it has 31 bytes",
		b64(append([]byte{0}, raw...)):        "it has 33 bytes",
		b64(x25519):                           "is not that of an Ed25519 key",
		b64(append(spki, 0)):                  "it has 33 bytes",
		inPEM("PRIVATE KEY", spki):            "is not that of a public key",
		inPEM("PUBLIC KEY", spki) + "x":       "the PEM is malformed",
		"-----BEGIN PUBLIC KEY-----":          "the PEM is malformed",
		inPEM("PUBLIC KEY", x25519):           "is not that of an Ed25519 key",
		b64(make([]byte, 32)):                 "small order",
		hex.EncodeToString(make([]byte, 32)):  "small order",
		"01" + strings.Repeat("0", 62):        "small order",
		"01" + strings.Repeat("0", 60) + "80": "small order",
		"ec" + strings.Repeat("f", 60) + "7f": "small order",
		"ed" + strings.Repeat("f", 62):        "small order",
	} {
		_, err := genesis.ParsePublicKey(text)
		require.ErrorContains(t, err, want, text)
	}
}
