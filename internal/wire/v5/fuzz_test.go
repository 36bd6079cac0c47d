package v5_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
)

// canonical is a line as it is written, DATA apart: no zeros before a number, a digit
// as depth, no line break.
func canonical() *regexp.Regexp {
	return regexp.MustCompile(`^M(0|[1-9]\d*)\|[^|]*\|.\|(-|T0|T[1-9]\d*)\|[^|]*\|.\|[^|]*\|\d\|[^|]*\|(-|B0|B[1-9]\d*)\|[^|\r\n]*[^|\r\n;]$`)
}

// FuzzParse: nothing panics; what is accepted is written again, canonical lines byte by
// byte; what is refused can be answered where its sender can be read.
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
			requireAnswerable(t, line, m, err)
			return
		}
		require.LessOrEqual(t, utf8.RuneCountInString(string(m.Data)), v5.MaxData)
		require.True(t, utf8.ValidString(line))
		written, err := v5.Format(m)
		require.NoError(t, err)
		again, err := v5.Parse(written)
		require.NoError(t, err)
		again.Warnings = m.Warnings
		require.Equal(t, m, again)
		if lines.MatchString(line) && m.Warnings&v5.DataTruncated == 0 {
			require.Equal(t, line, written)
		}
		if m.Auth == (v5.Auth{}) && !strings.ContainsAny(line, "\r\n") {
			signed, err := v5.Sign(line, []byte("k"), "S1", "00aa")
			require.NoError(t, err)
			require.NoError(t, v5.Verify(signed, []byte("k")))
			again, err := v5.Parse(signed)
			require.NoError(t, err)
			require.Equal(t, m.Data, again.Data)
		}
	})
}

func requireAnswerable(t *testing.T, line string, m v5.Message, err error) {
	t.Helper()
	var refused *v5.Error
	require.ErrorAs(t, err, &refused)
	require.NotEmpty(t, refused.Problems)
	for _, p := range refused.Problems {
		require.True(t, p.Code.Valid())
		require.True(t, 0 <= p.At && p.At <= len(line), "%d of %d", p.At, len(line))
	}
	require.True(t, m.From == v5.Address{} || strings.Contains(line, m.From.String()))
	answer := v5.Refuse(m, v5.Address{Role: v5.Orchestrator, Number: 1}, 1, refused)
	written, err := v5.Format(answer)
	if m.From == (v5.Address{}) {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	again, err := v5.Parse(written)
	require.NoError(t, err)
	require.Equal(t, answer, again)
}

// FuzzFormat: a message that is written is read as the same.
func FuzzFormat(f *testing.F) {
	f.Add(1, byte('O'), byte(1), "W7.2", byte('R'), 1, byte('1'), byte('N'), "", 0, "S1", int64(500), "a=1", "S1", "00aa", "01234567")
	f.Add(0, byte('U'), byte(0), "*", byte('H'), 0, byte(0), byte(0), "E33", 5, "S0", int64(-1), "-", "", "", "")
	f.Fuzz(func(t *testing.T, number int, role, index byte, to string, kind byte, task int, priority, state byte, code string,
		depth int, context string, budget int64, data, session, nonce, signature string,
	) {
		m := v5.Message{
			Number: number, From: v5.Address{Role: v5.Role(role), Number: index}, Type: v5.Type(kind), Task: v5.TaskOf(task),
			Priority: v5.Priority(priority), State: v5.State(state), Err: v5.Code(code), Depth: depth, Context: context,
			Budget: v5.BudgetOf(budget), Data: v5.Data(data), Auth: v5.Auth{Session: session, Nonce: nonce, Signature: signature},
		}
		m.To, _ = v5.ParseAddress(to)
		written, err := v5.Format(m)
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
