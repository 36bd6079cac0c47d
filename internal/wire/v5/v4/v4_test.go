package v4_test

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
	v4 "comet/internal/wire/v5/v4"
)

const good = "M1|O1>W1|R|T1|P1|N|-|data"

// TestExamplesOfTheDocument: §14.2, both ways, and every other line of the document
// either goes to V4 and back without depth, session and budget, or is refused by name.
func TestExamplesOfTheDocument(t *testing.T) {
	t.Parallel()
	down, err := v4.Down("M1|O1>W1|R|T1|P1|N|-|0|S1|B500|data")
	require.NoError(t, err)
	require.Equal(t, good, down)
	up, err := v4.Up(good)
	require.NoError(t, err)
	require.Equal(t, "M1|O1>W1|R|T1|P1|N|-|0|-|-|data", up)

	archive, err := txtar.ParseFile("../testdata/document.txtar")
	require.NoError(t, err)
	said, refused := 0, 0
	for _, file := range archive.Files {
		line := strings.TrimSpace(string(file.Data))
		if strings.HasSuffix(file.Name, "/v4") {
			require.Equal(t, good, line, "both lines of V4 in the document are the same")
		}
		m, err := v5.Parse(line)
		if !strings.HasSuffix(file.Name, "/line") || err != nil {
			continue
		}
		short, err := v4.Format(m)
		if err != nil {
			var u *v4.Unsayable
			require.ErrorAs(t, err, &u, line)
			require.True(t, strings.ContainsAny(m.Type.String(), "JLKDXQ") || m.Err == v5.E17 || strings.Contains(line, "#REF:"), line)
			refused++
			continue
		}
		said++
		require.Equal(t, v4.Segments-1, strings.Count(short, "|"))
		again, err := v4.Parse(short)
		require.NoError(t, err)
		m.Depth, m.Context, m.Budget, m.Warnings = 0, "", v5.Budget{}, 0
		require.Equal(t, m, again)
	}
	require.Equal(t, 23, said)
	require.Equal(t, 10, refused)
}

// TestFormatRefusesWhatV4CannotSay (annex A).
func TestFormatRefusesWhatV4CannotSay(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"M1|W3>O1|J|T0|-|-|-|0|S0|-|caps=a":                   "TYPE: V4 has no type J",
		"M1|W3>O1|L|T0|-|-|-|0|S0|-|reason=a":                 "TYPE: V4 has no type L",
		"M1|W3>O1|K|T0|-|-|-|0|S0|-|caps=a":                   "TYPE: V4 has no type K",
		"M1|O1>User|D|T1|-|-|-|0|S1|-|question=a":             "TYPE: V4 has no type D",
		"M1|W1>W2|X|T1|-|-|-|1|S1|-|call=a":                   "TYPE: V4 has no type X",
		"M1|O1>W1|Q|T0|-|-|-|0|S0|-|filter=W*":                "TYPE: V4 has no type Q",
		"M1|W1>O1|E|T1|-|F|E16|0|S1|-|reason=max_depth":       "ERR: V4 has no code E16",
		"M1|W1>O1|E|T1|-|F|E17|0|S1|-|desc=a":                 "ERR: V4 has no code E17",
		"M1|W1>O1|E|T1|-|F|E18|0|S1|-|desc=a":                 "ERR: V4 has no code E18",
		"M1|W1>O1|E|T1|-|F|E19|0|S1|-|desc=a":                 "ERR: V4 has no code E19",
		"M1|W1>O1|S|T1|-|D|-|0|S1|-|n=5;src=#REF:T1:raw":      "DATA: V4 has no references, but there is one in src",
		`M1|W1>O1|S|T1|-|D|-|0|S1|-|src="#CTX:key"`:           "DATA: V4 has no references, but there is one in src",
		"M1|O1>W1|R|T1|-|N|-|0|S1|-|params=a:1,prev:#MSG:M3;": "DATA: V4 has no references, but there is one in prev",
	} {
		short, err := v4.Down(line)
		var u *v4.Unsayable
		require.ErrorAs(t, err, &u, line)
		require.Empty(t, short)
		require.Equal(t, want, u.Error())
	}
	_, err := v4.Down("M1|O1>W1|R|T1|P1|N|-|0|-|-|see #REF:T1:raw")
	require.NoError(t, err, "a text may speak of references")
	_, err = v4.Down("nonsense")
	var e *v5.Error
	require.ErrorAs(t, err, &e)
	_, err = v4.Format(v5.Message{})
	require.ErrorAs(t, err, &e)
}

// TestCode: what V5 has added is told as uncategorised, and is not retried either.
func TestCode(t *testing.T) {
	t.Parallel()
	for _, c := range append(v5.Codes(), "", "E77") {
		want := c
		if c >= v5.E16 && c <= v5.E19 {
			want = v5.E99
			require.Zero(t, c.Retries())
			require.Equal(t, v5.ClassNever, want.Class())
		}
		require.Equal(t, want, v4.Code(c))
	}
}

// TestSignaturesAreOfOneLine: transcoding leaves them out, reading and writing do not.
func TestSignaturesAreOfOneLine(t *testing.T) {
	t.Parallel()
	key := []byte("the shared key")
	signed, err := v5.Sign(good, key, "S1", "00aa")
	require.NoError(t, err)
	m, err := v4.Parse(signed)
	require.NoError(t, err)
	written, err := v4.Format(m)
	require.NoError(t, err)
	require.Equal(t, signed, written)
	require.NoError(t, v5.Verify(written, key))

	up, err := v4.Up(signed)
	require.NoError(t, err)
	require.Equal(t, "M1|O1>W1|R|T1|P1|N|-|0|-|-|data", up)
	signed, err = v5.Sign(up, key, "S1", "00aa")
	require.NoError(t, err)
	down, err := v4.Down(signed)
	require.NoError(t, err)
	require.Equal(t, good, down)
}
