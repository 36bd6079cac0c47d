package pipe_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/pipe"
)

// TestFormatRefuses what Parse would refuse, or would read as something else.
func TestFormatRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(*pipe.Message)
		code   pipe.Code
		reason string
	}{
		"the zero message":        {func(m *pipe.Message) { *m = pipe.Message{} }, pipe.E13, ""},
		"no number":               {func(m *pipe.Message) { m.Number = 0 }, pipe.E10, ""},
		"a negative number":       {func(m *pipe.Message) { m.Number = -1 }, pipe.E10, ""},
		"too high a number":       {func(m *pipe.Message) { m.Number = 10_000 }, pipe.E10, ""},
		"no sender":               {func(m *pipe.Message) { m.From = pipe.Address{} }, pipe.E13, ""},
		"many senders":            {func(m *pipe.Message) { m.From = pipe.Address{Role: pipe.Workers} }, pipe.E13, ""},
		"no receiver":             {func(m *pipe.Message) { m.To = pipe.Address{} }, pipe.E13, ""},
		"a tenth orchestrator":    {func(m *pipe.Message) { m.To.Role, m.To.Number = pipe.Orchestrator, 10 }, pipe.E13, ""},
		"a user with a number":    {func(m *pipe.Message) { m.To = pipe.Address{Role: pipe.User, Number: 1} }, pipe.E10, ""},
		"an unknown role":         {func(m *pipe.Message) { m.To = pipe.Address{Role: '|', Number: 1} }, pipe.E13, ""},
		"no type":                 {func(m *pipe.Message) { m.Type = 0 }, pipe.E14, ""},
		"an unknown type":         {func(m *pipe.Message) { m.Type = 'Z' }, pipe.E14, ""},
		"a task out of range":     {func(m *pipe.Message) { m.Task = pipe.TaskOf(1000) }, pipe.E10, ""},
		"a request of no task":    {func(m *pipe.Message) { m.Task = pipe.TaskOf(0) }, pipe.E10, ""},
		"an unknown priority":     {func(m *pipe.Message) { m.Priority = 1 }, pipe.E11, ""},
		"an unknown state":        {func(m *pipe.Message) { m.State = 'Z' }, pipe.E15, pipe.ReasonState},
		"a state that is silence": {func(m *pipe.Message) { m.State = '-' }, pipe.E10, ""},
		"a code that is none":     {func(m *pipe.Message) { m.Err = "33" }, pipe.E10, ""},
		"a code that is silence":  {func(m *pipe.Message) { m.Err = "-" }, pipe.E10, ""},
		"too deep":                {func(m *pipe.Message) { m.Depth = 6 }, pipe.E16, pipe.ReasonDepth},
		"less than flat":          {func(m *pipe.Message) { m.Depth = -1 }, pipe.E16, pipe.ReasonDepth},
		"no session's name":       {func(m *pipe.Message) { m.Context = "1" }, pipe.E10, ""},
		"a session with a bar":    {func(m *pipe.Message) { m.Context, m.Budget = "S1|B5", pipe.Budget{} }, pipe.E12, ""},
		"no DATA":                 {func(m *pipe.Message) { m.Data = "" }, pipe.E10, ""},
		"DATA with a bar":         {func(m *pipe.Message) { m.Data = "a|b" }, pipe.E12, ""},
		"DATA with a line break":  {func(m *pipe.Message) { m.Data = "a\nb" }, pipe.E12, ""},
		"DATA with one behind it": {func(m *pipe.Message) { m.Data = "a\n" }, pipe.E10, ""},
		"DATA with auth":          {func(m *pipe.Message) { m.Data = "a;auth=S1:00aa:01234567" }, pipe.E10, ""},
		"DATA that is too long":   {func(m *pipe.Message) { m.Data = pipe.Data(strings.Repeat("x", 201)) }, pipe.E10, pipe.ReasonOverflow},
		"half a signature":        {func(m *pipe.Message) { m.Auth = pipe.Auth{Session: "S1"} }, pipe.E90, pipe.ReasonAuth},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := parse(t, good)
			c.spoil(&m)
			line, err := pipe.Format(m)
			var e *pipe.Error
			require.ErrorAs(t, err, &e, line)
			require.Empty(t, line)
			require.Equal(t, c.code, e.Code(), e)
			require.Equal(t, c.reason, e.Reason(), e)
		})
	}
}

// TestFormatIgnoresWarnings: they are about the line that was read.
func TestFormatIgnoresWarnings(t *testing.T) {
	t.Parallel()
	m := parse(t, good)
	m.Warnings = pipe.DataTruncated | pipe.DepthMissing | pipe.QuoteOpen
	line, err := pipe.Format(m)
	require.NoError(t, err)
	require.Equal(t, good, line)
}

// TestLettersOfNothing: the zero values spell silence.
func TestLettersOfNothing(t *testing.T) {
	t.Parallel()
	require.Empty(t, pipe.Type(0).String())
	require.Equal(t, "-", pipe.NoState.String())
	require.Equal(t, "X", pipe.Cancelled.String())
	require.Empty(t, pipe.Address{}.String())
	require.False(t, pipe.Type(0).Valid())
	require.False(t, pipe.Type(0).System())
}
