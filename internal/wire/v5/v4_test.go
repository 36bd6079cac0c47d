package v5_test

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// goodV4 is the V4 message of §14.2.
const goodV4 = "M1|O1>W1|R|T1|P1|N|-|data"

// TestV4Document: the examples of §14.2 in both directions. Every other message of the document is
// either the same after V4, without depth, session and budget, or V4 does not have it.
func TestV4Document(t *testing.T) {
	t.Parallel()
	short, err := parse(t, "M1|O1>W1|R|T1|P1|N|-|0|S1|B500|data").FormatV4()
	require.NoError(t, err)
	require.Equal(t, goodV4, short)
	m, err := v5.ParseV4(goodV4)
	require.NoError(t, err)
	long, err := m.Format()
	require.NoError(t, err)
	require.Equal(t, "M1|O1>W1|R|T1|P1|N|-|0|-|-|data", long)

	archive, err := txtar.ParseFile("testdata/document.txtar")
	require.NoError(t, err)
	converted, rejected := 0, 0
	for _, file := range archive.Files {
		line := strings.TrimSpace(string(file.Data))
		if strings.HasSuffix(file.Name, "/v4") {
			require.Equal(t, goodV4, line, "both V4 messages of the document are the same")
		}
		m, err := v5.Parse(line)
		if !strings.HasSuffix(file.Name, "/line") || err != nil {
			continue
		}
		short, err := m.FormatV4()
		if err != nil {
			require.Contains(t, err.Error(), "V4 has no", line)
			require.True(t, strings.ContainsAny(m.Type.String(), "JLKDXQ") || m.Err == codes.E17 || strings.Contains(line, "#REF:"), line)
			rejected++
			continue
		}
		converted++
		require.Equal(t, v5.SegmentsV4-1, strings.Count(short, "|"))
		parsed, err := v5.ParseV4(short)
		require.NoError(t, err)
		m.Depth, m.Context, m.Budget, m.Warnings = 0, "", v5.Budget{}, 0
		require.Equal(t, m, parsed)
	}
	require.Equal(t, 23, converted)
	require.Equal(t, 10, rejected)
}

// TestFormatV4Errors tests what V4 does not have (annex A).
func TestFormatV4Errors(t *testing.T) {
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
		short, err := parse(t, line).FormatV4()
		var e *v5.Error
		require.ErrorAs(t, err, &e, line)
		require.Empty(t, short)
		require.Equal(t, want, e.Problems[0].Detail)
	}
	_, err := parse(t, "M1|O1>W1|R|T1|P1|N|-|0|-|-|see #REF:T1:raw").FormatV4()
	require.NoError(t, err, "a text can mention references")
	_, err = v5.Message{}.FormatV4()
	var e *v5.Error
	require.ErrorAs(t, err, &e)
}

// TestParseV4Errors tests the code of each check.
func TestParseV4Errors(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		code   codes.Code
		detail string
	}{
		"":                               {codes.E10, "the message is empty"},
		"data":                           {codes.E10, "the message has 1 segment, not 8"},
		"M1|O1>W1|R|T1|P1|N|data":        {codes.E10, "the message has 7 segments, not 8"},
		"M|O1>W1|R|T1|P1|N|-|data":       {codes.E10, "MSG must be"},
		"M1|O1>|R|T1|P1|N|-|data":        {codes.E13, "ROUTE"},
		"M1|O1>W1|R|T1|P1|N|E|data":      {codes.E10, "ERR must be"},
		"M1|O1>W1|R|T1|P1|N|-|":          {codes.E10, "DATA must not be empty"},
		"M1|O1>W1|R|T1|P1|N|-|da>ta":     {codes.E12, "DATA must not have '>'"},
		"M1|O1>W1|R|T1|P1|N|-|0|S1|B5|x": {codes.E12, "DATA must not have '|'"},
		"M1|W1>O1|J|T0|P1|N|-|caps=a":    {codes.E14, "V4 has no type J"},
		"M1|W1>O1|E|T1|P1|F|E17|data":    {codes.E10, "V4 has no code E17"},
		"M1|W1>O1|S|T1|P1|D|-|a=#CTX:k":  {codes.E43, "V4 has no references"},
	} {
		_, err := v5.ParseV4(line)
		var e *v5.Error
		require.ErrorAs(t, err, &e, line)
		require.Len(t, e.Problems, 1, line)
		require.Equal(t, want.code, e.Code(), line)
		require.Contains(t, e.Problems[0].Detail, want.detail)
	}
}

// TestParseV4: a V4 message has depth 0 and neither session nor budget.
func TestParseV4(t *testing.T) {
	t.Parallel()
	m, err := v5.ParseV4("M12|W1>O1|E|T9|P0|F|E31|desc=busy;queue=5\r\n")
	require.NoError(t, err)
	require.Equal(t, v5.Message{
		Number: 12, From: v5.WorkerAddress(1), To: v5.Address{Role: v5.Orchestrator, Number: 1}, Type: v5.Failure,
		Task: v5.NewTask(9), Priority: v5.P0, State: v5.Failed, Err: codes.E31, Data: "desc=busy;queue=5",
	}, m)
	invalid, err := v5.ParseV4("M12|W1>O1|E|T9|P9|F|E31|x")
	require.Error(t, err)
	require.Equal(t, m.From, invalid.From)
	require.Equal(t, m.Task, invalid.Task)
}

// TestSignaturesInV4: parsing and writing keep the signature of a V4 message.
func TestSignaturesInV4(t *testing.T) {
	t.Parallel()
	key := []byte("the shared key")
	signed, err := v5.Auth{Session: "S1", Nonce: "00aa"}.Sign(goodV4, key)
	require.NoError(t, err)
	m, err := v5.ParseV4(signed)
	require.NoError(t, err)
	written, err := m.FormatV4()
	require.NoError(t, err)
	require.Equal(t, signed, written)
	require.NoError(t, v5.Verify(written, key))
}

// FuzzV4: a message that V4 has is the same after V4, and any other is rejected.
func FuzzV4(f *testing.F) {
	f.Add(goodV4)
	f.Add(goodV4 + ";auth=S1:00aa:01234567")
	f.Add("M1|W1>O1|E|T1|P1|F|E17|0|S1|B20|desc=budget insufficient")
	f.Add("M1|W1>O1|X|T1|P1|F|-|0|S1|B20|call=a;params=b:#REF:T1")
	f.Add("M1|W1>O1|S|T1|?|D|-|a=#CTX:k")
	o1 := v5.Address{Role: v5.Orchestrator, Number: 1}
	f.Fuzz(func(t *testing.T, line string) {
		if m, err := v5.ParseV4(line); err != nil {
			var e *v5.Error
			require.ErrorAs(t, err, &e)
			reply, err := e.Reply(m, o1, 1).FormatV4()
			require.Equal(t, m.From == v5.Address{}, err != nil, "%s: %v", reply, err)
		} else {
			requireSameInV4(t, m)
		}
		m, err := v5.Parse(line)
		if err != nil {
			return
		}
		short, err := m.FormatV4()
		if err != nil {
			require.Contains(t, err.Error(), "V4 has no")
			return
		}
		require.Equal(t, v5.SegmentsV4-1, strings.Count(short, "|"))
		m.Depth, m.Context, m.Budget = 0, "", v5.Budget{}
		requireSameInV4(t, m)
	})
}

// requireSameInV4 requires that a message without depth, session and budget is the same after V4.
func requireSameInV4(t *testing.T, m v5.Message) {
	t.Helper()
	written, err := m.FormatV4()
	require.NoError(t, err)
	parsed, err := v5.ParseV4(written)
	require.NoError(t, err)
	parsed.Warnings = m.Warnings
	require.Equal(t, m, parsed)
}
