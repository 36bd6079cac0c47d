package v4_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
	v4 "comet/internal/wire/v5/v4"
)

// TestParseRefuses: with the code of the check and the byte of the V4 line.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		code   v5.Code
		at     int
		detail string
	}{
		"":                               {v5.E10, 0, "the line is empty"},
		"data":                           {v5.E10, 4, "the line has 1 segment, not 8"},
		"M1|O1>W1|R|T1|P1|N|data":        {v5.E10, 23, "the line has 7 segments, not 8"},
		"M|O1>W1|R|T1|P1|N|-|data":       {v5.E10, 0, "MSG must be"},
		"M1|O1>|R|T1|P1|N|-|data":        {v5.E13, 6, "ROUTE"},
		"M1|O1>W1|R|T1|P1|N|E|data":      {v5.E10, 19, "ERR must be"},
		"M1|O1>W1|R|T1|P1|N|-|":          {v5.E10, 21, "DATA must not be empty"},
		"M1|O1>W1|R|T1|P1|N|-|da>ta":     {v5.E12, 23, "DATA must not have '>'"},
		"M1|O1>W1|R|T1|P1|N|-|0|S1|B5|x": {v5.E12, 22, "DATA must not have '|'"},
		"M1|W1>O1|J|T0|P1|N|-|caps=a":    {v5.E14, 9, "V4 has no type J"},
		"M1|W1>O1|E|T1|P1|F|E17|data":    {v5.E10, 19, "V4 has no code E17"},
		"M1|W1>O1|S|T1|P1|D|-|a=#CTX:k":  {v5.E43, 21, "V4 has no references"},
	} {
		_, err := v4.Parse(line)
		var e *v5.Error
		require.ErrorAs(t, err, &e, line)
		require.Len(t, e.Problems, 1, line)
		require.Equal(t, want.code, e.Code(), line)
		require.Equal(t, want.at, e.Problems[0].At, line)
		require.Contains(t, e.Problems[0].Detail, want.detail)
		_, err = v4.Up(line)
		require.Error(t, err)
	}
}

// TestParse: a V4 line is a message of depth 0 without session and budget.
func TestParse(t *testing.T) {
	t.Parallel()
	m, err := v4.Parse("M12|W1>O1|E|T9|P0|F|E31|desc=busy;queue=5\r\n")
	require.NoError(t, err)
	require.Equal(t, v5.Message{
		Number: 12, From: v5.NthWorker(1), To: v5.Address{Role: v5.Orchestrator, Number: 1}, Type: v5.Failure,
		Task: v5.TaskOf(9), Priority: v5.P0, State: v5.Failed, Err: v5.E31, Data: "desc=busy;queue=5",
	}, m)
	broken, err := v4.Parse("M12|W1>O1|E|T9|P9|F|E31|x")
	require.Error(t, err)
	require.Equal(t, m.From, broken.From)
	require.Equal(t, m.Task, broken.Task)
}

// FuzzV4: what V4 says it says in V5 too, and back; what V5 says it says in V4, or says
// why not.
func FuzzV4(f *testing.F) {
	f.Add(good)
	f.Add(good + ";auth=S1:00aa:01234567")
	f.Add("M1|W1>O1|E|T1|P1|F|E17|0|S1|B20|desc=budget insufficient")
	f.Add("M1|W1>O1|X|T1|P1|F|-|0|S1|B20|call=a;params=b:#REF:T1")
	f.Add("M1|W1>O1|S|T1|?|D|-|a=#CTX:k")
	o1 := v5.Address{Role: v5.Orchestrator, Number: 1}
	f.Fuzz(func(t *testing.T, line string) {
		if m, err := v4.Parse(line); err != nil {
			var e *v5.Error
			require.ErrorAs(t, err, &e)
			require.True(t, 0 <= e.Problems[0].At && e.Problems[0].At <= max(len(line), v5.MaxLine))
			answer, err := v4.Format(v5.Refuse(m, o1, 1, e))
			require.Equal(t, m.From == v5.Address{}, err != nil, "%s: %v", answer, err)
		} else {
			requireSame(t, m)
			if up, err := v4.Up(line); m.Auth == (v5.Auth{}) {
				require.NoError(t, err)
				down, err := v4.Down(up)
				require.NoError(t, err)
				again, err := v4.Parse(down)
				require.NoError(t, err)
				require.Equal(t, m.Data, again.Data)
			}
		}
		m, err := v5.Parse(line)
		if err != nil {
			return
		}
		short, err := v4.Format(m)
		if err != nil {
			var u *v4.Unsayable
			require.ErrorAs(t, err, &u)
			return
		}
		require.Equal(t, v4.Segments-1, strings.Count(short, "|"))
		m.Depth, m.Context, m.Budget = 0, "", v5.Budget{}
		requireSame(t, m)
	})
}

// requireSame: a message without depth, session and budget comes back from V4.
func requireSame(t *testing.T, m v5.Message) {
	t.Helper()
	written, err := v4.Format(m)
	require.NoError(t, err)
	again, err := v4.Parse(written)
	require.NoError(t, err)
	again.Warnings = m.Warnings
	require.Equal(t, m, again)
}
