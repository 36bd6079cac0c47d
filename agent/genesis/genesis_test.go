package genesis_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/agent/genesis"
	wire "comet/internal/wire/genesis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+n)), ed25519.SeedSize)))
}

// server answers every REQUEST with a RESPONSE with its payload that is signed by a key, whatever it publishes.
func server(t *testing.T, signer ed25519.PrivateKey, change func(string) string) (address string, received *wire.Message) {
	t.Helper()
	received = &wire.Message{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = fmt.Fprintf(w, `{"keys":[{"x":%q}]}`, base64.RawURLEncoding.EncodeToString(key(0).Public().(ed25519.PublicKey)))
			return
		}
		text, _ := io.ReadAll(r.Body)
		m, _ := wire.Parse(text) // the signature may be missing
		*received = m
		reply := wire.Message{ID: uuid.NewString(), From: "nova", To: m.From, CorrelationID: m.ID, Timestamp: time.Now().UnixNano(), Body: wire.Response{
			RequestID: m.ID, Status: wire.Succeeded, Data: m.Body.(wire.Request).Payload,
		}}
		_ = reply.Sign(signer, wire.ProfileJCS)
		out, _ := reply.Format()
		_, _ = io.WriteString(w, change(string(out)))
	}))
	t.Cleanup(func() {
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s.URL, received
}

func same(text string) string { return text }

func TestSend(t *testing.T) {
	send := func(t *testing.T, address string, pem []byte) (genesis.Message, error) {
		t.Helper()
		c, err := genesis.New(genesis.Options{Server: address, From: "boss", Key: pem})
		require.NoError(t, err)
		return c.Send(t.Context(), "", "dig", []byte(`{"rows":3}`), nil)
	}
	t.Run("signed", func(t *testing.T) {
		address, received := server(t, key(0), same)
		end, err := send(t, address, []byte(pemKey))
		require.NoError(t, err)
		require.Equal(t, []string{"RESPONSE", "SUCCESS", `{"rows":3}`}, []string{end.Type, end.Status, string(end.Value)})
		require.Equal(t, publicKey, base64.StdEncoding.EncodeToString(received.PublicKey))
		for _, form := range []wire.Form{wire.AsSent, wire.JCS} {
			_, err := received.Verify(received.PublicKey, form)
			require.NoError(t, err)
		}
		require.Equal(t, "broadcast", received.To)
	})
	t.Run("unsigned", func(t *testing.T) {
		address, received := server(t, key(0), same)
		_, err := send(t, address, nil)
		require.NoError(t, err)
		require.Nil(t, received.Signature)
		require.Nil(t, received.PublicKey)
	})
	t.Run("a response of another signer", func(t *testing.T) {
		address, _ := server(t, key(2), same)
		_, err := send(t, address, nil)
		require.ErrorContains(t, err, "publicKey is not one of the server's keys")
	})
	t.Run("a changed response", func(t *testing.T) {
		address, _ := server(t, key(0), func(text string) string { return strings.Replace(text, `"rows":3`, `"rows":4`, 1) })
		_, err := send(t, address, nil)
		require.ErrorContains(t, err, "SIGNATURE_INVALID")
	})
}

func TestKeys(t *testing.T) {
	for text, want := range map[string]string{
		"x": "no \"PRIVATE KEY\" in PEM",
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": "not a key in PKCS #8",
		otherKey: "the key is not an Ed25519 key; ",
	} {
		_, err := genesis.New(genesis.Options{Key: []byte(text)})
		require.ErrorContains(t, err, want)
	}
}

// pemKey is a private key, publicKey its public key, and otherKey a key of another algorithm.
const (
	pemKey    = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIHGcoRg1zxxmfm27GTPP78uNIqwM6A8Z4ElHbVzV9SFP\n-----END PRIVATE KEY-----\n"
	otherKey  = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VuBCIEIIgDNH2TEH8LFvuTwPqCGG31OBvRx3fSUZy3oCp/oAR4\n-----END PRIVATE KEY-----\n" // X25519
	publicKey = "m7z2i+MIdufAb0pM7U/3Iqjxk9Wfg78oX/tqcOtcg5o="
)
