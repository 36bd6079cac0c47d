package genesis_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/genesis"
)

// FuzzParse: Parse does not panic; a rejected message gets a valid ERROR; an accepted one has all
// forms, and Format writes the same message, which does not change when it is parsed and written again.
func FuzzParse(f *testing.F) {
	for _, x := range examples(f) {
		f.Add(x.data)
		f.Add(x.data[:len(x.data)-9])
		f.Add(changed(f, x.data, "/payload", `{"b":1.50,"a":"\ud800","b":{"2":-0,"1":1e21}}`))
	}
	for _, m := range outgoing() {
		require.NoError(f, m.Sign(testKey(), genesis.ProfileJCS))
		text, err := m.Format()
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := genesis.Parse(data)
		if err != nil {
			requireError(t, err)
			return
		}
		require.True(t, json.Valid(data))
		requireForms(t, m)
		written, err := m.Format()
		require.NoError(t, err)
		again := parse(t, written)
		require.Equal(t, inJavaScript(t, withoutMembers(m)), withoutMembers(again))
		twice, err := again.Format()
		require.NoError(t, err)
		require.Equal(t, string(written), string(twice))
	})
}

// requireError checks the ERROR that replies to a rejected message.
func requireError(t *testing.T, err error) {
	t.Helper()
	invalid, ok := errors.AsType[*genesis.Error](err)
	require.True(t, ok)
	require.NotEmpty(t, invalid.Problems)
	reply := genesis.Message{ID: "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a11", From: "nova", To: "x", Timestamp: 1e9, Body: invalid.Failure()}
	require.NoError(t, reply.Sign(testKey(), genesis.ProfileJCS))
	_, err = reply.Format()
	require.NoError(t, err)
}

// requireForms checks that the form AsSent consists of the members as they were sent, that the form
// AsJavaScript is what JavaScript prints of it, and that the form JCS is canonical.
func requireForms(t *testing.T, m genesis.Message) {
	t.Helper()
	sent, err := m.Signed(genesis.AsSent)
	require.NoError(t, err)
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(sent, &members))
	for name, value := range m.Sent() {
		if bytes.Contains([]byte(`"id""type""from""to""intent""payload""timestamp"`), []byte(`"`+name+`"`)) {
			var compact bytes.Buffer
			require.NoError(t, json.Compact(&compact, value))
			require.Equal(t, compact.String(), string(members[name]))
			delete(members, name)
		}
	}
	require.Empty(t, members)

	printed, err := m.Signed(genesis.AsJavaScript)
	require.NoError(t, err)
	want, err := genesis.JavaScript(sent)
	require.NoError(t, err)
	require.Equal(t, string(want), string(printed))

	canonical, err := m.Signed(genesis.JCS)
	if err != nil {
		return // repeated names or halves of surrogate pairs
	}
	again, err := genesis.Canonical(canonical)
	require.NoError(t, err)
	require.Equal(t, string(canonical), string(again))
}

// FuzzForms: any JSON value in a payload is printed without a panic, and printing the result again does
// not change it; a signed message can be verified in every form, and SignedValue returns the same payload
// for each form.
func FuzzForms(f *testing.F) {
	for _, payload := range payloads() {
		f.Add([]byte(payload))
	}
	f.Add([]byte(`{"b":1,"1":"\ud800","b":{"\udc00":-0.0,"":1e400}} `))
	f.Add([]byte(`"\uD83D\ud83d\uDE00\\uDE00"`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		printed, err := genesis.JavaScript(payload)
		if err == nil {
			again, err := genesis.JavaScript(printed)
			require.NoError(t, err)
			require.Equal(t, string(printed), string(again))
		}
		m := outgoing()[5]
		request, _ := m.Body.(genesis.Request)
		request.Payload = payload
		m.Body = request
		profile := genesis.ProfileJCS
		if err := m.Sign(testKey(), profile); err != nil {
			if profile = genesis.ProfileV1; m.Sign(testKey(), profile) != nil {
				return
			}
		}
		text, err := m.Format()
		require.NoError(t, err)
		received := parse(t, text)
		requireForms(t, received)
		for _, form := range allForms() {
			if form == genesis.JCS && profile == genesis.ProfileV1 {
				continue
			}
			found, err := received.Verify(received.PublicKey, form)
			require.NoError(t, err)
			require.Equal(t, form, found)
			require.Equal(t, string(printed), string(received.SignedValue("payload", form)))
		}
	})
}
