package v5_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// TestFormatErrors: Format rejects what Parse would reject, or would parse as another message.
func TestFormatErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*v5.Message)
		code   codes.Code
		reason string
	}{
		"the zero message":                  {func(m *v5.Message) { *m = v5.Message{} }, codes.E13, ""},
		"no number":                         {func(m *v5.Message) { m.Number = 0 }, codes.E10, ""},
		"a negative number":                 {func(m *v5.Message) { m.Number = -1 }, codes.E10, ""},
		"too high a number":                 {func(m *v5.Message) { m.Number = 10_000 }, codes.E10, ""},
		"no sender":                         {func(m *v5.Message) { m.From = v5.Address{} }, codes.E13, ""},
		"a multicast sender":                {func(m *v5.Message) { m.From = v5.Address{Role: v5.AllWorkers} }, codes.E13, ""},
		"no receiver":                       {func(m *v5.Message) { m.To = v5.Address{} }, codes.E13, ""},
		"a tenth orchestrator":              {func(m *v5.Message) { m.To.Role, m.To.Number = v5.Orchestrator, 10 }, codes.E13, ""},
		"a user with a number":              {func(m *v5.Message) { m.To = v5.Address{Role: v5.User, Number: 1} }, codes.E10, ""},
		"an unknown role":                   {func(m *v5.Message) { m.To = v5.Address{Role: '|', Number: 1} }, codes.E13, ""},
		"no type":                           {func(m *v5.Message) { m.Type = 0 }, codes.E14, ""},
		"an unknown type":                   {func(m *v5.Message) { m.Type = 'Z' }, codes.E14, ""},
		"a task out of range":               {func(m *v5.Message) { m.Task = v5.NewTask(1000) }, codes.E10, ""},
		"a request about task 0":            {func(m *v5.Message) { m.Task = v5.NewTask(0) }, codes.E10, ""},
		"an unknown priority":               {func(m *v5.Message) { m.Priority = 1 }, codes.E11, ""},
		"an unknown state":                  {func(m *v5.Message) { m.State = 'Z' }, codes.E15, codes.ReasonState},
		"the state -":                       {func(m *v5.Message) { m.State = '-' }, codes.E10, ""},
		"an invalid code":                   {func(m *v5.Message) { m.Err = "33" }, codes.E10, ""},
		"the code -":                        {func(m *v5.Message) { m.Err = "-" }, codes.E10, ""},
		"too deep":                          {func(m *v5.Message) { m.Depth = 6 }, codes.E16, codes.ReasonDepth},
		"a negative depth":                  {func(m *v5.Message) { m.Depth = -1 }, codes.E16, codes.ReasonDepth},
		"an invalid session":                {func(m *v5.Message) { m.Context = "1" }, codes.E10, ""},
		"a session with a bar":              {func(m *v5.Message) { m.Context, m.Budget = "S1|B5", v5.Budget{} }, codes.E12, ""},
		"no DATA":                           {func(m *v5.Message) { m.Data = "" }, codes.E10, ""},
		"DATA with a bar":                   {func(m *v5.Message) { m.Data = "a|b" }, codes.E12, ""},
		"DATA with a line break":            {func(m *v5.Message) { m.Data = "a\nb" }, codes.E12, ""},
		"DATA with a line break at its end": {func(m *v5.Message) { m.Data = "a\n" }, codes.E10, ""},
		"DATA with auth":                    {func(m *v5.Message) { m.Data = "a;auth=S1:00aa:01234567" }, codes.E10, ""},
		"long DATA":                         {func(m *v5.Message) { m.Data = v5.Data(strings.Repeat("x", 201)) }, codes.E10, codes.ReasonOverflow},
		"an incomplete signature":           {func(m *v5.Message) { m.Auth = v5.Auth{Session: "S1"} }, codes.E90, codes.ReasonAuth},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := parse(t, good)
			c.change(&m)
			line, err := m.Format()
			var e *v5.Error
			require.ErrorAs(t, err, &e, line)
			require.Empty(t, line)
			require.Equal(t, c.code, e.Code(), e)
			require.Equal(t, c.reason, e.Reason(), e)
		})
	}
}

// TestFormatIgnoresWarnings: warnings are about a parsed message.
func TestFormatIgnoresWarnings(t *testing.T) {
	t.Parallel()
	m := parse(t, good)
	m.Warnings = v5.DataTruncated | v5.DepthMissing | v5.QuoteOpen
	line, err := m.Format()
	require.NoError(t, err)
	require.Equal(t, good, line)
}

// TestZeroValues: the zero values are written as - or not at all.
func TestZeroValues(t *testing.T) {
	t.Parallel()
	require.Empty(t, v5.Type(0).String())
	require.Equal(t, "-", v5.State(0).String())
	require.Equal(t, "X", v5.Cancelled.String())
	require.Empty(t, v5.Address{}.String())
	require.NotEqual(t, v5.Request, v5.Type(0))
	require.False(t, v5.Type(0).IsSystem())
}
