package webhooks

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/webhooks/signature"
)

func key(letter string) []byte { return bytes.Repeat([]byte(letter), 32) }

// signedBy tells which of the keys a header is signed with.
func signedBy(t *testing.T, header, id string, at time.Time, body []byte) (by string) {
	t.Helper()
	for signed := range strings.FieldsSeq(header) {
		for name, text := range map[string]string{
			"new ": signature.FormatSecret(key("n")), "old ": signature.FormatSecret(key("o")),
			"NEW ": signature.PublicKey(key("N")), "OLD ": signature.PublicKey(key("O")),
		} {
			v, err := signature.NewVerifier(text)
			require.NoError(t, err)
			h := http.Header{}
			h.Set(signature.HeaderID, id)
			h.Set(signature.HeaderTimestamp, signature.Timestamp(at))
			h.Set(signature.HeaderSignature, signed)
			if v.Verify(h, body, at) == nil {
				by += name
			}
		}
	}
	return by
}

func TestKeysThatSign(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 10, 15, 30, 0, 0, time.UTC)
	rotated := models.WebhookKeys{
		Secret: key("n"), SigningKey: key("N"), PreviousKeys: []models.PreviousKeys{{Secret: key("o"), SigningKey: key("O"), Until: now.Add(time.Hour)}},
	}
	pk := func(letter string) string { return signature.PublicKey(key(letter)) }
	for name, c := range map[string]struct {
		keys   models.WebhookKeys
		at     time.Time
		signed string
		public []string
	}{
		"a secret alone":                    {models.WebhookKeys{Secret: key("n")}, now, "new ", nil},
		"a secret and a signing key":        {models.WebhookKeys{Secret: key("n"), SigningKey: key("N")}, now, "new NEW ", []string{pk("N")}},
		"both pairs while they change":      {rotated, now, "new old NEW OLD ", []string{pk("N"), pk("O")}},
		"both until the last moment":        {rotated, now.Add(time.Hour - 1), "new old NEW OLD ", []string{pk("N"), pk("O")}},
		"the new ones from the end on":      {rotated, now.Add(time.Hour), "new NEW ", []string{pk("N")}},
		"old ones of which one never was":   {models.WebhookKeys{Secret: key("n"), SigningKey: key("N"), PreviousKeys: []models.PreviousKeys{{Secret: key("o"), Until: now.Add(1)}}}, now, "new old NEW ", []string{pk("N")}},
		"a signing key that was taken away": {models.WebhookKeys{Secret: key("n"), PreviousKeys: []models.PreviousKeys{{Secret: key("o"), SigningKey: key("O"), Until: now.Add(1)}}}, now, "new old OLD ", []string{pk("O")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := []byte(`{"type":"agent.created"}`)
			require.Equal(t, c.signed, signedBy(t, signatures(c.keys, "id", c.at, body), "id", c.at, body))
			require.Equal(t, c.public, PublicKeys(c.keys, c.at))
		})
	}
}
