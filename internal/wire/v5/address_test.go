package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// TestParseAddress tests the limits of §2.1, one dot, and ten characters.
func TestParseAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		role   v5.Role
		number uint8
		sub    string
		many   bool
	}{
		"O1":         {v5.Orchestrator, 1, "", false},
		"O9":         {v5.Orchestrator, 9, "", false},
		"O1.W1":      {v5.Orchestrator, 1, "W1", false},
		"W1":         {v5.Worker, 1, "", false},
		"W42":        {v5.Worker, 42, "", false},
		"W99":        {v5.Worker, 99, "", false},
		"W1.2":       {v5.Worker, 1, "2", false},
		"W99.123456": {v5.Worker, 99, "123456", false},
		"W1.1234567": {v5.Worker, 1, "1234567", false},
		"W1.aZ":      {v5.Worker, 1, "aZ", false},
		"R9":         {v5.Router, 9, "", false},
		"G1":         {v5.Group, 1, "", true},
		"User":       {v5.User, 0, "", false},
		"*":          {v5.AllAgents, 0, "", true},
		"W*":         {v5.AllWorkers, 0, "", true},
	} {
		a, err := v5.ParseAddress(text)
		require.NoError(t, err, text)
		require.Equal(t, want.role, a.Role, text)
		require.Equal(t, want.number, a.Number, text)
		require.Equal(t, want.sub, a.Sub(), text)
		require.Equal(t, want.many, a.IsMulticast(), text)
		require.Equal(t, text, a.String())
	}
}

// TestParseAddressErrors: an invalid address is E13.
func TestParseAddressErrors(t *testing.T) {
	t.Parallel()
	for text, detail := range map[string]string{
		"": "must be an id such as", "O": "must be an id", "1": "must be an id", "X1": "must be an id", "o1": "must be an id",
		"U1": "must be an id", "*1": "must be an id", "w1": "must be an id", "w*": "must be an id", "G*": "must be an id", "user": "must be an id", "User.1": "must be an id",
		"O0": "not 1 to 9", "O10": "not 1 to 9", "R12": "not 1 to 9", "G0": "not 1 to 9", "W0": "not 1 to 99", "W01": "not 1 to 99",
		"W100": "is not 1 to 99; the worker with the number 100 is W1.1", "W100x": "is not 1 to 99", "W1x": "more after its number", "W1.": "more after its number", "W1.2.3": "more after its number",
		"W1.é": "more after its number", "W1.-": "more after its number", "W1 ": "more after its number", "W1.*": "more after its number",
		"W99.1234567": "longer than 10 characters", "W1.12345678": "longer than 10 characters", "W*.1": "must be an id",
	} {
		_, err := v5.ParseAddress(text)
		var e *v5.Error
		require.ErrorAs(t, err, &e, text)
		require.Equal(t, codes.E13, e.Code())
		require.Contains(t, e.Error(), detail, text)
	}
}

// TestWorkerAddress: the hundredth worker is the first with a dot.
func TestWorkerAddress(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{1: "W1", 2: "W2", 99: "W99", 100: "W1.1", 198: "W99.1", 199: "W1.2", 1_000_000: "W1.10101"} {
		a := v5.WorkerAddress(n)
		require.Equal(t, want, a.String())
		again, err := v5.ParseAddress(want)
		require.NoError(t, err)
		require.Equal(t, a, again)
	}
	seen := map[v5.Address]bool{}
	for n := 1; n <= 1000; n++ {
		seen[v5.WorkerAddress(n)] = true
	}
	require.Len(t, seen, 1000)
	_, err := v5.ParseAddress(v5.WorkerAddress(0).String())
	require.Error(t, err)
}

// TestTasksAndBudgets: none differs from 0.
func TestTasksAndBudgets(t *testing.T) {
	t.Parallel()
	require.Equal(t, "-", v5.Task{}.String())
	require.Equal(t, "T0", v5.NewTask(0).String())
	require.Equal(t, "T999", v5.NewTask(999).String())
	n, ok := v5.NewTask(7).Number()
	require.True(t, ok)
	require.Equal(t, 7, n)
	for _, n := range []int{-1, 1000, 1 << 20} {
		_, ok := v5.NewTask(n).Number()
		require.False(t, ok)
		require.NotEqual(t, v5.Task{}, v5.NewTask(n), "a number out of range is not none")
	}

	for tokens, want := range map[int64]string{0: "B0", 500: "B500", 9999: "B9999", 10_000: "B9999", 1 << 40: "B9999", -5: "B0"} {
		require.Equal(t, want, v5.NewBudget(tokens).String())
	}
	require.Equal(t, "-", v5.Budget{}.String())
	n, ok = v5.NewBudget(0).Tokens()
	require.True(t, ok)
	require.Zero(t, n)
}

// TestRoute tests check 3.
func TestRoute(t *testing.T) {
	t.Parallel()
	for bad, at := range map[string]int{ // the byte of the invalid address
		"": 0, "O1": 0, "O1-W1": 0, ">W1": 0, "O1>": 3, "O1>W1>W2": 3, "O1>>W1": 3, "O1 >W1": 0, "O1> W1": 3,
		"*>O1": 0, "W*>O1": 0, "G1>O1": 0, "G1.a>O1": 0, "O1>O*": 3, "O1>-": 3, "O1>user": 3,
	} {
		m, e := rejected(t, with(v5.SegmentRoute, bad))
		require.Len(t, e.Problems, 1, bad)
		require.Equal(t, codes.E13, e.Code(), bad)
		if at == 0 {
			require.Zero(t, m.From, "only a single agent can receive a reply: %s", bad)
		}
	}
	_, e := rejected(t, with(v5.SegmentRoute, "*>X1"))
	require.Len(t, e.Problems, 2)
	_, e = rejected(t, "M1|O|R")
	require.Len(t, e.Problems, 1, "a message with too few segments has no other problem")
	for _, fine := range []string{"W1>O1", "O1>O1", "O1>*", "O1>W*", "R1>G9", "O1>User", "User>O1", "W99.abc123>O1.W1"} {
		m := parse(t, with(v5.SegmentRoute, fine))
		require.Equal(t, fine, m.From.String()+">"+m.To.String())
	}
}

func TestWorkerNumber(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 99, 100, 198, 199, 9900, 9801, 98_000} {
		a := v5.WorkerAddress(n)
		got, ok := a.WorkerNumber()
		require.True(t, ok, a)
		require.Equal(t, n, got, a)
		again, err := v5.ParseAddress(a.String())
		require.NoError(t, err)
		require.Equal(t, a, again)
	}
	for _, text := range []string{"O1", "W1.x", "W1.01", "W1.0", "User", "*", "W*", "G3"} {
		a, err := v5.ParseAddress(text)
		require.NoError(t, err)
		_, ok := a.WorkerNumber()
		require.False(t, ok, text)
	}
}
