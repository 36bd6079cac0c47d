package envelope_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

// FuzzParse: Parse does not panic, an accepted message is valid JSON and formats to a stable form,
// and a refused message gets a valid error.
func FuzzParse(f *testing.F) {
	for _, x := range examples(f) {
		f.Add([]byte(x.sent))
		f.Add([]byte(x.want))
	}
	for _, base := range bases() {
		f.Add([]byte(base))
		f.Add([]byte(base[:len(base)-5]))
	}
	for _, p := range everyPayload() {
		written, err := envelope.Format(around(p))
		require.NoError(f, err)
		f.Add(written)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := envelope.Parse(data)
		if err != nil {
			var refused *envelope.Error
			require.ErrorAs(t, err, &refused)
			require.NotEmpty(t, refused.Problems)
			_, err := envelope.Format(envelope.Reply(e, e.MessageID, e.Timestamp, refused.Failure))
			if e.Timestamp.IsZero() || e.MessageID == (envelope.Envelope{}).MessageID {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			return
		}
		require.True(t, json.Valid(data))
		kind, taskID := envelope.Head(data)
		require.Equal(t, e.Type, kind)
		if e.Type != envelope.TypeError && taskIDOf(e) != "" { // an error names its task elsewhere
			require.Equal(t, taskIDOf(e), taskID)
		}
		if e.Timestamp.IsZero() {
			return // Format rejects the zero time
		}
		written, err := envelope.Format(e)
		require.NoError(t, err)
		again, err := envelope.Parse(written)
		require.NoError(t, err)
		twice, err := envelope.Format(again)
		require.NoError(t, err)
		require.Equal(t, string(written), string(twice))
		e.Raw, again.Raw = nil, nil
		require.Equal(t, spaceless(e), again)
	})
}

// taskIDOf returns the task that a message is about, "" for none.
func taskIDOf(e envelope.Envelope) string {
	switch p := e.Payload.(type) {
	case envelope.WorkRequest:
		return p.TaskID.String()
	case envelope.WorkStatus:
		return p.TaskID.String()
	case envelope.WorkResult:
		return p.TaskID.String()
	}
	return ""
}

// FuzzParseRange: an accepted range is valid, and its string form parses to the same range.
func FuzzParseRange(f *testing.F) {
	for _, text := range []string{"bytes 0-262144 of 524288", "bytes 0-256k", "bytes 256k-512k of 1024k", "bytes 9-1", "bytes k-k of k"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := envelope.ParseRange(text)
		if err != nil {
			return
		}
		require.Less(t, r.From, r.To)
		require.LessOrEqual(t, r.To-r.From, int64(envelope.MaxChunk))
		require.True(t, r.Total == 0 || r.To <= r.Total)
		again, err := envelope.ParseRange(r.String())
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

// FuzzSplit: the chunks concatenate to the text, none is too long, and none ends inside a character
// of valid UTF-8.
func FuzzSplit(f *testing.F) {
	f.Add("a", "é", 262143)
	f.Add("", "😀", 70000)
	f.Fuzz(func(t *testing.T, head, unit string, times int) {
		if times < 0 || times > 600_000 || len(unit)*times > 2<<20 {
			return
		}
		text := head + strings.Repeat(unit, times)
		whole := utf8.ValidString(text)
		at := int64(0)
		for _, c := range envelope.Split(text, envelope.MaxChunk) {
			require.Equal(t, at, c.From)
			require.Equal(t, text[c.From:c.To], c.Text)
			require.LessOrEqual(t, len(c.Text), envelope.MaxChunk)
			require.True(t, !whole || utf8.ValidString(c.Text))
			at = c.To
		}
		require.Equal(t, int64(len(text)), at)
	})
}
