package tools

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// TestAccount compares an account with what it stands for, whatever happens in which order:
// what the ledger knows and what is still to be told is what was used, and no call is
// promised what was not reserved.
func TestAccount(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		a, now := newPrepaidAccount("agent"), time.Unix(0, 0)
		var told, used, reserved int64
		var running, open []int64 // promised, estimated
		for range 200 {
			switch r.IntN(5) {
			case 0, 1:
				if n := r.Int64N(400); a.reserve(n, now) {
					running = append(running, n)
				}
			case 2:
				if len(running) > 0 {
					promised, cost := running[0], r.Int64N(600)
					running = running[1:]
					a.finishCall(promised, cost, now)
					open = append(open, cost)
				}
			case 3: // a refill, or a settlement behind the calls
				s := a.shortfall(r.Int64N(300))
				told += s.spent
				if r.IntN(3) == 0 {
					a.apply(s, nil)
					reserved = 0
				} else {
					a.apply(s, &models.Reservation{ID: "r", Tokens: s.renewal, ExpiresAt: now.Add(time.Hour)})
					reserved = s.renewal
				}
			case 4:
				if len(open) > 0 {
					cost := r.Int64N(600)
					a.recordUse(open[0], cost)
					open, used = open[1:], used+cost
				}
			}
			var promised int64
			for _, n := range running {
				promised += n
			}
			var estimated int64
			for _, n := range open {
				estimated += n
			}
			require.Equal(t, used, told+a.spent, "nothing is lost or told twice, and no estimate is")
			require.Equal(t, estimated, a.estimated)
			require.Equal(t, reserved, a.size)
			require.Equal(t, a.size-a.spent-estimated-promised, a.available, "what is held is neither used nor promised")
			require.Len(t, running, a.running)
		}
	}
}

// TestADoubtfulSettlementIsRepeated: what the ledger may have heard is told again to the
// token, and what was spent since comes with the next statement.
func TestADoubtfulSettlementIsRepeated(t *testing.T) {
	t.Parallel()
	a, now := newPrepaidAccount("agent"), time.Unix(0, 0)
	a.apply(a.shortfall(10), &models.Reservation{ID: "r1", Tokens: 1000, ExpiresAt: now.Add(time.Hour)})
	spend := func(tokens int64) {
		require.True(t, a.reserve(tokens, now))
		a.finishCall(tokens, tokens, now)
		a.recordUse(tokens, tokens)
	}
	spend(100)
	first, due := a.dueStatement(now, time.Hour)
	require.True(t, due)
	a.markUncertain(first)
	spend(50)
	again, due := a.dueStatement(now, time.Hour)
	require.True(t, due)
	require.Equal(t, first, again)
	require.EqualValues(t, 100, a.shortfall(10).spent, "also where more is asked for")
	a.apply(again, &models.Reservation{ID: "r2", Tokens: 1000, ExpiresAt: now.Add(time.Hour)})
	rest, due := a.dueStatement(now, time.Hour)
	require.True(t, due)
	require.EqualValues(t, 50, rest.spent)
	require.Equal(t, "r2", rest.reservation)
}

// TestAStatementSaysWhetherItIsWhole: what is counted after a statement was made is not in it.
// Who is refused by it hears too little, so it says that it was made of estimates.
func TestAStatementSaysWhetherItIsWhole(t *testing.T) {
	t.Parallel()
	a, now := newPrepaidAccount("agent"), time.Unix(0, 0)
	a.apply(a.shortfall(1000), &models.Reservation{ID: "r1", Tokens: 1000, ExpiresAt: now.Add(time.Hour)})
	require.True(t, a.reserve(100, now))
	a.finishCall(100, 600, now)

	before := a.shortfall(1000)
	a.recordUse(600, 602)
	require.Zero(t, before.spent)
	require.True(t, before.estimated)

	after := a.shortfall(1000)
	require.EqualValues(t, 602, after.spent)
	require.False(t, after.estimated)
}
