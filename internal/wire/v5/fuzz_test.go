package v5_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// canonical matches messages as Format writes them: no zeros before a number, a digit as depth, no
// line break.
func canonical() *regexp.Regexp {
	return regexp.MustCompile(`^M(0|[1-9]\d*)\|[^|]*\|.\|(-|T0|T[1-9]\d*)\|[^|]*\|.\|[^|]*\|\d\|[^|]*\|(-|B0|B[1-9]\d*)\|[^|\r\n]*[^|\r\n;]$`)
}

// FuzzParse: Parse does not panic; Format writes an accepted message as the same, a canonical one
// byte by byte; a rejected message has a reply where its sender was parsed.
func FuzzParse(f *testing.F) {
	for _, x := range examples(f) {
		f.Add(x.sent)
	}
	f.Add(good + ";auth=S1:00aa:01234567")
	f.Add("M0001|W99.a>*|H|T000|-|-|E00|-|S0|B0009|" + strings.Repeat("é;", 200))
	f.Add("M1|O1>W1|R|T1|P1|N|-|0|S1|B500|a\xff|\x00")
	lines := canonical()
	f.Fuzz(func(t *testing.T, line string) {
		m, err := v5.Parse(line)
		if err != nil {
			requireReplyTo(t, line, m, err)
			return
		}
		require.LessOrEqual(t, utf8.RuneCountInString(string(m.Data)), v5.MaxData)
		require.True(t, utf8.ValidString(line))
		written, err := m.Format()
		require.NoError(t, err)
		again, err := v5.Parse(written)
		require.NoError(t, err)
		again.Warnings = m.Warnings
		require.Equal(t, m, again)
		if lines.MatchString(line) && m.Warnings&v5.DataTruncated == 0 {
			require.Equal(t, line, written)
		}
		if m.Auth == (v5.Auth{}) && !strings.ContainsAny(line, "\r\n") {
			signed, err := v5.Auth{Session: "S1", Nonce: "00aa"}.Sign(line, []byte("k"))
			require.NoError(t, err)
			require.NoError(t, v5.Verify(signed, []byte("k")))
			again, err := v5.Parse(signed)
			require.NoError(t, err)
			require.Equal(t, m.Data, again.Data)
		}
	})
}

func requireReplyTo(t *testing.T, line string, m v5.Message, err error) {
	t.Helper()
	var invalid *v5.Error
	require.ErrorAs(t, err, &invalid)
	require.NotEmpty(t, invalid.Problems)
	for _, p := range invalid.Problems {
		require.True(t, p.Code.Valid())
	}
	require.True(t, m.From == v5.Address{} || strings.Contains(line, m.From.String()))
	answer := invalid.Reply(m, v5.Address{Role: v5.Orchestrator, Number: 1}, 1)
	written, err := answer.Format()
	if m.From == (v5.Address{}) {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	again, err := v5.Parse(written)
	require.NoError(t, err)
	require.Equal(t, answer, again)
}

// FuzzFormat: Parse reads a written message as the same.
func FuzzFormat(f *testing.F) {
	f.Add(1, byte('O'), byte(1), "W7.2", byte('R'), 1, byte('1'), byte('N'), "", 0, "S1", int64(500), "a=1", "S1", "00aa", "01234567")
	f.Add(0, byte('U'), byte(0), "*", byte('H'), 0, byte(0), byte(0), "E33", 5, "S0", int64(-1), "-", "", "", "")
	f.Fuzz(func(t *testing.T, number int, role, index byte, to string, kind byte, task int, priority, state byte, code string,
		depth int, context string, budget int64, data, session, nonce, signature string,
	) {
		m := v5.Message{
			Number: number, From: v5.Address{Role: v5.Role(role), Number: index}, Type: v5.Type(kind), Task: v5.NewTask(task),
			Priority: v5.Priority(priority), State: v5.State(state), Err: codes.Code(code), Depth: depth, Context: context,
			Budget: v5.NewBudget(budget), Data: v5.Data(data), Auth: v5.Auth{Session: session, Nonce: nonce, Signature: signature},
		}
		m.To, _ = v5.ParseAddress(to)
		written, err := m.Format()
		if err != nil {
			require.Empty(t, written)
			return
		}
		require.NotContains(t, written, "\n")
		again, err := v5.Parse(written)
		require.NoError(t, err)
		again.Warnings = 0
		require.Equal(t, m, again)
	})
}

// FuzzData: any DATA is read without panic and without inventing a byte; what Writer accepts is
// read as the same.
func FuzzData(f *testing.F) {
	for _, x := range examples(f) {
		if x.kind == "data" {
			f.Add(x.sent, "key", "value", "a", "b")
		}
	}
	f.Add(`a="b;c";d="`, "k", " v;,", `"`, "é|")
	f.Add("token=x;;retry=1;max=2;fallback=W1;agents=W1,W2;pid=M5", "a", ";auth=", "", "-")
	f.Fuzz(func(t *testing.T, data, key, value, first, second string) {
		requireReadable(t, v5.Data(data), key)

		text, err := new(v5.Writer).Text("desc", value).Text("more", data).Data()
		require.NoError(t, err)
		requireValidData(t, text)

		var w v5.Writer
		w.Add(key, value).List("list", first, second).Flag("last")
		written, err := w.Data()
		if err != nil {
			var invalid *v5.Error
			require.ErrorAs(t, err, &invalid)
			require.Contains(t, []string{codes.ReasonOverflow, codes.ReasonNotEncodable}, invalid.Reason())
			return
		}
		requireValidData(t, written)
		got, ok := written.Get(key)
		require.True(t, ok)
		require.Equal(t, value, got)
		if key == "list" {
			return // the first of two so named
		}
		list, _ := written.Pair("list")
		require.Equal(t, []string{first, second}, slices.Collect(list.List()))
		require.Len(t, slices.Collect(written.Pairs()), 3)
		if key != "last" {
			rest, cut, found := written.Cut(key)
			require.True(t, found)
			require.Equal(t, value, cut)
			require.Len(t, slices.Collect(rest.Pairs()), 2)
		}
	})
}

// requireValidData requires that a message can have the DATA unchanged.
func requireValidData(t *testing.T, d v5.Data) {
	t.Helper()
	require.LessOrEqual(t, utf8.RuneCountInString(string(d)), v5.MaxData)
	m, err := v5.Parse(with(v5.SegmentData, string(d)))
	require.NoError(t, err)
	require.Equal(t, d, m.Data)
	require.Zero(t, m.Warnings)
}

func requireReadable(t *testing.T, d v5.Data, key string) {
	t.Helper()
	seen := 0
	for p := range d.Pairs() {
		seen += len(p.Key) + len(p.Raw())
		require.Contains(t, string(d), p.Key)
		require.Contains(t, p.Raw(), p.Value())
		for element := range p.List() {
			require.Contains(t, p.Raw(), element)
			if r, err := v5.ParseRef(element); err == nil {
				again, err := v5.ParseRef(r.String())
				require.NoError(t, err)
				require.Equal(t, r, again)
			}
		}
	}
	require.LessOrEqual(t, seen, len(d))
	for name := range d.Params() {
		require.Contains(t, string(d), name)
	}
	require.LessOrEqual(t, len(d.Call()), len(d))
	rest, _, found := d.Cut(key)
	_, ok := rest.Pair(key)
	require.False(t, found && ok, "%q without %q is %q", d, key, rest)
	if r, err := d.Retry(); err == nil && len(r.Reason) == 0 {
		_, err := new(v5.Writer).Retry(r).Data()
		require.NoError(t, err)
	}
	_, err := d.Parent()
	var invalid *v5.Error
	require.True(t, err == nil || errors.As(err, &invalid))
}
