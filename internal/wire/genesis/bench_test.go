package genesis_test

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/genesis"
)

// BenchmarkVerify parses and verifies a REQUEST of 1 KiB in each form, and for comparison verifies
// only its signature and only parses it. The aim is 150 µs for parsing and verifying.
func BenchmarkVerify(b *testing.B) {
	text := benchmarkRequest(b)
	m := parse(b, text)
	signed, err := m.Signed(genesis.AsSent)
	require.NoError(b, err)
	b.Run("ed25519", func(b *testing.B) {
		for b.Loop() {
			if !ed25519.Verify(m.PublicKey, signed, m.Signature) {
				b.Fatal("not verified")
			}
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := genesis.Parse(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, form := range allForms() {
		b.Run("parse and verify "+form.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m, err := genesis.Parse(text)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := m.Verify(m.PublicKey, form); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSign(b *testing.B) {
	m := parse(b, benchmarkRequest(b))
	b.ReportAllocs()
	for b.Loop() {
		signed := m
		if err := signed.Sign(testKey(), genesis.ProfileJCS); err != nil {
			b.Fatal(err)
		}
		if _, err := signed.Format(); err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarkRequest returns a signed REQUEST of 1 KiB with the document's entities.
func benchmarkRequest(b *testing.B) []byte {
	b.Helper()
	m := parse(b, named(b, "request"))
	request, _ := m.Body.(genesis.Request)
	for rows := 0; ; rows++ {
		request.Payload = []byte(`{"question":"Résumé?","rows":[` + strings.TrimSuffix(strings.Repeat("1.5,", rows), ",") + `]}`)
		m.Body = request
		require.NoError(b, m.Sign(testKey(), genesis.ProfileJCS))
		text, err := m.Format()
		require.NoError(b, err)
		if len(text) >= 1<<10 {
			require.True(b, json.Valid(text))
			return text
		}
	}
}
